"""Properties of Arrow columns: they hold what the records hold, and both twins agree.

The oracle is `records_of`, which uses neither twin. Where there is no C compiler, only the Python
twin is compared with it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.errors import CorruptData, InvalidRequest, MessageTooLarge
from millstream.records import Codec, Record, build, parse_header, records_of, stamp_append_time
from millstream.records import arrow_pure as pure
from millstream.records.arrow import COLUMNS, ColumnReader, encode, schema
from millstream.records.arrow_types import HEADERS
from millstream.records.batch import HEADER_BYTES, seal, validate_produced
from millstream.records.varint import write_varlong

native: ModuleType | None
try:
    from millstream.records import _arrow as native
except ImportError:
    native = None

TWINS: list[ModuleType] = [pure] if native is None else [pure, native]
LIMIT_BYTES = 1 << 24
Outcome = tuple[list[dict[str, object]], int, list[int]] | type[Exception]

codecs = st.sampled_from(Codec)
some_bytes = st.none() | st.binary(max_size=300)
header_keys = st.text(max_size=10) | st.binary(max_size=10).map(
    lambda data: data.decode("utf-8", "surrogateescape")
)
some_headers = st.lists(st.tuples(header_keys, some_bytes), max_size=3).map(tuple)
times_ms = st.integers(0, 2**41) | st.sampled_from([-(2**62), -(2**54), -1, 2**54, 2**62])
# At the ends of 32 and 64 bits, just beyond them, cut short, and longer than they need to be.
ODD_NUMBERS = [
    *(b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x1f"),
    *(b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\xff" * 9 + b"\x03"),
    *(b"\x80" * 4 + b"\x10", b"\x80" * 9 + b"\x02", b"\x80" * 10 + b"\x01", b"\x80\x00"),
    *(b"\x80" * 4 + b"\x00", b"\x80" * 9 + b"\x00", b"\xff", b"\x03", b"\x05"),
]
column_lists = st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True)


@st.composite
def record_lists(draw: st.DrawFn, *, max_size: int = 30) -> list[Record]:
    """Records with growing offsets, some with gaps, from 0."""
    offsets = draw(st.sets(st.integers(0, 2 * max_size), min_size=1, max_size=max_size))
    base_ms = draw(times_ms)
    return [
        Record(
            offset,
            base_ms + draw(st.integers(-(2**40), 2**40)),
            draw(some_bytes),
            draw(some_bytes),
            draw(some_headers),
        )
        for offset in sorted(offsets)
    ]


def crafted_body(
    *, odd_place: int = -1, odd: bytes = b"", offsets: Sequence[int] = (0, 2), time_delta: int = 0
) -> bytes:
    """Records with two headers each, in which one number is not what it should be."""
    places = itertools.count()

    def number(right: int) -> bytes:
        return odd if next(places) == odd_place else varlong(right)

    def content(data: bytes | None) -> bytes:
        return number(-1) if data is None else number(len(data)) + data

    body = b""
    for offset in offsets:
        record = b"\x00" + number(time_delta) + number(offset)
        record += content(b"key") + content(None) + number(2)
        record += content(b"a") + content(None) + content(b"\xff") + content(b"")
        body += number(len(record)) + record
    return body


def crafted_batch(body: bytes, count: int, base_ms: int = 0) -> bytes:
    """A batch of offsets 0 to 4, with a right checksum."""
    fields = (0, 2, 0, 0, 4, base_ms, base_ms, -1, -1, -1, count)
    batch = bytearray(struct.pack(">qiibIhiqqqhii", 0, HEADER_BYTES + len(body) - 12, *fields))
    batch += body
    seal(batch)
    return bytes(batch)


def varlong(value: int) -> bytes:
    out = bytearray()
    write_varlong(out, value)
    return bytes(out)


@pytest.mark.needs("compiler")
def test_native_twin_is_compared_where_it_can_be_compiled() -> None:
    assert native is not None, "the native module is not compiled: run make setup"
    assert native.ColumnBuilder is not pure.ColumnBuilder


@given(
    batches=st.lists(st.tuples(record_lists(), codecs, st.booleans()), min_size=1, max_size=4),
    columns=column_lists,
    start=st.integers(0, 80),
    length=st.none() | st.integers(0, 120),
    batch_rows=st.integers(1, 40),
)
def test_columns_hold_what_the_records_hold(
    batches: list[tuple[list[Record], Codec, bool]],
    columns: list[str],
    start: int,
    length: int | None,
    batch_rows: int,
) -> None:
    payload, expected, end_offset = b"", [], 0
    end = None if length is None else start + length
    for records, codec, is_stamped in batches:
        moved = [record._replace(offset=record.offset + end_offset) for record in records]
        batch = build(moved, base_offset=end_offset, codec=codec)
        if is_stamped:
            stamp_append_time(batch, 1_700_000_000_000)
        payload += batch
        end_offset = parse_header(batch).next_offset
        expected += [
            row_of(record, is_stamped)
            for record in records_of(batch, limit_bytes=LIMIT_BYTES)
            if record.offset >= start and (end is None or record.offset < end)
        ]
    wanted = [{name: row[name] for name in columns} for row in expected]
    for twin in TWINS:
        reader = ColumnReader(
            *("topic", 7),
            columns=columns,
            start=start,
            end=end,
            committed=True,
            batch_rows=batch_rows,
            builder=twin.ColumnBuilder,
        )
        tables = reader.feed(payload) + reader.rest()
        assert [row for table in tables for row in rows_of(table)] == wanted
        assert all(table.schema.equals(schema(columns)) for table in tables)
        assert all(table.num_rows == batch_rows for table in tables[:-1])
        for table in tables:
            table.validate(full=True)
        reached = max(start, end_offset)
        assert reader.next_offset == (reached if end is None else max(start, min(end, reached)))


@given(records=record_lists(max_size=8), codec=codecs, data=st.data())
def test_damage_behind_a_right_checksum_is_met_alike(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = build(records, codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1)) :]
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    seal(batch)
    assert_alike(bytes(batch), data)


@pytest.mark.parametrize("odd", ODD_NUMBERS, ids=bytes.hex)
def test_odd_number_is_met_alike_in_every_place(odd: bytes) -> None:
    for place in range(20):
        body = crafted_body(odd_place=place, odd=odd)
        assert_all_alike(crafted_batch(body, 2))


@pytest.mark.parametrize("offsets", [(0, 1), (0, 4), (1, 1), (3, 2), (-1, 0), (4, 5)])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_wrong_offsets_and_counts_are_met_alike(offsets: tuple[int, int], count: int) -> None:
    body = crafted_body(offsets=offsets)
    for cut in (body, body + b"\x00", body[:-1], body[:-2]):
        assert_all_alike(crafted_batch(cut, count))


@pytest.mark.parametrize("base_ms", [0, -1, 1, -(2**63), 2**63 - 1])
def test_times_at_the_ends_of_their_range_are_met_alike(base_ms: int) -> None:
    clamped_from = 2**63 // 1000
    deltas = (0, 1, -1, clamped_from, clamped_from + 1, -clamped_from - 1, 2**63 - 1, -(2**63))
    for time_delta in deltas:
        batch = crafted_batch(crafted_body(time_delta=time_delta), 2, base_ms)
        outcome = assert_all_alike(batch)
        time_ms = base_ms + time_delta
        if not -(2**63) <= time_ms < 2**63:
            assert outcome is CorruptData
        else:
            assert not isinstance(outcome, type)
            assert outcome[0][0]["timestamp"] == max(-(2**63), min(time_ms * 1000, 2**63 - 1))


@given(data=st.binary(max_size=300))
@example(data=bytes(100))
def test_any_bytes_raise_only_typed_errors(data: bytes) -> None:
    assert len({repr(read(twin, data)) for twin in TWINS}) == 1


@st.composite
def tables(draw: st.DrawFn) -> pa.RecordBatch:
    """Rows as a sink gets them; a slice of more rows, to see that its bounds are kept."""
    count = draw(st.integers(0, 25))

    def column(values: st.SearchStrategy[object]) -> list[object]:
        return draw(st.lists(values, min_size=count, max_size=count))

    pair = st.tuples(st.text(max_size=8), some_bytes)
    columns: dict[str, pa.Array] = {"value": pa.array(column(some_bytes), pa.binary())}
    if draw(st.booleans()):
        columns["key"] = pa.array(column(some_bytes), pa.binary())
    if draw(st.booleans()):
        columns["headers"] = pa.array(column(st.none() | st.lists(pair, max_size=3)), HEADERS)
    if draw(st.booleans()):
        microseconds = column(st.none() | st.integers(-(2**55), 2**55))
        columns["timestamp"] = pa.array(microseconds, pa.timestamp("us", "UTC"))
    first = draw(st.integers(0, count))
    return pa.RecordBatch.from_pydict(columns).slice(first, draw(st.integers(0, count)))


@given(
    table=tables(),
    codec=codecs,
    max_bytes=st.integers(1_500, 6_000),
    base_sequence=st.sampled_from([-1, 0, 2**31 - 3]),
    data=st.data(),
)
def test_encoded_rows_read_back_the_same_and_both_twins_give_the_same_bytes(
    table: pa.RecordBatch, codec: Codec, max_bytes: int, base_sequence: int, data: st.DataObject
) -> None:
    indices = None
    if data.draw(st.booleans()) and table.num_rows:
        indices = data.draw(st.lists(st.integers(0, table.num_rows - 1)))
    outcomes = [
        encode(
            table,
            now_ms=5,
            max_bytes=max_bytes,
            rows=indices,
            producer_id=3 if base_sequence >= 0 else -1,
            producer_epoch=1 if base_sequence >= 0 else -1,
            base_sequence=base_sequence,
            transactional=base_sequence == 0,
            compression=codec,
            encoder=twin.RowEncoder,
        )
        for twin in TWINS
    ]
    assert all(outcome == outcomes[0] for outcome in outcomes)
    read_back, next_sequence = [], base_sequence
    for batch in outcomes[0]:
        header = validate_produced(batch)
        assert len(batch) <= max_bytes
        assert header.base_sequence == next_sequence
        if base_sequence >= 0:
            next_sequence = (header.last_sequence + 1) % 2**31
        records = list(records_of(batch, limit_bytes=LIMIT_BYTES))
        assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)
        read_back += records
    rows = table.to_pylist() if indices is None else [table.to_pylist()[n] for n in indices]
    times = (
        pa.table({"t": table.column("timestamp").cast(pa.int64())})
        if ("timestamp" in table.schema.names)
        else None
    )
    for number, (record, row) in enumerate(zip(read_back, rows, strict=True)):
        place = number if indices is None else indices[number]
        microseconds = None if times is None else times["t"][place].as_py()
        assert record.timestamp_ms == (5 if microseconds is None else microseconds // 1000)
        assert (record.key, record.value) == (row.get("key"), row["value"])
        pairs = row.get("headers") or []
        assert list(record.headers) == [(pair["key"], pair["value"]) for pair in pairs]


def row_of(record: Record, is_stamped: bool) -> dict[str, object]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "topic",
        "partition": 7,
        "offset": record.offset,
        "timestamp": max(-(2**63), min(record.timestamp_ms * 1000, 2**63 - 1)),
        "timestampType": int(is_stamped),
        "headers": [
            {
                "key": key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                "value": value,
            }
            for key, value in record.headers
        ]
        or None,
    }


def rows_of(table: pa.RecordBatch) -> list[dict[str, object]]:
    """Rows with times as numbers: most are outside what Python's own can hold."""
    columns = {
        name: column.cast(pa.int64()) if name == "timestamp" else column
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }
    return list(pa.table(columns).to_pylist())


