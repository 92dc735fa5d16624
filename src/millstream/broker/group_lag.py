"""How far a group is behind, in every partition of the topics that it reads.

A group reads a topic if it has committed an offset of it, or if a member has a partition of it. A
partition of such a topic without a committed offset was never read: all that it holds is lag.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from millstream.broker.partition import Partition
from millstream.broker.topics import Topics
from millstream.errors import UnknownTopic
from millstream.groups.group_records import Committed
from millstream.groups.offsets import TopicPartition


class PartitionLag(NamedTuple):
    """A group in one partition."""

    topic: str
    partition: int
    committed: Committed | None
    """None where the group has never committed an offset."""
    end_offset: int | None
    """None where the partition no longer exists."""
    lag: int | None


def partition_lags(
    topics: Topics,
    committed: Mapping[TopicPartition, Committed],
    *,
    assigned: Collection[str] = (),
    end_of: Callable[[Partition], int],
) -> Iterator[PartitionLag]:
    """In order of topic and partition; `assigned` are topics that members have partitions of."""
    numbers_of: dict[str, set[int]] = {name: set() for name in assigned}
    for topic, number in committed:
        numbers_of.setdefault(topic, set()).add(number)
    for name, numbers in sorted(numbers_of.items()):
        partitions = _partitions(topics, name)
        for number in sorted(numbers.union(range(len(partitions)))):
            known = committed.get((name, number))
            if number >= len(partitions) or partitions[number].failure is not None:
                yield PartitionLag(name, number, known, None, None)
                continue
            partition = partitions[number]
            end_offset = end_of(partition)
            begin = partition.log.start_offset if known is None else known.offset
            yield PartitionLag(name, number, known, end_offset, max(end_offset - begin, 0))


def _partitions(topics: Topics, name: str) -> list[Partition]:
    try:
        return list(topics.get(name).partitions)
    except UnknownTopic:
        return []
