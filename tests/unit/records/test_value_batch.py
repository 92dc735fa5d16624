"""Batches of bare values are those that the builder of any batch makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidBatch
from millstream.records import Record, build, records_of, validate_produced
from millstream.records.value_batch import VALUE_OVERHEAD_BYTES, build_values


@given(
    values=st.lists(st.binary(max_size=300), min_size=1, max_size=200),
    timestamp_ms=st.integers(0, 2**62),
)
def test_a_batch_is_the_one_that_build_makes(values: list[bytes], timestamp_ms: int) -> None:
    records = [Record(number, timestamp_ms, None, value) for number, value in enumerate(values)]
    batch = build_values(values, timestamp_ms=timestamp_ms)
    assert batch == build(records)
    assert list(records_of(batch, limit_bytes=1 << 30)) == records


@pytest.mark.parametrize("size", [0, 57, 58, 63, 64, 8191, 8192, 1_048_575, 1_048_576])
@pytest.mark.parametrize("count", [1, 64, 65])
def test_numbers_of_every_length_are_right(size: int, count: int) -> None:
    values = [b"x" * size] * count
    batch = build_values(values, timestamp_ms=7)
    validate_produced(batch)
    assert batch == build([Record(n, 7, None, value) for n, value in enumerate(values)])


def test_many_values_take_no_more_than_the_overhead_that_is_allowed_for() -> None:
    values = [b""] * 100_000
    empty = len(build_values([b""], timestamp_ms=0)) - 7
    assert len(build_values(values, timestamp_ms=0)) <= empty + VALUE_OVERHEAD_BYTES * len(values)


def test_no_values_are_no_batch() -> None:
    with pytest.raises(InvalidBatch):
        build_values([], timestamp_ms=0)
