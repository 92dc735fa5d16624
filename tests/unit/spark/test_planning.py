"""Which ranges a query reads, against logs that are made up."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from millstream.errors import DataLost, InvalidOption, UnknownPartition, UnknownTopic
from millstream.spark.offsets import EARLIEST, LATEST, OffsetRange, Offsets, Place
from millstream.spark.options import Bound, Selection
from millstream.spark.planning import resolve, select_places, surviving_ranges


class MadeUpLogs:
    """Partitions that reach from one offset to another, with a record each second."""

    def __init__(self, spans: dict[Place, tuple[int, int]]) -> None:
        self.spans = spans

    def partitions(self, topics: Iterable[str] | None) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic, partition in self.spans:
            if topics is None or topic in topics:
                found.setdefault(topic, []).append(partition)
        for topic in topics or ():
            if topic not in found:
                raise UnknownTopic(topic)
        return found

    def offsets(self, places: Iterable[Place], at: int, *, committed: bool) -> Offsets:
        found = {}
        for place in places:
            if place not in self.spans:
                raise UnknownTopic(place[0])
            start, end = self.spans[place]
            known = {EARLIEST: start, LATEST: end}
            found[place] = known.get(at, min(max(at // 1000, start), end))
        return found


LOGS = MadeUpLogs({("a", 0): (0, 100), ("a", 1): (50, 80), ("b", 0): (0, 0)})
A = [("a", 0), ("a", 1)]


def survivors(start: Offsets, end: Offsets, *, fail: bool = True) -> list[OffsetRange]:
    return surviving_ranges(LOGS, start, end, committed=True, fail_on_data_loss=fail)


def test_partitions_are_selected_by_name_pattern_and_number() -> None:
    assert select_places(LOGS, Selection(topics=("a",))) == A
    assert select_places(LOGS, Selection(pattern="[ab]")) == [*A, ("b", 0)]
    assert select_places(LOGS, Selection(places=(("a", 1),))) == [("a", 1)]


def test_absent_topic_and_partition_are_errors() -> None:
    with pytest.raises(UnknownTopic):
        select_places(LOGS, Selection(topics=("c",)))
    with pytest.raises(UnknownPartition):
        select_places(LOGS, Selection(places=(("a", 7),)))


def test_offsets_times_and_words_are_resolved() -> None:
    by_partition = Bound(by_partition={("a", 0): 7, ("a", 1): EARLIEST}, option="startingOffsets")
    assert resolve(LOGS, A, by_partition, committed=True) == {("a", 0): 7, ("a", 1): 50}
    at = Bound(kind="time", everywhere=60_000)
    assert resolve(LOGS, A, at, committed=True) == {("a", 0): 60, ("a", 1): 60}


def test_offsets_for_too_few_or_too_many_partitions_are_refused() -> None:
    bound = Bound(by_partition={("a", 0): 7, ("b", 0): 1}, option="startingOffsets")
    with pytest.raises(InvalidOption, match=r"a-1 is missing.*b-0 is not read"):
        resolve(LOGS, A, bound, committed=True)


def test_time_after_the_last_record_is_an_error_unless_latest_is_wanted() -> None:
    strict = Bound(kind="time", everywhere=90_000, option="startingTimestamp", is_lenient=False)
    with pytest.raises(InvalidOption, match="a-1 has none"):
        resolve(LOGS, A, strict, committed=True)


def test_lost_front_is_an_error_that_says_what(caplog: pytest.LogCaptureFixture) -> None:
    start, end = {("a", 0): 10, ("a", 1): 20}, {("a", 0): 90, ("a", 1): 80}
    with pytest.raises(DataLost, match="a-1 from offset 20 to 49"):
        survivors(start, end)
    with caplog.at_level(logging.WARNING):
        ranges = survivors(start, end, fail=False)
    assert ranges == [OffsetRange("a", 0, 10, 90), OffsetRange("a", 1, 50, 80)]
    assert "a-1 from offset 20 to 49" in caplog.text


def test_new_partition_is_read_from_its_first_offset() -> None:
    assert survivors({}, {("a", 0): 5}) == [OffsetRange("a", 0, 0, 5)]
    with pytest.raises(DataLost, match="a-1 from offset 0 to 49"):
        survivors({}, {("a", 1): 60})


def test_partition_that_is_gone_or_made_anew_is_lost() -> None:
    with pytest.raises(DataLost, match="c-0 from offset 3 on"):
        survivors({("c", 0): 3}, {("c", 0): 9})
    assert survivors({("c", 0): 3}, {("c", 0): 9}, fail=False) == []
    with pytest.raises(DataLost, match="made anew"):
        survivors({("a", 0): 300}, {("a", 0): 100})
    assert survivors({("a", 0): 300}, {("a", 0): 100}, fail=False) == [OffsetRange("a", 0, 0, 100)]


def test_nothing_to_read_asks_nothing() -> None:
    assert survivors({("a", 0): 5}, {("a", 0): 5}) == []
    assert survivors({}, {}) == []
