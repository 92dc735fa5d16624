"""Offsets of many partitions: their form in options and checkpoints, their limits and ranges.

All pure. In JSON, offsets have the form of Spark's own Kafka source: {"topic": {"0": 23}}.
Invariant: ranges made of one span cover it exactly, in order, with no offset twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from pyspark.sql.datasource import InputPartition

from millstream.errors import InvalidOption

EARLIEST = -2
LATEST = -1

Place = tuple[str, int]
Offsets = dict[Place, int]


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """What one task reads: one partition from an offset up to another."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """The form in which Spark keeps offsets in its checkpoint."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        (topic, int(partition)): offset
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }


def parse_by_partition(name: str, text: str, *, least: int) -> Offsets:
    """A number for each partition, as an option has it. Raises InvalidOption."""
    wrong = InvalidOption(
        name=name,
        value=text,
        expected=f'JSON as {{"topic": {{"0": 23, "1": {least}}}}}, with no number below {least}',
    )
    try:
        nested = json.loads(text)
    except ValueError as cause:
        raise wrong from cause
    if not isinstance(nested, dict) or not all(isinstance(v, dict) for v in nested.values()):
        raise wrong
    for partitions in nested.values():
        for partition, number in partitions.items():
            if not partition.isdigit() or type(number) is not int or number < least:
                raise wrong
    return from_json(nested)


def parse_assignment(name: str, text: str) -> list[Place]:
    """The partitions in an option such as {"topic": [0, 1]}. Raises InvalidOption."""
    wrong = InvalidOption(name=name, value=text, expected='JSON as {"topic": [0, 1]}')
    try:
        nested = json.loads(text)
    except ValueError as cause:
        raise wrong from cause
    if not isinstance(nested, dict) or not nested:
        raise wrong
    places: list[Place] = []
    for topic, partitions in nested.items():
        if not isinstance(partitions, list) or not all(type(p) is int for p in partitions):
            raise wrong
        places += [(topic, partition) for partition in partitions]
    return places


def limit_rows(start: Offsets, latest: Offsets, max_rows: int) -> Offsets:
    """How far to read when at most so many offsets are wanted: a fair share of each partition."""
    return limit_share(start, latest, max_rows / max(_total(start, latest), 1))


def limit_bytes(
    start: Offsets, latest: Offsets, max_bytes: int, bytes_per_offset: Mapping[Place, float]
) -> Offsets:
    """How far to read when about so many bytes are wanted."""
    total = sum(
        max(latest[place] - start[place], 0) * bytes_per_offset.get(place, 0.0) for place in latest
    )
    return limit_share(start, latest, max_bytes / max(total, 1.0))


def limit_share(start: Offsets, latest: Offsets, share: float) -> Offsets:
    """A share of what there is of each partition; a little of each, so that none starves."""
    if share >= 1:
        return dict(latest)
    end = {}
    for place, to in latest.items():
        size = to - start[place]
        part = size * share
        # As Spark's own: a part below one would never come to anything.
        end[place] = start[place] + (ceil(part) if part < 1 else int(part)) if size > 0 else to
    return end


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int, max_records: int
) -> list[OffsetRange]:
    """Cut large ranges so that there are about so many tasks, or none has more than so many."""
    pieces = [
        piece for each in ranges if each.end > each.start for piece in _cut(each, max_records)
    ]
    if not pieces or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.end - piece.start for piece in pieces)
    return [
        part
        for piece in pieces
        for part in _divide(
            piece, max(round((piece.end - piece.start) / total * min_partitions), 1)
        )
    ]


def _cut(whole: OffsetRange, max_records: int) -> Sequence[OffsetRange]:
    if max_records <= 0:
        return [whole]
    return _divide(whole, ceil((whole.end - whole.start) / max_records))


def _divide(whole: OffsetRange, count: int) -> list[OffsetRange]:
    size = whole.end - whole.start
    count = min(count, size)
    edges = [whole.start + size * number // count for number in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(edges)]


def _total(start: Offsets, latest: Offsets) -> int:
    return sum(max(to - start[place], 0) for place, to in latest.items())
