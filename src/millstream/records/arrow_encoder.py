"""Makes record batches of the rows of an Arrow table, as a producer sends them.

Columns are those of Spark's Kafka sink: `value`, and where they are there `key`, `headers` and
`timestamp`; others are left alone. Text counts as its UTF-8 bytes.
Invariant: every row is in exactly one batch, in order, and no batch is larger than was asked for.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidRequest, MessageTooLarge
from millstream.records.arrow_twin import RowEncoder
from millstream.records.arrow_types import HEADERS
from millstream.records.batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    seal,
)
from millstream.records.compression import Codec, compress

_SEQUENCES = 2**31
_NO_LEADER_EPOCH = -1


def encode(
    batch: pa.RecordBatch | pa.Table,
    *,
    now_ms: int,
    max_bytes: int,
    rows: slice | Sequence[int] | pa.Array | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    compression: Codec = Codec.NONE,
    encoder: type[RowEncoder] = RowEncoder,
) -> list[bytes]:
    """Batches of at most `max_bytes` of all rows or of some; sequences run on from batch to batch.

    A row without a time gets `now_ms`. Raises InvalidRequest for columns of other types, and
    MessageTooLarge for a row that is too large by itself.
    """
    attributes = int(compression) | (TRANSACTIONAL_BIT if transactional else 0)
    out: list[bytes] = []
    for part in _chosen(batch, rows):
        packer = encoder(
            key=_bytes(part, "key"),
            value=_values(part),
            headers=_headers(part),
            timestamp_ms=_timestamps(part, now_ms),
            now_ms=now_ms,
        )
        row = 0
        while row < part.num_rows:
            body, next_row, first_ms, last_ms = packer.pack(row, max_bytes)
            count = next_row - row
            fields = (count - 1, first_ms, last_ms, producer_id, producer_epoch, base_sequence)
            out.append(_finish(body, attributes, (*fields, count), max_bytes))
            if base_sequence >= 0:
                base_sequence = (base_sequence + count) % _SEQUENCES
            row = next_row
    return out


def _chosen(
    batch: pa.RecordBatch | pa.Table, rows: slice | Sequence[int] | pa.Array | None
) -> list[pa.RecordBatch]:
    if isinstance(rows, slice):
        start, stop, step = rows.indices(batch.num_rows)
        if step == 1:
            batch = batch.slice(start, max(stop - start, 0))
        else:
            batch = batch.take(pa.array(range(start, stop, step), pa.int64()))
    elif rows is not None:
        batch = batch.take(rows if isinstance(rows, pa.Array) else pa.array(rows, pa.int64()))
    return batch.to_batches() if isinstance(batch, pa.Table) else [batch]


def _values(batch: pa.RecordBatch) -> pa.Array:
    values = _bytes(batch, "value")
    if values is None:
        raise InvalidRequest(
            f"there is no column 'value' to send, only {', '.join(batch.schema.names)}: name one so"
        )
    return values


def _bytes(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    kind = column.type
    if kind == pa.binary():
        return column
    if not (_is_text_or_bytes(kind) or pa.types.is_null(kind)):
        raise InvalidRequest(f"column {name!r} is of type {kind}: cast it to a string or to binary")
    return column.cast(pa.binary())


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _headers(batch: pa.RecordBatch) -> pa.Array | None:
    if "headers" not in batch.schema.names:
        return None
    column = batch.column("headers")
    if column.type == HEADERS:
        return column
    try:
        return column.cast(HEADERS)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as cause:
        raise InvalidRequest(
            f"column 'headers' is of type {column.type}: "
            "cast it to array<struct<key: string, value: binary>>"
        ) from cause


def _timestamps(batch: pa.RecordBatch, now_ms: int) -> pa.Array | None:
    """In milliseconds, rounded down."""
    if "timestamp" not in batch.schema.names:
        return None
    column = batch.column("timestamp")
    if not pa.types.is_timestamp(column.type):
        raise InvalidRequest(f"column 'timestamp' is of type {column.type}: cast it to a timestamp")
    times = pc.floor_temporal(column, unit="millisecond")
    return times.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64()).fill_null(now_ms)


def _finish(body: bytearray, attributes: int, fields: tuple[int, ...], max_bytes: int) -> bytes:
    """Pack what lies behind the room for the header, if that saves anything, and seal it."""
    codec = attributes & 7
    if codec:
        with memoryview(body) as view:
            packed = compress(codec, view[HEADER_BYTES:])
        if len(packed) < len(body) - HEADER_BYTES:
            body[HEADER_BYTES:] = packed
        else:
            attributes &= ~7
    if len(body) > max_bytes:
        raise MessageTooLarge(size_bytes=len(body), limit_bytes=max_bytes)
    length = len(body) - LENGTH_PREFIX_BYTES
    HEADER.pack_into(body, 0, 0, length, _NO_LEADER_EPOCH, MAGIC, 0, attributes, *fields)
    seal(body)
    return bytes(body)
