"""Moves of a living group between the classic and the consumer protocol, and who serves it.

A classic group that a member of the consumer protocol joins becomes a consumer group; its members
go on speaking the classic protocol, inside of it. A consumer group whose members all speak the
classic protocol becomes a classic group, which rebalances. Which moves are made is a setting.
Groups without members just change their kind. Offsets stay in any case.

Invariant: the records of a move take everything of the old kind away and bring everything of the
new one; they are one outcome, so that a crash leaves the one or the other.
"""

from __future__ import annotations

from millstream.errors import MillstreamError, UnknownGroup, UnknownMember
from millstream.groups import classic_transitions as classic
from millstream.groups import consumer_classic_members as members
from millstream.groups import consumer_transitions as consumer
from millstream.groups.classic_group import ClassicGroup, ClassicState, new_group
from millstream.groups.classic_rebalance import ClassicOutcome
from millstream.groups.commands import Heartbeat, Join, Leave, Left, Sync
from millstream.groups.consumer_commands import ConsumerHeartbeat
from millstream.groups.consumer_group import JOIN_EPOCH, ConsumerGroup, TopicsView
from millstream.groups.consumer_group import deadline_of as consumer_deadline_of
from millstream.groups.consumer_records import ConsumerRecord, records_between
from millstream.groups.consumer_transitions import ConsumerOutcome
from millstream.groups.consumer_validation import check_request
from millstream.groups.group_records import ClassicRecord, GroupTombstone
from millstream.groups.migration_downgrade import downgraded
from millstream.groups.migration_upgrade import upgraded
from millstream.groups.outcome import Outcome, Reply
from millstream.settings.groups import GroupSettings

AnyGroup = ClassicGroup | ConsumerGroup
AnyOutcome = Outcome[AnyGroup, ClassicRecord | ConsumerRecord]


def consumer_heartbeat(
    group: AnyGroup | None,
    command: ConsumerHeartbeat,
    now_ms: int,
    *,
    group_id: str,
    topics: TopicsView,
    settings: GroupSettings,
) -> AnyOutcome:
    """A member of the consumer protocol speaks, to whatever group there is."""
    if isinstance(group, ConsumerGroup):
        outcome = consumer.heartbeat(group, command, now_ms, topics=topics, settings=settings)
        return _settled(outcome, now_ms, topics=topics, settings=settings)
    try:
        check_request(command)
        before, replies = _as_consumer_group(
            group, command, now_ms, group_id=group_id, topics=topics, settings=settings
        )
    except MillstreamError as error:
        return Outcome(group, (), (Reply(command.ticket, error),))
    outcome = consumer.heartbeat(before, command, now_ms, topics=topics, settings=settings)
    if isinstance(outcome.replies[0].value, MillstreamError):
        return Outcome(group, (), outcome.replies)
    records: tuple[ClassicRecord | ConsumerRecord, ...] = records_between(None, outcome.group)
    if group is not None:
        records = (GroupTombstone(group_id), *records)
    return Outcome(outcome.group, records, (*replies, *outcome.replies))


def join(
    group: AnyGroup | None,
    command: Join,
    now_ms: int,
    *,
    group_id: str,
    topics: TopicsView,
    settings: GroupSettings,
) -> AnyOutcome:
    """A member of the classic protocol joins whatever group there is."""
    if isinstance(group, ConsumerGroup) and group.members:
        # Not a moment to move, even if this was the last that kept the group: the reply speaks of
        # the group as it is.
        return _widened(members.join(group, command, now_ms, topics=topics, settings=settings))
    if isinstance(group, ClassicGroup):
        return _widened(classic.join(group, command, now_ms, settings))
    if command.member_id:
        return Outcome(group, (), (Reply(command.ticket, UnknownMember(command.member_id)),))
    outcome = classic.join(new_group(group_id, now_ms), command, now_ms, settings)
    if group is None or outcome.group is None:
        return Outcome(outcome.group or group, outcome.records, outcome.replies)
    records = (*records_between(group, None), *outcome.records)
    return Outcome(outcome.group, records, outcome.replies)


