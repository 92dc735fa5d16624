"""Offsets of many partitions: forms, limits and ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidOption
from millstream.spark.offsets import (
    EARLIEST,
    OffsetRange,
    from_json,
    limit_bytes,
    limit_rows,
    parse_assignment,
    parse_by_partition,
    split_ranges,
    to_json,
)

PLACES = st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 20))


@given(st.dictionaries(PLACES, st.integers(0, 2**62)))
def test_offsets_survive_the_checkpoint(offsets: dict[tuple[str, int], int]) -> None:
    assert from_json(to_json(offsets)) == offsets


def test_offsets_have_the_form_of_sparks_kafka_source() -> None:
    assert to_json({("t", 1): 5, ("t", 0): 3}) == {"t": {"0": 3, "1": 5}}


@pytest.mark.parametrize(
    "text", ["", "[]", "5", '{"t": [0]}', '{"t": {"x": 1}}', '{"t": {"0": 1.5}}']
)
def test_malformed_offsets_are_refused_by_the_name_of_their_option(text: str) -> None:
    with pytest.raises(InvalidOption, match="startingOffsets"):
        parse_by_partition("startingOffsets", text, least=EARLIEST)


@pytest.mark.parametrize("text", ["", "{}", '{"t": 0}', '{"t": ["0"]}'])
def test_malformed_assignment_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="assign"):
        parse_assignment("assign", text)


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=8),
    st.integers(1, 5000),
)
def test_limit_is_shared_and_every_partition_gets_on(
    sizes: list[tuple[int, int]], max_rows: int
) -> None:
    start = {("t", n): at for n, (at, _) in enumerate(sizes)}
    latest = {("t", n): at + size for n, (at, size) in enumerate(sizes)}
    end = limit_rows(start, latest, max_rows)
    assert all(start[place] <= end[place] <= latest[place] for place in start)
    assert all(end[place] > start[place] for place in start if latest[place] > start[place])
    # One row at least of each, however small the limit.
    assert sum(end[place] - start[place] for place in start) <= max(max_rows, 0) + len(sizes)


def test_partition_that_was_made_anew_is_not_limited() -> None:
    assert limit_rows({("t", 0): 100, ("t", 1): 0}, {("t", 0): 7, ("t", 1): 50}, 10) == {
        ("t", 0): 7,
        ("t", 1): 10,
    }


def test_bytes_are_limited_by_the_size_of_records() -> None:
    start = {("t", 0): 0, ("t", 1): 0}
    latest = {("t", 0): 1000, ("t", 1): 1000}
    end = limit_bytes(start, latest, 11_000, {("t", 0): 10.0, ("t", 1): 100.0})
    assert end == {("t", 0): 100, ("t", 1): 100}


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6),
    st.integers(0, 20),
    st.integers(0, 50),
)
def test_pieces_cover_ranges_exactly(
    spans: list[tuple[int, int]], min_partitions: int, max_records: int
) -> None:
    ranges = [OffsetRange("t", n, at, at + size) for n, (at, size) in enumerate(spans)]
    pieces = split_ranges(ranges, min_partitions=min_partitions, max_records=max_records)
    wanted = [(each.partition, n) for each in ranges for n in range(each.start, each.end)]
    assert [(each.partition, n) for each in pieces for n in range(each.start, each.end)] == wanted
    assert all(each.end > each.start for each in pieces)
    if max_records:
        assert all(each.end - each.start <= max_records for each in pieces)


def test_large_range_is_split_to_the_wanted_number_of_tasks() -> None:
    ranges = [OffsetRange("t", 0, 0, 1000), OffsetRange("t", 1, 0, 10)]
    assert len(split_ranges(ranges, min_partitions=8, max_records=0)) == 9