def read(
    twin: ModuleType,
    payload: bytes,
    *,
    start: int = 0,
    end: int | None = None,
    batch_rows: int = 100,
) -> Outcome:
    reader = ColumnReader(
        *("topic", 7),
        columns=COLUMNS,
        start=start,
        end=end,
        committed=True,
        batch_rows=batch_rows,
        builder=twin.ColumnBuilder,
    )
    try:
        tables = reader.feed(payload) + reader.rest()
    except (CorruptData, InvalidRequest, MessageTooLarge) as error:
        return type(error)
    for table in tables:
        table.validate(full=True)
    rows = [row for table in tables for row in rows_of(table)]
    return rows, reader.next_offset, [table.num_rows for table in tables]


def assert_all_alike(payload: bytes) -> Outcome:
    """The whole and the beginning of it; what comes back is the whole."""
    beginning = [read(twin, payload, end=1) for twin in TWINS]
    whole = [read(twin, payload) for twin in TWINS]
    assert all(outcome == beginning[0] for outcome in beginning)
    assert all(outcome == whole[0] for outcome in whole)
    return whole[0]


def assert_alike(payload: bytes, data: st.DataObject) -> None:
    start, end = data.draw(st.integers(0, 12)), data.draw(st.none() | st.integers(0, 12))
    batch_rows = data.draw(st.integers(1, 5))
    outcomes: Sequence[Outcome] = [
        read(twin, payload, start=start, end=end, batch_rows=batch_rows) for twin in TWINS
    ]
    assert all(outcome == outcomes[0] for outcome in outcomes)
