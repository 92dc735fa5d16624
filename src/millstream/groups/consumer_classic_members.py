"""Members of a consumer-protocol group that still speak the classic protocol.

While a group moves from one protocol to the other both kinds share it. The broker assigns for all;
to a classic member its epoch is a generation, in which it is a follower. When it must give up or
can get partitions, its heartbeat says that the group rebalances; it joins again, naming what it
owns; and it syncs to hear what it has. It leads nothing: the leader's name is empty, as in Kafka.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import (
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidTimeout,
    MalformedMessage,
    MemberIdRequired,
    MillstreamError,
    RebalanceInProgress,
    UnknownMember,
)
from millstream.groups.commands import (
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaver,
    Left,
    Sync,
    Synced,
)
from millstream.groups.consumer_embedded_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    by_topic_id,
    read_subscription,
    write_assignment,
)
from millstream.groups.consumer_group import (
    ClassicMembership,
    ConsumerGroup,
    CurrentAssignment,
    Member,
    MemberMetadata,
    MemberState,
    TopicsView,
    static_member,
    with_member,
    with_member_replaced,
    without_members,
)
from millstream.groups.consumer_partitions import NO_PARTITIONS
from millstream.groups.consumer_reconciliation import reconciled, waits_for_others
from millstream.groups.consumer_records import records_between
from millstream.groups.consumer_target import refreshed, targeted
from millstream.groups.consumer_transitions import ConsumerOutcome
from millstream.groups.consumer_validation import known_member
from millstream.groups.outcome import Outcome, Reply
from millstream.settings.groups import GroupSettings


def join(
    group: ConsumerGroup,
    command: Join,
    now_ms: int,
    *,
    topics: TopicsView,
    settings: GroupSettings,
) -> ConsumerOutcome:
    """Take a classic member a step towards its target; its reply is never deferred."""
    try:
        after, joined = _join(group, command, now_ms, topics, settings)
    except MillstreamError as error:
        return Outcome(group, (), (Reply(command.ticket, error),))
    return Outcome(after, records_between(group, after), (Reply(command.ticket, joined),))


def sync(
    group: ConsumerGroup, command: Sync, now_ms: int, *, topics: TopicsView
) -> ConsumerOutcome:
    """Tell a classic member what it has."""
    try:
        member, classic = _known(group, command.member_id, command.instance_id, command.generation)
        _check_protocol(group, classic, command)
    except MillstreamError as error:
        return Outcome(group, (), (Reply(command.ticket, error),))
    is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if group.epoch > member.current.epoch and not is_revoking:
        return _sent_back(group, member, command.ticket, now_ms)
    name, metadata = classic.protocols[0]
    version = read_subscription(metadata).version
    synced = Synced(
        PROTOCOL_TYPE, name, write_assignment(member.current.assigned, topics, version=version)
    )
    after = with_member(group, replace(_alive(member, classic, now_ms), rebalance_deadline_ms=None))
    return Outcome(after, (), (Reply(command.ticket, synced),))


def heartbeat(
    group: ConsumerGroup, command: Heartbeat, now_ms: int, *, topics: TopicsView
) -> ConsumerOutcome:
    """Keep a classic member alive; send it to join where that brings it a step on."""
    try:
        member, classic = _known(group, command.member_id, command.instance_id, command.generation)
    except MillstreamError as error:
        return Outcome(group, (), (Reply(command.ticket, error),))
    current = refreshed(group, topics, is_changed=False)
    state = member.current.state
    if (
        current.epoch > member.current.epoch
        or state is MemberState.UNREVOKED_PARTITIONS
        or (state is MemberState.UNRELEASED_PARTITIONS and not waits_for_others(current, member))
    ):
        sent = _sent_back(current, _alive(member, classic, now_ms), command.ticket, now_ms)
        return Outcome(sent.group, records_between(group, sent.group), sent.replies)
    after = with_member(current, _alive(member, classic, now_ms))
    return Outcome(after, records_between(group, after), (Reply(command.ticket, None),))


def leave(group: ConsumerGroup, command: Leave) -> ConsumerOutcome:
    """Remove classic members at their own, or an administrator's, wish."""
    gone: set[str] = set()
    results: list[MillstreamError | None] = []
    for leaver in command.leavers:
        try:
            gone.add(_leaver_id(group, leaver, gone))
            results.append(None)
        except MillstreamError as error:
            results.append(error)
    after = without_members(group, frozenset(gone)) if gone else group
    reply = Reply(command.ticket, Left(tuple(results)))
    return Outcome(after, records_between(group, after), (reply,))


