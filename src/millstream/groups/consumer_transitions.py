"""What happens to a consumer-protocol group: heartbeats, and the passing of time.

All transitions take a group and give an Outcome; none changes anything, and none raises: what is
refused leaves the group as it was, and the reply is the error. Members that still speak the classic
protocol are in `consumer_classic_members`.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import GroupFull, InvalidRequest, MillstreamError, UnknownMember
from millstream.groups.consumer_commands import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.groups.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    CurrentAssignment,
    Member,
    MemberState,
    TopicsView,
    static_member,
    with_member,
    with_member_replaced,
    without_members,
)
from millstream.groups.consumer_partitions import NO_PARTITIONS
from millstream.groups.consumer_reconciliation import reconciled
from millstream.groups.consumer_records import ConsumerRecord, records_between
from millstream.groups.consumer_target import refreshed, targeted
from millstream.groups.consumer_validation import (
    check_epoch,
    check_released,
    check_request,
    known_member,
)
from millstream.groups.outcome import Outcome, Reply
from millstream.settings.groups import GroupSettings

ConsumerOutcome = Outcome[ConsumerGroup, ConsumerRecord]


def heartbeat(
    group: ConsumerGroup,
    command: ConsumerHeartbeat,
    now_ms: int,
    *,
    topics: TopicsView,
    settings: GroupSettings,
) -> ConsumerOutcome:
    """Let a member join, go on or leave. A group that does not exist yet is an empty one."""
    try:
        check_request(command)
        if command.member_epoch < JOIN_EPOCH:
            after, reply = _leave(group, command, now_ms, settings)
        else:
            after, reply = _go_on(group, command, now_ms, topics=topics, settings=settings)
    except MillstreamError as error:
        return Outcome(group, (), (Reply(command.ticket, error),))
    records = records_between(group if group.epoch else None, after)
    return Outcome(after, records, (Reply(command.ticket, reply),))


def tick(group: ConsumerGroup, now_ms: int) -> ConsumerOutcome:
    """Remove members that were silent, or slow to do as they were told, for too long."""
    late = frozenset(m.member_id for m in group.members.values() if _is_late(m, now_ms))
    if not late:
        return Outcome(group)
    after = without_members(group, late)
    return Outcome(after, records_between(group, after))


def deleted(group: ConsumerGroup) -> ConsumerOutcome:
    """Forget a group without members."""
    assert not group.members, "a group is deleted once its members are gone"
    return Outcome(None, records_between(group, None))


def _is_late(member: Member, now_ms: int) -> bool:
    if member.session_deadline_ms <= now_ms:
        return True
    return member.rebalance_deadline_ms is not None and member.rebalance_deadline_ms <= now_ms


def _leave(
    group: ConsumerGroup, command: ConsumerHeartbeat, now_ms: int, settings: GroupSettings
) -> tuple[ConsumerGroup, ConsumerHeartbeatReply]:
    member = known_member(group, command.member_id, command.instance_id)
    if command.member_epoch == LEAVE_EPOCH:
        after = without_members(group, frozenset((member.member_id,)))
    else:
        after = with_member(group, _left_for_now(member, now_ms, settings))
    reply = ConsumerHeartbeatReply(
        member_id=member.member_id,
        member_epoch=command.member_epoch,
        heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        assignment=None,
    )
    return after, reply


def _left_for_now(member: Member, now_ms: int, settings: GroupSettings) -> Member:
    """Its partitions wait for its return for the length of a session."""
    return replace(
        member,
        current=CurrentAssignment(
            epoch=STATIC_LEAVE_EPOCH,
            previous_epoch=STATIC_LEAVE_EPOCH,
            assigned=member.current.assigned,
        ),
        session_deadline_ms=now_ms + settings.consumer_session_timeout_ms,
        rebalance_deadline_ms=None,
    )


def _go_on(
    group: ConsumerGroup,
    command: ConsumerHeartbeat,
    now_ms: int,
    *,
    topics: TopicsView,
    settings: GroupSettings,
) -> tuple[ConsumerGroup, ConsumerHeartbeatReply]:
    before = _joining(group, command, settings) if command.member_epoch == JOIN_EPOCH else None
    if before is None:
        member = known_member(group, command.member_id, command.instance_id)
        check_epoch(member, command)
    else:
        group, member = before
    is_new = member.member_id not in group.members
    updated = _updated(member, command)
    is_changed = is_new or _subscription_of(updated) != _subscription_of(member)
    group = targeted(refreshed(with_member(group, updated), topics, is_changed=is_changed), topics)
    current = reconciled(group, updated, owned=command.owned)
    group = with_member(
        group,
        replace(
            updated,
            current=current,
            session_deadline_ms=now_ms + settings.consumer_session_timeout_ms,
            rebalance_deadline_ms=_revocation_deadline_ms(updated, current, now_ms),
        ),
    )
    is_told = (
        command.is_full
        or current.epoch != command.member_epoch
        or current.assigned != member.current.assigned
    )
    reply = ConsumerHeartbeatReply(
        member_id=member.member_id,
        member_epoch=current.epoch,
        heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        assignment=current.assigned if is_told else None,
    )
    return group, reply


def _joining(
    group: ConsumerGroup, command: ConsumerHeartbeat, settings: GroupSettings
) -> tuple[ConsumerGroup, Member]:
    """The member that joins, owning nothing; in the group already if it takes a place in it."""
    member_id = command.member_id or command.new_member_id
    old = None
    if command.instance_id is not None:
        old = static_member(group, command.instance_id)
    if old is not None:
        check_released(old, member_id)
        if member_id != old.member_id and member_id in group.members:
            raise InvalidRequest(f"member id {member_id!r} is another member's")
        new = replace(old, member_id=member_id, current=_rejoining(old.current))
        return with_member_replaced(group, old, new), new
    if member_id in group.members:
        # A member that was fenced, or did not hear the reply to its first heartbeat.
        member = group.members[member_id]
        if member.metadata.instance_id is not None:
            raise UnknownMember(member_id)
        again = replace(member, current=_rejoining(member.current))
        return with_member(group, again), again
    if len(group.members) >= settings.max_size:
        raise GroupFull(group=group.group_id, limit=settings.max_size)
    return group, Member(member_id=member_id)


def _rejoining(current: CurrentAssignment) -> CurrentAssignment:
    """It owns nothing, so nothing has to be revoked; what is still meant for it, it keeps."""
    return CurrentAssignment(assigned=current.assigned, revoking=NO_PARTITIONS)


def _updated(member: Member, command: ConsumerHeartbeat) -> Member:
    was = member.metadata
    metadata = replace(
        was,
        instance_id=was.instance_id if command.instance_id is None else command.instance_id,
        rack_id=was.rack_id if command.rack_id is None else command.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=was.topics if command.topics is None else frozenset(command.topics),
        regex=was.regex if command.regex is None else command.regex or None,
        rebalance_timeout_ms=(
            was.rebalance_timeout_ms
            if command.rebalance_timeout_ms == -1
            else command.rebalance_timeout_ms
        ),
        assignor=was.assignor if command.assignor is None else command.assignor,
        classic=None,
    )
    return replace(member, metadata=metadata)


def _subscription_of(member: Member) -> tuple[frozenset[str], str | None]:
    return member.metadata.topics, member.metadata.regex


def _revocation_deadline_ms(member: Member, current: CurrentAssignment, now_ms: int) -> int | None:
    """The time to give partitions up counts from when the member was told, not from each beat."""
    if current.state is not MemberState.UNREVOKED_PARTITIONS:
        return None
    if current == member.current and member.rebalance_deadline_ms is not None:
        return member.rebalance_deadline_ms
    return now_ms + member.metadata.rebalance_timeout_ms
