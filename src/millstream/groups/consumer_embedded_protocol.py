"""What consumers of the classic protocol hide in the bytes that brokers pass on unread.

A broker reads them only to serve classic members inside a consumer-protocol group, and to move
groups from one kind to the other. Both messages begin with their version; one that is newer than
we know is read as the newest that we know, since new fields come last.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millstream.errors import MalformedMessage
from millstream.groups.consumer_group import TopicsView
from millstream.groups.consumer_partitions import Partitions, gathered, listed
from millstream.protocol.codec import decode_prefix, encode
from millstream.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from millstream.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)

PROTOCOL_TYPE = "consumer"
_NEWEST_VERSION = 3
_VERSION = struct.Struct(">h")


class Subscription(NamedTuple):
    """What a member's join says, with topics by name."""

    version: int
    topics: frozenset[str]
    owned: Mapping[str, Sequence[int]]
    rack_id: str | None


def read_subscription(data: bytes) -> Subscription:
    """Raises MalformedMessage."""
    version = _version_of(data)
    try:
        message, _ = decode_prefix(ConsumerProtocolSubscription, version, data, _VERSION.size)
    except MalformedMessage:
        # Some clients say version 1 and send what version 0 is.
        message, _ = decode_prefix(ConsumerProtocolSubscription, 0, data, _VERSION.size)
    return Subscription(
        version=version,
        topics=frozenset(message.topics),
        owned={part.topic: part.partitions for part in message.owned_partitions},
        rack_id=message.rack_id,
    )


def read_assignment(data: bytes, topics: TopicsView) -> Partitions:
    """By topic id; of topics that exist. Empty bytes assign nothing. Raises MalformedMessage."""
    return by_topic_id(named_assignment(data), topics)


def named_assignment(data: bytes) -> dict[str, Sequence[int]]:
    """By the name of the topic, whether it exists or not. Raises MalformedMessage."""
    if not data:
        return {}
    version = _version_of(data)
    message, _ = decode_prefix(ConsumerProtocolAssignment, version, data, _VERSION.size)
    return {part.topic: part.partitions for part in message.assigned_partitions}


def write_assignment(partitions: Partitions, topics: TopicsView, *, version: int) -> bytes:
    """As `read_assignment` takes it. Topics that no longer exist have no name and are left out."""
    names = {facts.topic_id: name for name, facts in topics.items()}
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=names[topic_id], partitions=numbers)
            for topic_id, numbers in listed(partitions)
            if topic_id in names
        ]
    )
    return _VERSION.pack(version) + encode(message, version)


def by_topic_id(named: Mapping[str, Sequence[int]], topics: TopicsView) -> Partitions:
    return gathered(
        (topics[name].topic_id, numbers) for name, numbers in named.items() if name in topics
    )


def _version_of(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise MalformedMessage("an embedded message of a consumer begins with its version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedMessage(f"an embedded message of a consumer has version {version}")
    return min(int(version), _NEWEST_VERSION)
