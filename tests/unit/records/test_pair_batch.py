"""Batches of pairs are those that `build` makes, and their values are those that were given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidBatch
from millstream.records import Codec, Record, build, records_of, validate_produced
from millstream.records.pair_batch import build_pairs
from millstream.records.record_values import values_of

DATA = st.none() | st.binary(max_size=200)
LIMIT = 1 << 20


@given(st.lists(st.tuples(DATA, DATA), min_size=1, max_size=300), st.sampled_from(Codec))
def test_batch_of_pairs_is_the_one_that_build_makes(
    pairs: list[tuple[bytes | None, bytes | None]], codec: Codec
) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    fields = {"codec": codec, "producer_id": 7, "producer_epoch": 1, "base_sequence": 99}
    batch = build_pairs(keys, values, timestamp_ms=5, **fields)  # type: ignore[arg-type]
    records = [Record(number, 5, *pair) for number, pair in enumerate(pairs)]
    assert batch == build(records, **fields)  # type: ignore[arg-type]
    assert validate_produced(batch).records_count == len(pairs)
    assert build_pairs(None, values, timestamp_ms=5) == build(
        [record._replace(key=None) for record in records]
    )


@given(
    st.lists(
        st.tuples(DATA, DATA, st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3)),
        min_size=1,
        max_size=50,
    ),
    st.sampled_from(Codec),
)
def test_values_are_those_of_the_records(
    content: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: Codec
) -> None:
    records = [
        Record(number, number * 100, key, value, tuple(headers))
        for number, (key, value, headers) in enumerate(content)
    ]
    batch = build(records, codec=codec)
    assert values_of(batch, limit_bytes=LIMIT) == [record.value for record in records]


@given(st.data())
def test_hostile_bodies_end_in_values_or_an_error(data: st.DataObject) -> None:
    batch = build([Record(n, n, b"key", b"value" * n, (("h", b"x"),)) for n in range(20)])
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        strict = [record.value for record in records_of(batch, limit_bytes=LIMIT)]
    except InvalidBatch:
        strict = []
    try:
        values = values_of(batch, limit_bytes=LIMIT)
    except InvalidBatch:
        assert not strict
    else:
        assert not strict or values == strict


def test_empty_batch_is_refused() -> None:
    with pytest.raises(InvalidBatch):
        build_pairs(None, [], timestamp_ms=0)
