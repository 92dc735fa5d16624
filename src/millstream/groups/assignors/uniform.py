"""The `uniform` assignor: as even as subscriptions allow, and of all such the one nearest to now.

Where all members read the same topics, no two differ by more than one partition. Where they do
not, no partition can be passed on, directly or along a chain of members, so that two members come
closer to each other: that is the most even of all assignments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from millstream.groups.assignors.subscription import (
    Assignment,
    MemberSubscription,
    TopicPartition,
    by_topic,
    still_valid,
)

NAME = "uniform"


def assign(
    members: Mapping[str, MemberSubscription], partition_counts: Mapping[bytes, int]
) -> Assignment:
    if not members:
        return {}
    kept = still_valid(members, partition_counts)
    subscriptions = {subscription.topics for subscription in members.values()}
    if len(subscriptions) == 1:
        [topics] = subscriptions
        _share_equally(kept, _unassigned(kept, topics, partition_counts))
    else:
        _share_by_subscription(kept, members, partition_counts)
    return {member_id: by_topic(partitions) for member_id, partitions in kept.items()}


def _unassigned(
    kept: Mapping[str, list[TopicPartition]],
    topics: frozenset[bytes],
    partition_counts: Mapping[bytes, int],
) -> list[TopicPartition]:
    taken = {partition for partitions in kept.values() for partition in partitions}
    return [
        (topic_id, number)
        for topic_id in sorted(topics)
        for number in range(partition_counts.get(topic_id, 0))
        if (topic_id, number) not in taken
    ]


def _share_equally(kept: dict[str, list[TopicPartition]], unassigned: list[TopicPartition]) -> None:
    """Everyone gets the quota; the one more that some get stays with those who have it already."""
    total = len(unassigned) + sum(map(len, kept.values()))
    quota, extras = divmod(total, len(kept))
    limits = {}
    # Stable sort: of equals the first by id.
    for member_id in sorted(kept, key=lambda m: -len(kept[m])):
        limits[member_id] = quota + (extras > 0)
        extras -= extras > 0
    for member_id, limit in limits.items():
        unassigned.extend(kept[member_id][limit:])
        del kept[member_id][limit:]
    unassigned.sort(reverse=True)
    for member_id, partitions in kept.items():
        while len(partitions) < limits[member_id]:
            partitions.append(unassigned.pop())
    assert not unassigned, "limits add up to all partitions"


def _share_by_subscription(
    kept: dict[str, list[TopicPartition]],
    members: Mapping[str, MemberSubscription],
    partition_counts: Mapping[bytes, int],
) -> None:
    readers: dict[bytes, list[str]] = {}
    for member_id in kept:
        for topic_id in members[member_id].topics:
            readers.setdefault(topic_id, []).append(member_id)
    # Topics that few can read first: the others fill up what these leave uneven.
    for topic_id in sorted(readers, key=lambda t: (len(readers[t]), t)):
        for partition in _unassigned(kept, frozenset((topic_id,)), partition_counts):
            kept[min(readers[topic_id], key=lambda m: (len(kept[m]), m))].append(partition)
    while _pass_one_on(kept, readers):
        pass


def _pass_one_on(kept: dict[str, list[TopicPartition]], readers: Mapping[bytes, list[str]]) -> bool:
    """Take one from a member and give one to another that has at least two less."""
    for giver in sorted(kept, key=lambda m: (-len(kept[m]), m)):
        if chain := _chain_to_poorest(giver, kept, readers):
            for partition, source, receiver in chain:
                kept[source].remove(partition)
                kept[receiver].append(partition)
            return True
    return False


def _chain_to_poorest(
    giver: str, kept: Mapping[str, list[TopicPartition]], readers: Mapping[bytes, list[str]]
) -> list[tuple[TopicPartition, str, str]]:
    """The shortest way to pass a partition from hand to hand to whoever has the fewest."""
    came_by: dict[str, tuple[TopicPartition, str] | None] = {giver: None}
    topics_seen: set[bytes] = set()
    waiting = deque((giver,))
    while waiting:
        source = waiting.popleft()
        for partition in kept[source]:
            if partition[0] in topics_seen:
                continue
            topics_seen.add(partition[0])
            for reader in readers[partition[0]]:
                if reader not in came_by:
                    came_by[reader] = (partition, source)
                    waiting.append(reader)
    poorest = min(came_by, key=lambda m: (len(kept[m]), m))
    if len(kept[giver]) - len(kept[poorest]) < 2:
        return []
    chain = []
    receiver = poorest
    while step := came_by[receiver]:
        chain.append((*step, receiver))
        receiver = step[1]
    return chain
