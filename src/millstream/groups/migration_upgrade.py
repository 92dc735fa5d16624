"""From a classic group to a consumer group.

Members keep their ids, their generation as epoch, and what they were assigned; all is as if the
broker had assigned it. Whoever waits to join or sync is told to join again, and then is served as
a classic member of a consumer group.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.errors import GroupFull, MalformedMessage, RebalanceInProgress, UnknownGroup
from millstream.groups import classic_group
from millstream.groups.classic_group import ClassicGroup
from millstream.groups.consumer_embedded_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    by_topic_id,
    read_assignment,
    read_subscription,
)
from millstream.groups.consumer_group import (
    ClassicMembership,
    ConsumerGroup,
    CurrentAssignment,
    Member,
    MemberMetadata,
    TopicsView,
)
from millstream.groups.consumer_partitions import NO_PARTITIONS, Partitions, difference, union
from millstream.groups.outcome import Reply
from millstream.settings.groups import GroupSettings


def upgraded(
    group: ClassicGroup, now_ms: int, *, topics: TopicsView, settings: GroupSettings
) -> tuple[ConsumerGroup, tuple[Reply, ...]]:
    """Raises UnknownGroup where members do not say what they read in a way that we can read."""
    if group.protocol_type != PROTOCOL_TYPE:
        raise UnknownGroup(group.group_id)
    if len(group.members) >= settings.max_size:
        raise GroupFull(group=group.group_id, limit=settings.max_size)
    try:
        members = _members(group, now_ms, topics)
    except MalformedMessage as error:
        raise UnknownGroup(group.group_id) from error
    waiting = [
        ticket
        for member in group.members.values()
        for ticket in (member.join_ticket, member.sync_ticket)
        if ticket is not None
    ]
    return (
        ConsumerGroup(
            group_id=group.group_id,
            epoch=group.generation,
            members={member.member_id: member for member in members},
            target_epoch=group.generation,
            target={member.member_id: member.current.assigned for member in members},
        ),
        tuple(Reply(ticket, RebalanceInProgress(group.group_id)) for ticket in waiting),
    )


def _members(group: ClassicGroup, now_ms: int, topics: TopicsView) -> list[Member]:
    subscriptions = {
        m: read_subscription(old.metadata(group.protocol_name or old.protocols[0].name))
        for m, old in group.members.items()
    }
    held = _held(group, subscriptions, topics)
    return [
        Member(
            member_id=member_id,
            metadata=_metadata(old, subscriptions[member_id]),
            current=CurrentAssignment(
                epoch=group.generation,
                previous_epoch=group.generation,
                assigned=held[member_id],
            ),
            session_deadline_ms=now_ms + old.session_timeout_ms,
        )
        for member_id, old in group.members.items()
    ]


def _held(
    group: ClassicGroup, subscriptions: Mapping[str, Subscription], topics: TopicsView
) -> Mapping[str, Partitions]:
    """What each member may have: what it was assigned last, and what it had when it last joined.

    The second is for members that give partitions up only once they have heard of their
    assignment, and then join again: they may not have come to that. A leader can assign what it
    likes, also one partition to two; here the first has it.
    """
    claimed = NO_PARTITIONS
    held: dict[str, Partitions] = dict.fromkeys(group.members, NO_PARTITIONS)
    claims = [(m, read_assignment(old.assignment, topics)) for m, old in group.members.items()]
    claims += [(m, by_topic_id(said.owned, topics)) for m, said in subscriptions.items()]
    for member_id, partitions in claims:
        free = difference(partitions, claimed)
        claimed = union(claimed, free)
        held[member_id] = union(held[member_id], free)
    return held


def _metadata(old: classic_group.Member, subscription: Subscription) -> MemberMetadata:
    return MemberMetadata(
        instance_id=old.instance_id,
        rack_id=subscription.rack_id,
        client_id=old.client_id,
        client_host=old.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        classic=ClassicMembership(old.session_timeout_ms, old.protocols),
    )
