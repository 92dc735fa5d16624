"""Control batches: the markers that end a transaction in each partition it wrote to.

A control batch holds one record. Its key is version and kind, its value version and the epoch of
the coordinator that decided; 16-bit and 32-bit numbers, big-endian. Bytes that a newer version
adds behind them are skipped.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import InvalidBatch
from millstream.records.batch import parse_header
from millstream.records.batch_builder import build
from millstream.records.batch_reader import records_of
from millstream.records.record import Record

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ControlType(IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


class ControlMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    kind: ControlType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    timestamp_ms: int


def build_control(
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytearray:
    """The batch that ends a transaction."""
    key = _KEY.pack(_VERSION, kind)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    return build(
        [Record(base_offset, timestamp_ms, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def parse_control(buffer: ReadableBuffer) -> ControlMarker:
    """The marker in a control batch."""
    header = parse_header(buffer)
    if not header.is_control:
        raise InvalidBatch("not a control batch")
    records = list(records_of(buffer, limit_bytes=_MAX_MARKER_BYTES))
    if len(records) != 1:
        raise InvalidBatch(f"a control batch of {len(records)} records")
    marker = records[0]
    try:
        _, kind = _KEY.unpack_from(marker.key or b"")
        _, coordinator_epoch = _VALUE.unpack_from(marker.value or b"")
        return ControlMarker(
            ControlType(kind),
            header.producer_id,
            header.producer_epoch,
            coordinator_epoch,
            marker.timestamp_ms,
        )
    except (struct.error, ValueError) as cause:
        raise InvalidBatch(f"a control record that ends no transaction: {cause}") from cause


_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_MAX_MARKER_BYTES = 4096
