"""Which topics the members of a classic group subscribe to.

Only consumers say so in a way that we know: protocol type `consumer`, whose metadata begins with
a version and the topics, whatever the version (ConsumerProtocolSubscription).
"""

from __future__ import annotations

from millstream.errors import MalformedMessage
from millstream.groups.classic_group import ClassicGroup, ClassicState
from millstream.protocol.codec import decode_prefix
from millstream.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_BYTES = 2


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """All topics that members subscribe to; None when there is no telling."""
    if group.state is ClassicState.EMPTY:
        return frozenset()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        # Before its first generation a group has no protocol, and any will do.
        name = group.protocol_name or member.protocols[0].name
        parsed = topics_in(member.metadata(name))
        if parsed is None:
            return None
        topics |= parsed
    return frozenset(topics)


def topics_in(metadata: bytes) -> frozenset[str] | None:
    """The topics of one member's metadata; None when it is not what a consumer sends."""
    try:
        # Every version begins like the first one.
        parsed, _ = decode_prefix(ConsumerProtocolSubscription, 0, metadata, _VERSION_BYTES)
    except MalformedMessage:
        return None
    return frozenset(parsed.topics)
