"""The `range` assignor: of each topic every reader gets one run of neighbouring partitions.

Topics with the same readers and as many partitions are shared out alike: who has partition 3 of
one has partition 3 of the other, as joins need it. Readers stand in the order of what they have
now, newcomers last, so that runs move as little as runs can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.groups.assignors.subscription import (
    Assignment,
    MemberSubscription,
    TopicPartition,
    still_valid,
)

NAME = "range"


def assign(
    members: Mapping[str, MemberSubscription], partition_counts: Mapping[bytes, int]
) -> Assignment:
    assignment: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    kept = still_valid(members, partition_counts)
    for (readers, count), topics in _alike(members, partition_counts).items():
        quota, extras = divmod(count, len(readers))
        start = 0
        for place, member_id in enumerate(_ordered(readers, topics, kept)):
            end = start + quota + (place < extras)
            if end > start:
                run = frozenset(range(start, end))
                assignment[member_id].update(dict.fromkeys(topics, run))
            start = end
    return assignment


def _alike(
    members: Mapping[str, MemberSubscription], partition_counts: Mapping[bytes, int]
) -> Mapping[tuple[frozenset[str], int], set[bytes]]:
    """Topics by who reads them and how many partitions they have."""
    readers: dict[bytes, list[str]] = {}
    for member_id, (topics, _) in members.items():
        for topic_id in topics:
            readers.setdefault(topic_id, []).append(member_id)
    alike: dict[tuple[frozenset[str], int], set[bytes]] = {}
    for topic_id, names in readers.items():
        if count := partition_counts.get(topic_id, 0):
            alike.setdefault((frozenset(names), count), set()).add(topic_id)
    return alike


def _ordered(
    readers: Iterable[str], topics: set[bytes], kept: Mapping[str, list[TopicPartition]]
) -> list[str]:
    """By the lowest partition that each has of any of the topics."""

    def place(member_id: str) -> tuple[bool, int, str]:
        numbers = [number for topic_id, number in kept[member_id] if topic_id in topics]
        return not numbers, min(numbers, default=0), member_id

    return sorted(readers, key=place)
