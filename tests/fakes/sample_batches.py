"""Batches for tests, with as little said about each as the test cares for."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.records import (
    BatchHeader,
    Codec,
    ControlType,
    Record,
    build,
    build_control,
    records_of,
)
from millstream.storage.batch_walk import split_batches
from millstream.storage.partition_log import PartitionLog

START_MS = 1_700_000_000_000
LIMIT_BYTES = 1 << 20


def batch_of(
    *values: bytes,
    timestamps_ms: Sequence[int] | None = None,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A batch of these values, as a producer would send it."""
    if timestamps_ms is None:
        timestamps_ms = [START_MS] * len(values)
    records = [
        Record(offset, timestamp_ms, None, value)
        for offset, (value, timestamp_ms) in enumerate(zip(values, timestamps_ms, strict=True))
    ]
    return build(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def timed_batch(*timestamps_ms: int, codec: Codec = Codec.NONE) -> bytearray:
    """A batch of one record for each of these times."""
    values = [b"at %d" % timestamp_ms for timestamp_ms in timestamps_ms]
    return batch_of(*values, timestamps_ms=timestamps_ms, codec=codec)


def idempotent_batch(
    sequence: int, *, count: int = 1, epoch: int = 0, producer: int = 7
) -> bytearray:
    """A batch of an idempotent producer."""
    values = [b"sequence %d" % (sequence + n) for n in range(count)]
    return batch_of(*values, producer_id=producer, epoch=epoch, sequence=sequence)


def transactional_batch(
    sequence: int, *, count: int = 1, epoch: int = 0, producer: int = 7
) -> bytearray:
    """A batch that is part of a producer's transaction."""
    values = [b"%d of a transaction" % n for n in range(count)]
    return batch_of(
        *values, producer_id=producer, epoch=epoch, sequence=sequence, transactional=True
    )


def commit_marker(*, epoch: int = 0, producer: int = 7) -> bytearray:
    return _marker(ControlType.COMMIT, producer, epoch)


def abort_marker(*, epoch: int = 0, producer: int = 7) -> bytearray:
    return _marker(ControlType.ABORT, producer, epoch)


def _marker(kind: ControlType, producer: int, epoch: int) -> bytearray:
    return build_control(
        kind,
        producer_id=producer,
        producer_epoch=epoch,
        coordinator_epoch=3,
        timestamp_ms=START_MS,
    )


def headers_in(view: memoryview) -> list[BatchHeader]:
    return [header for header, _ in split_batches(view)]


def records_in(view: memoryview) -> list[Record]:
    return [
        record
        for _, batch in split_batches(view)
        for record in records_of(batch, limit_bytes=LIMIT_BYTES)
    ]


def read_all(log: PartitionLog, *, max_bytes: int = LIMIT_BYTES) -> list[Record]:
    """Every record of a log, by as many reads as it takes."""
    records: list[Record] = []
    offset = log.start_offset
    while view := log.read(offset, max_bytes):
        records += records_in(view)
        offset = headers_in(view)[-1].next_offset
    return [record for record in records if record.offset >= log.start_offset]


def values_of(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in read_all(log)]
