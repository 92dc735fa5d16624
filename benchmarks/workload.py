"""Batches to measure with, made once and appended many times: only their offsets change."""

from __future__ import annotations

from random import Random

from millstream.clock import SystemClock
from millstream.records import Record, build

VALUE_BYTES = 100
_TIMESTAMP_MS = 1_700_000_000_000


def batch_of(
    *, records: int = 1, value_bytes: int = VALUE_BYTES, seed: int = 0, sequence: int | None = None
) -> bytearray:
    """A batch of so many records; with a sequence, of an idempotent producer."""
    values = Random(seed)
    return build(
        [
            Record(offset, _TIMESTAMP_MS, None, values.randbytes(value_bytes))
            for offset in range(records)
        ],
        producer_id=-1 if sequence is None else 1,
        producer_epoch=-1 if sequence is None else 0,
        base_sequence=-1 if sequence is None else sequence,
    )


def value_of(size_bytes: int) -> bytes:
    """A value of letters and digits, no two stretches of it alike, without line ends."""
    return bytes(
        Random(0).choices(
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", k=size_bytes
        )
    )


def batch_of_value(value: bytes, *, records: int) -> bytearray:
    """A batch of the same value again and again, of now: a broker may delete what is old."""
    now_ms = SystemClock().now_ms()
    return build([Record(offset, now_ms, None, value) for offset in range(records)])


def batch_of_size(size_bytes: int, *, value_bytes: int = 1000) -> bytearray:
    """A batch of exactly this size, of records that share it evenly but for the last."""
    values = Random(0)
    records: list[Record] = []
    batch = bytearray()
    while size_bytes - len(batch) > 2 * value_bytes:
        count = max((size_bytes - len(batch)) // (2 * value_bytes), 1)
        records += [
            Record(len(records) + n, _TIMESTAMP_MS, None, values.randbytes(value_bytes))
            for n in range(count)
        ]
        batch = build(records)
    rest = size_bytes - len(batch)
    while len(batch) != size_bytes:
        last = Record(len(records), _TIMESTAMP_MS, None, values.randbytes(rest))
        batch = build([*records, last])
        rest -= len(batch) - size_bytes
    return batch


def in_one_buffer(batches: list[bytearray]) -> list[memoryview]:
    """Views of batches that lie one behind the other, as a connection receives them."""
    buffer = memoryview(bytearray().join(batches))
    views, position = [], 0
    for batch in batches:
        views.append(buffer[position : position + len(batch)])
        position += len(batch)
    return views
