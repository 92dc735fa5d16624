"""Making batches of rows: which columns and types are taken, and how rows are cut into batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import InvalidBatch, InvalidRequest, MessageTooLarge
from millstream.records import Codec, Record, parse_header, records_of, validate_produced
from millstream.records import arrow_pure as pure
from millstream.records.arrow import encode
from millstream.records.arrow_twin import NATIVE, RowEncoder
from millstream.records.arrow_types import HEADERS

LIMIT_BYTES = 1 << 24
ENCODERS = [pure.RowEncoder]
if NATIVE:
    ENCODERS.append(RowEncoder)


@pytest.fixture(params=ENCODERS, ids=["pure", "native"][: len(ENCODERS)])
def encoder(request: pytest.FixtureRequest) -> Any:
    return request.param


def encoded(encoder: Any, columns: Any, **options: Any) -> list[bytes]:
    table = columns if isinstance(columns, pa.Table) else pa.RecordBatch.from_pydict(columns)
    return encode(table, **{"now_ms": 77, "max_bytes": 1 << 20, **options}, encoder=encoder)


def records_in(batches: list[bytes]) -> list[Record]:
    for batch in batches:
        validate_produced(batch)
    return [record for batch in batches for record in records_of(batch, limit_bytes=LIMIT_BYTES)]


def values_in(batches: list[bytes]) -> list[bytes | None]:
    return [record.value for record in records_in(batches)]


def test_value_alone_makes_a_record_of_now(encoder: Any) -> None:
    (batch,) = encoded(encoder, {"value": [b"a"], "colour": ["red"]})
    assert records_in([batch]) == [Record(0, 77, None, b"a")]
    header = parse_header(batch)
    assert (header.producer_id, header.base_sequence, header.leader_epoch) == (-1, -1, -1)
    assert not header.is_transactional


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view()]
)
def test_text_and_large_columns_are_taken_as_their_bytes(encoder: Any, kind: pa.DataType) -> None:
    content = ["zürich", None, ""]
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()):
        content = [text.encode() if text is not None else None for text in content]  # type: ignore[misc]
    column = pa.array(content, kind)
    records = records_in(encoded(encoder, {"key": column, "value": column}))
    expected = ["zürich".encode(), None, b""]
    assert [record.key for record in records] == expected
    assert [record.value for record in records] == expected


def test_column_of_nulls_alone_is_taken(encoder: Any) -> None:
    assert values_in(encoded(encoder, {"value": pa.nulls(2)})) == [None, None]


@pytest.mark.parametrize("name", ["key", "value", "headers", "timestamp"])
def test_column_of_another_type_is_refused_by_name(encoder: Any, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"column '{name}' is of type int64: cast it"):
        encoded(encoder, {"value": [b"a"], name: [1]})


def test_rows_without_a_value_column_are_refused(encoder: Any) -> None:
    with pytest.raises(InvalidRequest, match="no column 'value' to send, only key"):
        encoded(encoder, {"key": [b"a"]})


@pytest.mark.parametrize("headers", [[None], [(None, b"x")]])
def test_header_without_a_key_is_refused_by_row(encoder: Any, headers: Any) -> None:
    column = pa.array([None, headers], HEADERS)
    with pytest.raises(InvalidBatch, match="row 1 has a header without a key"):
        encoded(encoder, {"value": [b"a", b"b"], "headers": column})


def test_headers_that_are_a_slice_of_more_are_taken(encoder: Any) -> None:
    pairs = pa.array([None, ("a", b"1"), ("b", None), None], HEADERS.value_type)
    column = pa.ListArray.from_arrays([0, 1, 2], pairs.slice(1, 2), type=HEADERS)
    records = records_in(encoded(encoder, {"value": [b"x", b"y"], "headers": column}))
    assert [record.headers for record in records] == [(("a", b"1"),), (("b", None),)]


def test_headers_of_a_like_type_are_taken(encoder: Any) -> None:
    pairs = pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])
    column = pa.array([[{"key": "k", "value": b"v"}], [], None], pa.large_list(pairs))
    records = records_in(encoded(encoder, {"value": [b"a"] * 3, "headers": column}))
    assert [record.headers for record in records] == [(("k", b"v"),), (), ()]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit_are_rounded_down_to_milliseconds(encoder: Any, unit: str) -> None:
    per_s = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = pa.array([2 * per_s, None, -1], pa.timestamp(unit, "UTC"))
    records = records_in(encoded(encoder, {"value": [b"a"] * 3, "timestamp": times}))
    before_1970 = {"s": -1000}.get(unit, -1)
    assert [record.timestamp_ms for record in records] == [2000, 77, before_1970]


def test_chosen_rows_are_sent_in_the_order_chosen(encoder: Any) -> None:
    rows = {"value": [b"%d" % number for number in range(6)]}
    assert values_in(encoded(encoder, rows, rows=[4, 1, 4])) == [b"4", b"1", b"4"]
    assert values_in(encoded(encoder, rows, rows=pa.array([0, 5]))) == [b"0", b"5"]
    assert values_in(encoded(encoder, rows, rows=slice(2, 4))) == [b"2", b"3"]
    assert values_in(encoded(encoder, rows, rows=slice(None, None, 3))) == [b"0", b"3"]
    assert encoded(encoder, rows, rows=slice(4, 2)) == encoded(encoder, rows, rows=[]) == []


def test_batches_keep_to_the_limit_and_sequences_run_on_past_their_end(encoder: Any) -> None:
    chunks = [[bytes(100)] * 7, [bytes(100)] * 5]
    table = pa.table({"value": pa.chunked_array(chunks, pa.binary())})
    batches = encoded(
        *(encoder, table),
        max_bytes=400,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 4,
        transactional=True,
    )
    headers = [validate_produced(batch) for batch in batches]
    assert all(len(batch) <= 400 for batch in batches)
    assert [header.records_count for header in headers] == [3, 3, 1, 3, 2]
    assert [header.base_sequence for header in headers] == [2**31 - 4, 2**31 - 1, 2, 3, 6]
    assert all(header[9:11] == (9, 2) and header.is_transactional for header in headers)


def test_row_too_large_by_itself_is_refused(encoder: Any) -> None:
    with pytest.raises(MessageTooLarge):
        encoded(encoder, {"value": [b"a", bytes(500)]}, max_bytes=400)


def test_large_row_is_sent_if_packing_makes_it_small_enough(encoder: Any) -> None:
    batches = encoded(encoder, {"value": [b"a", bytes(500)]}, max_bytes=400, compression=Codec.ZSTD)
    assert values_in(batches) == [b"a", bytes(500)]


@pytest.mark.parametrize("codec", list(Codec))
def test_rows_are_packed_where_that_saves_anything(encoder: Any, codec: Codec) -> None:
    (packed,) = encoded(encoder, {"value": [b"abc" * 50] * 20}, compression=codec)
    (plain,) = encoded(encoder, {"value": [b"x"]}, compression=codec)
    assert values_in([packed]) == [b"abc" * 50] * 20
    assert parse_header(packed).codec is codec
    assert parse_header(plain).codec is Codec.NONE