def sync(
    group: AnyGroup | None,
    command: Sync,
    now_ms: int,
    *,
    topics: TopicsView,
    settings: GroupSettings,
) -> AnyOutcome:
    if isinstance(group, ConsumerGroup):
        outcome = members.sync(group, command, now_ms, topics=topics)
        return _settled(outcome, now_ms, topics=topics, settings=settings)
    if group is None:
        return Outcome(None, (), (Reply(command.ticket, UnknownMember(command.member_id)),))
    return _widened(classic.sync(group, command, now_ms, settings))


def heartbeat(
    group: AnyGroup | None,
    command: Heartbeat,
    now_ms: int,
    *,
    topics: TopicsView,
    settings: GroupSettings,
) -> AnyOutcome:
    """Of a classic member. Only in a classic group does it never bring a deadline closer."""
    if isinstance(group, ConsumerGroup):
        outcome = members.heartbeat(group, command, now_ms, topics=topics)
        return _settled(outcome, now_ms, topics=topics, settings=settings)
    if group is None:
        return Outcome(None, (), (Reply(command.ticket, UnknownMember(command.member_id)),))
    return _widened(classic.heartbeat(group, command, now_ms))


def leave(
    group: AnyGroup | None,
    command: Leave,
    now_ms: int,
    *,
    topics: TopicsView,
    settings: GroupSettings,
) -> AnyOutcome:
    if isinstance(group, ConsumerGroup):
        outcome = members.leave(group, command)
        return _settled(outcome, now_ms, topics=topics, settings=settings)
    if group is None:
        results = tuple(UnknownMember(leaver.member_id) for leaver in command.leavers)
        return Outcome(None, (), (Reply(command.ticket, Left(results)),))
    return _widened(classic.leave(group, command, now_ms, settings))


def tick(
    group: AnyGroup, now_ms: int, *, topics: TopicsView, settings: GroupSettings
) -> AnyOutcome:
    if isinstance(group, ConsumerGroup):
        outcome = consumer.tick(group, now_ms)
        return _settled(outcome, now_ms, topics=topics, settings=settings)
    return _widened(classic.tick(group, now_ms, settings))


def deadline_of(group: AnyGroup) -> int | None:
    """When something happens by itself."""
    if isinstance(group, ConsumerGroup):
        return consumer_deadline_of(group)
    return classic.deadline_of(group)


def _as_consumer_group(
    group: ClassicGroup | None,
    command: ConsumerHeartbeat,
    now_ms: int,
    *,
    group_id: str,
    topics: TopicsView,
    settings: GroupSettings,
) -> tuple[ConsumerGroup, tuple[Reply, ...]]:
    """The group to join, and what members of the old one that wait for an answer are told."""
    if command.member_epoch != JOIN_EPOCH:
        # Whoever thinks it is a member finds out, and joins again.
        raise UnknownMember(command.member_id)
    if group is None or group.state is ClassicState.EMPTY:
        return ConsumerGroup(group_id=group_id), ()
    if settings.consumer_migration_policy not in {"upgrade", "bidirectional"}:
        raise UnknownGroup(group_id)
    return upgraded(group, now_ms, topics=topics, settings=settings)


def _settled(
    outcome: ConsumerOutcome, now_ms: int, *, topics: TopicsView, settings: GroupSettings
) -> AnyOutcome:
    """Move a group back to the classic protocol when only that is spoken in it."""
    group = outcome.group
    if (
        group is None
        or not group.members
        or not all(member.speaks_classic for member in group.members.values())
        or settings.consumer_migration_policy not in {"downgrade", "bidirectional"}
    ):
        return _widened(outcome)
    move = downgraded(group, now_ms, topics=topics, settings=settings)
    # What the transition brought is taken away again before it is stored; tombstones of what was
    # never there do no harm, and what it took away stays away.
    records = (*outcome.records, *records_between(group, None), *move.records)
    return Outcome(move.group, records, (*outcome.replies, *move.replies))


def _widened(outcome: ConsumerOutcome | ClassicOutcome) -> AnyOutcome:
    """The same, as one of either kind."""
    return Outcome(outcome.group, outcome.records, outcome.replies)
