"""What the members of a consumer group subscribe to, and the target assignment that follows.

Invariant: the target is for an epoch that the group has reached, and gives each partition of a
topic that exists and is subscribed to, to exactly one member that subscribes to it.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b

from millstream.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, MemberSubscription
from millstream.groups.consumer_group import ConsumerGroup, Member, TopicsView, target_of
from millstream.groups.consumer_regex import compiled


def refreshed(group: ConsumerGroup, topics: TopicsView, *, is_changed: bool) -> ConsumerGroup:
    """A new epoch if members' subscriptions changed, or the topics that they subscribe to did."""
    if group.topics_seen is topics and not is_changed:
        return group
    names = frozenset[str]().union(*_subscriptions(group, topics).values())
    metadata_hash = _hash(names, topics)
    is_changed = is_changed or metadata_hash != group.metadata_hash
    return replace(
        group,
        epoch=group.epoch + is_changed,
        metadata_hash=metadata_hash,
        topics_seen=topics,
    )


def targeted(group: ConsumerGroup, topics: TopicsView) -> ConsumerGroup:
    """With the target assignment of its epoch."""
    if group.target_epoch == group.epoch:
        return group
    subscriptions = _subscriptions(group, topics)
    members = {
        member_id: MemberSubscription(
            topics=frozenset(topics[name].topic_id for name in names),
            current=target_of(group, member_id),
        )
        for member_id, names in subscriptions.items()
    }
    counts = {
        topics[name].topic_id: topics[name].partitions
        for names in set(subscriptions.values())
        for name in names
    }
    target = ASSIGNORS[assignor_of(group)](members, counts)
    return replace(group, target=target, target_epoch=group.epoch)


def assignor_of(group: ConsumerGroup) -> str:
    """The one that most members ask for."""
    votes = Counter(m.metadata.assignor for m in group.members.values() if m.metadata.assignor)
    return min(votes, key=lambda name: (-votes[name], name), default=DEFAULT_ASSIGNOR)


def subscribed_topics(group: ConsumerGroup, topics: TopicsView) -> frozenset[str]:
    """Names of the topics that exist and that some member reads."""
    return frozenset[str]().union(*_subscriptions(group, topics).values())


def _subscriptions(group: ConsumerGroup, topics: TopicsView) -> Mapping[str, frozenset[str]]:
    """For each member, the names of topics that exist and that it reads."""
    regexes = {member.metadata.regex for member in group.members.values()} - {None, ""}
    matching = {
        text: frozenset(
            name for name, facts in topics.items() if not facts.is_internal and regex.chooses(name)
        )
        for text, regex in ((text, compiled(text)) for text in regexes if text)
    }
    return {
        member_id: _subscription(member, topics, matching)
        for member_id, member in group.members.items()
    }


def _subscription(
    member: Member, topics: TopicsView, matching: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    named = frozenset(name for name in member.metadata.topics if name in topics)
    return named | matching.get(member.metadata.regex or "", frozenset())


def _hash(names: frozenset[str], topics: TopicsView) -> int:
    """Of all that a target assignment depends on in the topics; the same in every process."""
    digest = blake2b(digest_size=8)
    for name in sorted(names):
        encoded = name.encode()
        topic_id, partitions, _ = topics[name]
        digest.update(struct.pack(">I", len(encoded)) + encoded + topic_id)
        digest.update(struct.pack(">I", partitions))
    return int.from_bytes(digest.digest(), "big", signed=True)
