"""Which partitions a query reads, from where to where: what the driver works out.

Asks a `Logs`, which is a cluster or a directory of segment files; the rules are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from millstream.errors import DataLost, InvalidOption, UnknownPartition, UnknownTopic
from millstream.errors.spark import LostRange
from millstream.spark.offsets import EARLIEST, LATEST, OffsetRange, Offsets, Place
from millstream.spark.options import Bound, Selection

log = logging.getLogger("millstream.spark")


class Logs(Protocol):
    """Partitions and their offsets."""

    def partitions(self, topics: Iterable[str] | None) -> dict[str, list[int]]:
        """The partitions of topics, or of all. Raises UnknownTopic."""

    def offsets(self, places: Iterable[Place], at: int, *, committed: bool) -> Offsets:
        """EARLIEST, LATEST, or the first offset at or after a time; the end if there is none."""


def select_places(logs: Logs, selection: Selection) -> list[Place]:
    """The partitions that a query reads now. Raises UnknownTopic or UnknownPartition."""
    known = logs.partitions(selection.asked_topics)
    for topic, partition in selection.places:
        if partition not in known[topic]:
            raise UnknownPartition(topic, partition, count=len(known[topic]))
    return [
        (topic, partition)
        for topic, partitions in sorted(known.items())
        for partition in sorted(partitions)
        if selection.takes((topic, partition))
    ]


def resolve(logs: Logs, places: Sequence[Place], bound: Bound, *, committed: bool) -> Offsets:
    """The offset of each partition that a bound stands for. Raises InvalidOption."""
    if bound.everywhere is None:
        _check_complete(places, bound)
        wanted = {place: bound.by_partition[place] for place in places}
    else:
        wanted = dict.fromkeys(places, bound.everywhere)
    found: Offsets = {}
    asked: dict[int, list[Place]] = {}
    for place, number in wanted.items():
        if bound.kind == "offset" and number >= 0:
            found[place] = number
        else:
            asked.setdefault(number, []).append(place)
    for at, some in asked.items():
        found |= logs.offsets(some, at, committed=committed)
    if bound.kind == "time" and not bound.is_lenient:
        _check_in_time(logs, wanted, found, bound, committed=committed)
    return found


def surviving_ranges(
    logs: Logs, start: Offsets, end: Offsets, *, committed: bool, fail_on_data_loss: bool
) -> list[OffsetRange]:
    """What is still there of what a query should read. Raises DataLost unless told otherwise.

    A partition with no start is new to the query, which reads all of it.
    """
    earliest = _starts(logs, sorted(end), committed=committed)
    ranges, lost = [], []
    for topic, partition in sorted(end):
        place = topic, partition
        first, until, there = start.get(place, 0), end[place], earliest.get(place)
        if until == first:
            continue
        if loss := _loss(place, first=first, until=until, there=there):
            lost.append(loss)
        if there is not None:
            # A log that is shorter than it was is another one, and all of it is new.
            first = there if until < first else max(first, there)
            ranges.append(OffsetRange(topic, partition, first, until))
    report_loss(lost, fail=fail_on_data_loss)
    return [each for each in ranges if each.end > each.start]


def existing_places(logs: Logs, takes: Callable[[Place], bool]) -> list[Place]:
    """Those of some partitions that are there, where a topic may have been deleted."""
    known = logs.partitions(None)
    return [
        (topic, each) for topic in sorted(known) for each in known[topic] if takes((topic, each))
    ]


def report_loss(lost: Sequence[LostRange], *, fail: bool) -> None:
    """Raises DataLost, or warns of it."""
    if not lost:
        return
    error = DataLost(ranges=lost)
    if fail:
        raise error
    log.warning("%s", error.summary)


def _starts(logs: Logs, places: Sequence[Place], *, committed: bool) -> Offsets:
    """Where partitions begin; those that are gone are left out."""
    if not places:
        return {}
    try:
        return logs.offsets(places, EARLIEST, committed=committed)
    except UnknownTopic:
        there = existing_places(logs, lambda place: place in places)
        return logs.offsets(there, EARLIEST, committed=committed) if there else {}


def _loss(place: Place, *, first: int, until: int, there: int | None) -> LostRange | None:
    """What a range has lost of a partition that now begins `there`, or is gone."""
    end: int | None = None
    if there is None:
        reason = "the partition is gone"
    elif until < first:
        reason = f"the log now ends at {until}: it was deleted and made anew"
    elif there > first:
        end = min(there, until)
        reason = f"the log now begins at {there}"
    else:
        return None
    topic, partition = place
    return LostRange(topic=topic, partition=partition, start=first, end=end, reason=reason)


def _check_complete(places: Sequence[Place], bound: Bound) -> None:
    given, needed = set(bound.by_partition), set(places)
    if given == needed:
        return
    wrong = [f"{t}-{p} is missing" for t, p in sorted(needed - given)]
    wrong += [f"{t}-{p} is not read" for t, p in sorted(given - needed)]
    raise InvalidOption(
        name=bound.option,
        value="; ".join(wrong),
        expected="a number for each partition that is read, and no other",
    )


def _check_in_time(
    logs: Logs,
    wanted: Offsets,
    found: Offsets,
    bound: Bound,
    *,
    committed: bool,
) -> None:
    latest = logs.offsets(list(found), LATEST, committed=committed)
    late = [f"{t}-{p}" for (t, p), offset in sorted(found.items()) if offset >= latest[t, p]]
    if late:
        raise InvalidOption(
            name=bound.option,
            value=sorted({str(number) for number in wanted.values()}),
            expected=(
                f"a time with a record at or after it, and {', '.join(late)} has none "
                f"(startingOffsetsByTimestampStrategy=latest begins at the end there)"
            ),
        )