def _join(
    group: ConsumerGroup,
    command: Join,
    now_ms: int,
    topics: TopicsView,
    settings: GroupSettings,
) -> tuple[ConsumerGroup, Joined]:
    subscription = _checked_subscription(group, command, settings)
    group, member = _joining(group, command, settings)
    if subscription.owned and member.member_id not in group.members:
        # Its session ended, and what it thinks it owns may be another's: it must give that up.
        raise UnknownMember(member.member_id)
    is_new = member.member_id not in group.members
    updated = replace(member, metadata=_metadata(member, command, subscription))
    is_changed = is_new or updated.metadata.topics != member.metadata.topics
    is_changed = is_changed or updated.metadata.regex != member.metadata.regex
    group = targeted(refreshed(with_member(group, updated), topics, is_changed=is_changed), topics)
    current = reconciled(group, updated, owned=by_topic_id(subscription.owned, topics))
    classic = ClassicMembership(command.session_timeout_ms, command.protocols)
    joined = replace(
        _alive(updated, classic, now_ms),
        current=current,
        # By then it must have synced.
        rebalance_deadline_ms=now_ms + command.rebalance_timeout_ms,
    )
    reply = Joined(
        generation=current.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=command.protocols[0].name,
        leader_id="",
        member_id=joined.member_id,
        members=(),
    )
    return with_member(group, joined), reply


def _checked_subscription(
    group: ConsumerGroup, command: Join, settings: GroupSettings
) -> Subscription:
    timeout_ms = command.session_timeout_ms
    if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
        raise InvalidTimeout(
            timeout_ms=timeout_ms,
            minimum_ms=settings.min_session_timeout_ms,
            maximum_ms=settings.max_session_timeout_ms,
        )
    names = {protocol.name for protocol in command.protocols}
    for member in group.members.values():
        if member.metadata.classic is not None and member.member_id != command.member_id:
            names &= {protocol.name for protocol in member.metadata.classic.protocols}
    if command.protocol_type != PROTOCOL_TYPE or not names:
        reason = f"a protocol of type {PROTOCOL_TYPE!r} that all members support is needed"
        raise InconsistentProtocol(group=group.group_id, reason=reason)
    try:
        return read_subscription(command.protocols[0].metadata)
    except MalformedMessage as error:
        raise InconsistentProtocol(group=group.group_id, reason=str(error)) from error


def _joining(
    group: ConsumerGroup, command: Join, settings: GroupSettings
) -> tuple[ConsumerGroup, Member]:
    """The member that joins; in the group already if it takes a place in it."""
    if command.member_id and (
        command.instance_id is not None or command.member_id in group.members
    ):
        member = known_member(group, command.member_id, command.instance_id)
        if not member.speaks_classic:
            raise UnknownMember(command.member_id)
        return group, member
    member_id = command.member_id or command.new_member_id
    old = static_member(group, command.instance_id) if command.instance_id is not None else None
    if old is not None:
        # A static member's new process takes over at once, as in classic groups (KIP-345).
        current = CurrentAssignment(assigned=old.current.assigned, revoking=NO_PARTITIONS)
        new = replace(old, member_id=member_id, current=current)
        return with_member_replaced(group, old, new), new
    if len(group.members) >= settings.max_size:
        raise GroupFull(group=group.group_id, limit=settings.max_size)
    if not command.member_id and command.must_return and command.instance_id is None:
        raise MemberIdRequired(member_id)
    return group, Member(member_id=member_id)


def _metadata(member: Member, command: Join, subscription: Subscription) -> MemberMetadata:
    return MemberMetadata(
        instance_id=command.instance_id,
        rack_id=subscription.rack_id or member.metadata.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        classic=ClassicMembership(command.session_timeout_ms, command.protocols),
    )


def _known(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member, ClassicMembership]:
    member = known_member(group, member_id, instance_id)
    if member.metadata.classic is None:
        raise UnknownMember(member_id)
    if generation != member.current.epoch:
        raise IllegalGeneration(generation=generation, current=member.current.epoch)
    return member, member.metadata.classic


def _check_protocol(group: ConsumerGroup, classic: ClassicMembership, command: Sync) -> None:
    name = classic.protocols[0].name
    if command.protocol_type not in {None, PROTOCOL_TYPE} or (
        command.protocol_name not in {None, name}
    ):
        reason = f"the member was told to use {name!r} of type {PROTOCOL_TYPE!r}"
        raise InconsistentProtocol(group=group.group_id, reason=reason)


def _sent_back(group: ConsumerGroup, member: Member, ticket: int, now_ms: int) -> ConsumerOutcome:
    """Told to join again, and given time to; being told twice does not give it more."""
    deadline_ms = member.rebalance_deadline_ms
    if deadline_ms is None:
        deadline_ms = now_ms + member.metadata.rebalance_timeout_ms
    after = with_member(group, replace(member, rebalance_deadline_ms=deadline_ms))
    return Outcome(after, (), (Reply(ticket, RebalanceInProgress(group.group_id)),))


def _alive(member: Member, classic: ClassicMembership, now_ms: int) -> Member:
    return replace(member, session_deadline_ms=now_ms + classic.session_timeout_ms)


def _leaver_id(group: ConsumerGroup, leaver: Leaver, gone: set[str]) -> str:
    member: Member | None
    if leaver.instance_id is not None and not leaver.member_id:
        member = static_member(group, leaver.instance_id)
    else:
        member = known_member(group, leaver.member_id, leaver.instance_id)
    if member is None or not member.speaks_classic or member.member_id in gone:
        raise UnknownMember(leaver.member_id or leaver.instance_id or "")
    return member.member_id
