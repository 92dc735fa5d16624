"""Where the records of a batch lie, and what decides whether compaction keeps them.

The inner loop of compaction: it steps from record to record by their lengths, and looks at no
value and no header. What it finds comes in parallel lists, a run of records at a time, so that
all further work on them is done by loops in C: `map`, `zip`, `dict.update`.
Nothing is trusted: what does not fit together is an InvalidBatch.
Format: docs/formats/record_batch.md. Cost: benchmarks/compaction.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, count, pairwise
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import InvalidBatch
from millstream.records.batch import BatchHeader, validate_produced
from millstream.records.batch_reader import body_of
from millstream.records.varint import INT32_BITS, read_rest, read_varint, read_varlong

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Bounds the memory for what is known of one run, whatever the size of the batch.
RUN_RECORDS = 4096
NO_TIMESTAMP_MS = -1


class KeyRun(NamedTuple):
    """Some records of a batch, one after the other."""

    keys: list[bytes | None]
    # Which of them, by their number in this run, have no key, and which have no value.
    keyless: list[int]
    tombstones: list[int]
    offset_deltas: Sequence[int] = ()


def key_runs(header: BatchHeader, body: bytes) -> Iterator[KeyRun]:
    """The records in the unpacked body of a batch, in runs."""
    position, next_delta = 0, 0
    left = header.records_count
    while left:
        count = min(left, RUN_RECORDS)
        try:
            run, position = _run(body, position, count, next_delta)
        except IndexError as cause:
            raise InvalidBatch("its records are cut short") from cause
        next_delta = run.offset_deltas[-1] + 1
        left -= count
        yield run
    if next_delta > header.last_offset_delta + 1:
        raise InvalidBatch(f"an offset delta of {next_delta - 1} past its last offset")
    if position != len(body):
        raise InvalidBatch(f"{len(body) - position} bytes after its last record")


def keyless_records(batch: ReadableBuffer, *, limit_bytes: int) -> list[int]:
    """Which records of a new batch, by their number in it, have no key.

    Raises InvalidBatch, UnsupportedCodec or MessageTooLarge.
    """
    runs = key_runs(validate_produced(batch), body_of(batch, limit_bytes=limit_bytes))
    return [
        first + number
        for first, run in zip(count(0, RUN_RECORDS), runs, strict=False)
        for number in run.keyless
    ]


def untimely_records(
    batch: ReadableBuffer, *, earliest_ms: int, latest_ms: int, limit_bytes: int
) -> list[int]:
    """Which records of a new batch have a timestamp outside of a range, both ends included.

    A record without a timestamp is never one of them. Raises what `keyless_records` does.
    """
    header = validate_produced(batch)
    body = body_of(batch, limit_bytes=limit_bytes)
    untimely = []
    position = 0
    for number in range(header.records_count):
        try:
            length, start = read_varint(body, position)
            delta_ms, _ = read_varlong(body, start + 1)
        except IndexError as cause:
            raise InvalidBatch("its records are cut short") from cause
        if length < 0:
            raise InvalidBatch("a record of negative length")
        timestamp_ms = header.base_timestamp_ms + delta_ms
        if timestamp_ms != NO_TIMESTAMP_MS and not earliest_ms <= timestamp_ms <= latest_ms:
            untimely.append(number)
        position = start + length
    return untimely


def select(header: BatchHeader, body: bytes, kept: bytes | bytearray) -> tuple[list[bytes], int]:
    """Those records of a sound body whose number is marked in `kept`, at least one of them.

    Returns their bytes, and the largest of their timestamps.
    """
    parts: list[bytes] = []
    ceiling_ms = header.max_timestamp_ms
    largest_ms = ceiling_ms if header.timestamp_type_append else None
    position = 0
    for first in range(0, header.records_count, RUN_RECORDS):
        marks = kept[first : first + RUN_RECORDS]
        starts = _starts(body, position, len(marks))
        position = starts[-1]
        parts.append(
            b"".join([body[start:end] for start, end in compress(pairwise(starts), marks)])
        )
        # Nothing is later than the ceiling, and most often the last record reaches it.
        for start in reversed(list(compress(starts, marks))):
            if largest_ms is not None and largest_ms >= ceiling_ms:
                break
            timestamp_ms = header.base_timestamp_ms + _timestamp_delta(body, start)
            if largest_ms is None or timestamp_ms > largest_ms:
                largest_ms = timestamp_ms
    assert largest_ms is not None, "no record is marked"
    return parts, largest_ms


def _starts(body: bytes, position: int, count: int) -> list[int]:
    """Where each record of a run begins; and, last, where the run ends."""
    starts: list[int] = []
    note = starts.append
    for _ in range(count):
        note(position)
        raw = body[position]
        position += 1
        if raw > 0x7F:
            high = body[position]
            if high > 0x7F:
                raw, position = read_rest(body, position, raw, INT32_BITS)
            else:
                raw += (high << 7) - 0x80
                position += 1
        position += raw >> 1
    note(position)
    return starts


def _timestamp_delta(body: bytes, start: int) -> int:
    _, position = read_varint(body, start)
    delta_ms, _ = read_varlong(body, position + 1)
    return delta_ms


def _run(  # noqa: C901, PLR0912, PLR0915 - one or two bytes of each number are inline
    body: bytes, position: int, count: int, first_delta: int
) -> tuple[KeyRun, int]:
    run = KeyRun([], [], [])
    gaps: list[tuple[int, int]] = []
    note_key = run.keys.append
    expected = first_delta << 1
    for number in range(count):
        raw = body[position]
        if raw < 0x80:
            position += 1
        else:
            high = body[position + 1]
            if high > 0x7F:
                raw, position = read_rest(body, position + 1, raw, INT32_BITS)
            else:
                raw += (high << 7) - 0x80
                position += 2
        if raw & 1:
            raise InvalidBatch("a record of negative length")
        end = position + (raw >> 1)

        # Its attributes, then its timestamp delta.
        if body[position + 1] < 0x80:
            position += 2
        elif body[position + 2] < 0x80:
            position += 3
        else:
            _, position = read_varlong(body, position + 1)

        raw = body[position]
        if raw < 0x80:
            position += 1
        else:
            high = body[position + 1]
            if high > 0x7F:
                raw, position = read_rest(body, position + 1, raw, INT32_BITS)
            else:
                raw += (high << 7) - 0x80
                position += 2
        if raw != expected:
            if raw & 1 or raw < expected:
                raise InvalidBatch(f"an offset delta that does not grow: {raw >> 1}")
            gaps.append((number, raw >> 1))
            expected = raw
        expected += 2

        raw = body[position]
        position += 1
        if raw > 0x7F:
            raw, position = read_rest(body, position, raw, INT32_BITS)
        if raw & 1:
            if raw != 1:
                raise InvalidBatch("a key of negative length")
            note_key(None)
            run.keyless.append(number)
        else:
            key_from = position
            position += raw >> 1
            note_key(body[key_from:position])

        if body[position] & 1 and _is_null(body, position):
            run.tombstones.append(number)
        if position >= end:
            raise InvalidBatch("a key that leads out of its record")
        position = end
    if position > len(body):
        raise InvalidBatch("a record whose length leads out of its batch")
    return run._replace(offset_deltas=_deltas(first_delta, count, gaps)), position


def _deltas(first: int, count: int, gaps: list[tuple[int, int]]) -> Sequence[int]:
    """Numbers that count up from `first`, but for jumps: (which of them, to what)."""
    if not gaps:
        return range(first, first + count)
    deltas: list[int] = []
    for (number, delta), (end, _) in pairwise([(0, first), *gaps, (count, 0)]):
        deltas += range(delta, delta + end - number)
    return deltas


def _is_null(body: bytes, position: int) -> bool:
    """Whether a value is null, which may be written in more bytes than it needs."""
    length, _ = read_varint(body, position)
    if length < -1:
        raise InvalidBatch("a value of negative length")
    return length == -1
