"""The inner loop of compaction agrees with the decoder of records, and trusts nothing."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidBatch
from millstream.records import (
    BatchHeader,
    Record,
    body_of,
    build,
    parse_header,
    rebuild,
    records_of,
    stamp_append_time,
    validate,
)
from millstream.records.record_keys import RUN_RECORDS, KeyRun, key_runs, select

LIMIT_BYTES = 1 << 24
NOW_MS = 1_700_000_000_000

small_bytes = st.none() | st.binary(max_size=300)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Record], bytearray]:
    base = draw(st.integers(0, 2**40))
    steps = draw(st.lists(st.sampled_from((1, 1, 1, 2, 70, 9000, 2_000_000)), min_size=1))
    records, offset = [], base - 1
    for step in steps:
        offset += step
        records.append(
            Record(
                offset,
                NOW_MS + draw(st.sampled_from((0, 1, -1, 64, -9000, 10**7, -(10**12), 10**14))),
                draw(small_bytes),
                draw(small_bytes),
                draw(st.sampled_from(((), (("h", b"1"), ("i", None))))),
            )
        )
    return records, build(records, base_offset=base)


def scan(batch: bytearray) -> list[KeyRun]:
    return list(key_runs(parse_header(batch), body_of(batch, limit_bytes=LIMIT_BYTES)))


@given(batches())
def test_keys_are_those_that_the_decoder_finds(made: tuple[list[Record], bytearray]) -> None:
    records, batch = made
    base = parse_header(batch).base_offset
    (run,) = scan(batch)
    assert run.keys == [record.key for record in records]
    assert [base + delta for delta in run.offset_deltas] == [record.offset for record in records]
    assert run.keyless == [n for n, record in enumerate(records) if record.key is None]
    assert run.tombstones == [n for n, record in enumerate(records) if record.value is None]


@given(batches(), st.data())
def test_selected_records_are_rebuilt_as_they_were(
    made: tuple[list[Record], bytearray], data: st.DataObject
) -> None:
    records, batch = made
    header = parse_header(batch)
    marks = data.draw(
        st.lists(st.booleans(), min_size=len(records), max_size=len(records)).filter(any)
    )
    parts, max_timestamp_ms = select(header, body_of(batch, limit_bytes=LIMIT_BYTES), bytes(marks))
    kept = [record for record, mark in zip(records, marks, strict=True) if mark]
    assert max_timestamp_ms == max(record.timestamp_ms for record in kept)
    smaller = rebuild(
        header,
        parts,
        records_count=len(kept),
        max_timestamp_ms=max_timestamp_ms,
        codec=header.codec,
    )
    validate(smaller)
    assert list(records_of(smaller, limit_bytes=LIMIT_BYTES)) == kept


def test_large_batch_comes_in_runs() -> None:
    count = 2 * RUN_RECORDS + 5
    batch = build([Record(n, NOW_MS + n, b"%d" % n, b"v") for n in range(count)])
    runs = scan(batch)
    assert [len(run.keys) for run in runs] == [RUN_RECORDS, RUN_RECORDS, 5]
    assert list(chain(*(run.offset_deltas for run in runs))) == list(range(count))
    marks = bytearray(n % 3 == 1 for n in range(count))
    parts, max_timestamp_ms = select(
        parse_header(batch), body_of(batch, limit_bytes=LIMIT_BYTES), marks
    )
    assert max_timestamp_ms == NOW_MS + max(n for n in range(count) if marks[n])
    header = parse_header(batch)
    smaller = rebuild(
        header,
        parts,
        records_count=sum(marks),
        max_timestamp_ms=max_timestamp_ms,
        codec=header.codec,
    )
    kept = [record.offset for record in records_of(smaller, limit_bytes=LIMIT_BYTES)]
    assert kept == [n for n in range(count) if marks[n]]


def test_time_of_append_stays_that_of_the_batch() -> None:
    batch = build([Record(0, 5, b"a", b"1"), Record(1, 6, b"b", b"1")])
    stamp_append_time(batch, NOW_MS)
    body = body_of(batch, limit_bytes=LIMIT_BYTES)
    assert select(parse_header(batch), body, b"\1\0")[1] == NOW_MS


def test_batch_without_records_has_no_runs() -> None:
    header = parse_header(build([Record(0, 5, b"a", b"1")]))
    empty = rebuild(header, [], records_count=0, max_timestamp_ms=5, codec=header.codec)
    assert scan(empty) == []


@given(batches(), st.data())
def test_mangled_body_is_refused_or_read_to_its_end(
    made: tuple[list[Record], bytearray], data: st.DataObject
) -> None:
    _, batch = made
    header = parse_header(batch)
    body = bytearray(body_of(batch, limit_bytes=LIMIT_BYTES))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    mangled = bytes(body[: data.draw(st.integers(0, len(body)) | st.just(len(body)))])
    try:
        runs = list(key_runs(header, mangled))
    except InvalidBatch:
        return
    marks = bytearray(b"\1") * header.records_count
    parts, _ = select(header, mangled, marks)
    assert b"".join(parts) == mangled
    assert sum(len(run.keys) for run in runs) == header.records_count


def header_of(count: int, last_delta: int) -> BatchHeader:
    header = parse_header(build([Record(0, 5, b"a", b"1")]))
    return header._replace(records_count=count, last_offset_delta=last_delta)


LYING = [
    ("cut short", b""),
    ("cut short", bytes([14, 0])),
    ("negative length", bytes([13, 0, 0, 0, 2, 97, 2, 49, 0])),
    ("leads out of its batch", bytes([18, 0, 0, 0, 2, 97, 2, 49, 0])),
    ("leads out of its record", bytes([8, 0, 0, 0, 2, 97, 2, 49, 0])),
    ("does not grow", bytes([16, 0, 0, 1, 2, 97, 2, 49, 0])),
    ("past its last offset", bytes([16, 0, 0, 4, 2, 97, 2, 49, 0])),
    ("key of negative length", bytes([14, 0, 0, 0, 3, 2, 49, 0])),
    ("value of negative length", bytes([14, 0, 0, 0, 2, 97, 3, 0])),
    ("after its last record", bytes([16, 0, 0, 0, 2, 97, 2, 49, 0, 0])),
    ("more than 32 bits", bytes([0xFF] * 5 + [0x7F])),
]


@pytest.mark.parametrize(("reason", "body"), LYING)
def test_lying_field_is_refused(reason: str, body: bytes) -> None:
    with pytest.raises(InvalidBatch, match=reason):
        list(key_runs(header_of(1, 1), body))


def test_null_value_in_two_bytes_is_a_tombstone() -> None:
    (run,) = key_runs(header_of(1, 0), bytes([14, 0, 0, 0, 2, 97, 0x81, 0]))
    assert run.tombstones == [0]
