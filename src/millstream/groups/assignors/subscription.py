"""What an assignor is told of a member, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Assignment = Mapping[str, Mapping[bytes, frozenset[int]]]
"""For each member: partitions by topic id, without topics of which it has none."""

TopicPartition = tuple[bytes, int]


class MemberSubscription(NamedTuple):
    topics: frozenset[bytes]
    """Ids of the topics that it reads."""
    current: Mapping[bytes, frozenset[int]]
    """What it was to have until now, by topic id. It may name what is gone."""


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[bytes, frozenset[int]]:
    found: dict[bytes, set[int]] = {}
    for topic_id, number in partitions:
        found.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


def still_valid(
    members: Mapping[str, MemberSubscription], partition_counts: Mapping[bytes, int]
) -> dict[str, list[TopicPartition]]:
    """What each member has and may keep, sorted; of two that claim a partition the first has it."""
    claimed: set[TopicPartition] = set()
    kept: dict[str, list[TopicPartition]] = {}
    for member_id in sorted(members):
        topics, current = members[member_id]
        mine = {
            (topic_id, number)
            for topic_id, numbers in current.items()
            if topic_id in topics
            for number in numbers
            if 0 <= number < partition_counts.get(topic_id, 0)
        }
        mine -= claimed
        claimed |= mine
        kept[member_id] = sorted(mine)
    return kept
