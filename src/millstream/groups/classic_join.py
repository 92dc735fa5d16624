"""Joining a classic group: new members, returning ones, and static ones in a new process."""

from __future__ import annotations

from millstream.errors import (
    GroupFull,
    InconsistentProtocol,
    InvalidTimeout,
    MemberIdRequired,
    MillstreamError,
    RebalanceInProgress,
    UnknownMember,
)
from millstream.groups.classic_group import ClassicGroup, ClassicState, Member
from millstream.groups.classic_rebalance import (
    ClassicOutcome,
    Draft,
    complete_join_if_ready,
    dismiss,
    joined,
    prepare_rebalance,
    rebalance,
    replace_static,
)
from millstream.groups.commands import Join
from millstream.settings.groups import GroupSettings

_NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""How long a newcomer's first join may wait; after that its process is taken to be gone."""
_MOST_PENDING = 5000
"""Ids that are given out and have yet to come back: each costs a little in every transition."""


def join(
    group: ClassicGroup, command: Join, now_ms: int, settings: GroupSettings
) -> ClassicOutcome:
    """Take a member into the next generation, now or when all others have joined."""
    draft = Draft(group, now_ms, settings)
    refusal = _refusal(group, command, settings)
    if refusal is not None:
        draft.reply(command.ticket, refusal)
        if isinstance(refusal, GroupFull):
            _make_room(draft, command.member_id)
    elif not command.member_id:
        _join_without_id(draft, command)
    elif command.member_id in group.pending:
        _add(draft, command, command.member_id)
    else:
        _rejoin(draft, command)
    return draft.outcome()


def _refusal(group: ClassicGroup, command: Join, settings: GroupSettings) -> MillstreamError | None:
    timeout_ms = command.session_timeout_ms
    if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
        return InvalidTimeout(
            timeout_ms=timeout_ms,
            minimum_ms=settings.min_session_timeout_ms,
            maximum_ms=settings.max_session_timeout_ms,
        )
    if not _has_room(group, command, settings.max_size):
        return GroupFull(group=group.group_id, limit=settings.max_size)
    if not group.supports(command.protocol_type, command.protocols):
        names = ", ".join(protocol.name for protocol in command.protocols)
        reason = f"the member supports {names or 'none'} of type {command.protocol_type!r}"
        return InconsistentProtocol(group=group.group_id, reason=reason)
    if not command.member_id:
        return None
    if command.member_id in group.pending:
        # A static member is never sent back with an id, so this one has made its own up.
        return UnknownMember(command.member_id) if command.instance_id is not None else None
    return group.refusal_of(command.member_id, command.instance_id)


def _has_room(group: ClassicGroup, command: Join, limit: int) -> bool:
    member = group.members.get(command.member_id)
    if command.instance_id is not None and member is None:
        member = group.static_member(command.instance_id)
    if group.state is ClassicState.PREPARING_REBALANCE:
        waiting = sum(m.join_ticket is not None for m in group.members.values())
        return waiting < limit or (member is not None and member.join_ticket is not None)
    return member is not None or len(group.members) < limit


def _make_room(draft: Draft, member_id: str) -> None:
    """Who was a member of a group that has shrunk under it is one no more."""
    draft.forget_pending([member_id])
    if member_id in draft.group.members:
        dismiss(draft, [member_id])
    if draft.group.state is ClassicState.PREPARING_REBALANCE:
        complete_join_if_ready(draft)


def _join_without_id(draft: Draft, command: Join) -> None:
    old = None
    if command.instance_id is not None:
        old = draft.group.static_member(command.instance_id)
    if old is not None:
        _take_over(draft, command, old)
    elif command.must_return and command.instance_id is None:
        deadline_ms = draft.now_ms + command.session_timeout_ms
        pending = {**draft.group.pending, command.new_member_id: deadline_ms}
        if len(pending) > _MOST_PENDING:
            # Whoever comes back with it is sent to ask for another one.
            del pending[next(iter(pending))]
        draft.group = draft.group._replace(pending=pending)
        draft.reply(command.ticket, MemberIdRequired(command.new_member_id))
    else:
        _add(draft, command, command.new_member_id)


def _add(draft: Draft, command: Join, member_id: str) -> None:
    draft.forget_pending([member_id])
    group = draft.group
    draft.group = group._replace(
        protocol_type=group.protocol_type if group.members else command.protocol_type,
        leader_id=group.leader_id if group.members else member_id,
        has_newcomer=group.is_initial,
    )
    draft.put(
        Member(
            member_id=member_id,
            instance_id=command.instance_id,
            client_id=command.client_id,
            client_host=command.client_host,
            session_timeout_ms=command.session_timeout_ms,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            protocols=command.protocols,
            session_deadline_ms=draft.now_ms + _NEW_MEMBER_JOIN_TIMEOUT_MS,
            join_ticket=command.ticket,
            is_new=True,
        )
    )
    rebalance(draft)


def _rejoin(draft: Draft, command: Join) -> None:
    group = draft.group
    member = group.members[command.member_id]
    leads = group.state is ClassicState.STABLE and group.leader_id == member.member_id
    collects = group.state is ClassicState.PREPARING_REBALANCE
    if collects or leads or member.protocols != command.protocols:
        # A leader that rejoins asks for a rebalance: it may have seen new partitions.
        _update(draft, command, member)
        rebalance(draft)
    else:
        # It did not hear the answer to its last join.
        draft.put(member.renewed(draft.now_ms))
        draft.reply(command.ticket, joined(group, member.member_id))


def _take_over(draft: Draft, command: Join, old: Member) -> None:
    """A static member has restarted. A Stable group need not rebalance for that."""
    _update(draft, command, replace_static(draft, old, command.new_member_id))
    group = draft.group
    if group.state is ClassicState.COMPLETING_REBALANCE:
        prepare_rebalance(draft)
    elif group.state is not ClassicState.STABLE or (
        group.elected_protocol() != group.protocol_name
    ):
        rebalance(draft)
    else:
        _carry_on(draft, command, former_id=old.member_id)


def _carry_on(draft: Draft, command: Join, *, former_id: str) -> None:
    """Answer with the running generation, to a static member under its new id.

    A leader that can skip assigning is told all (KIP-814). One that cannot is told that its old
    id leads: it then asks for its assignment as a follower, and does not make another.
    """
    member = draft.group.members[command.new_member_id]
    draft.put(member._replace(join_ticket=None, is_new=False).renewed(draft.now_ms))
    answer = joined(draft.group, member.member_id)
    if draft.group.leader_id == member.member_id:
        if command.may_skip_assignment:
            answer = answer._replace(skip_assignment=True)
        else:
            answer = answer._replace(leader_id=former_id, members=())
    draft.store()
    draft.reply(command.ticket, answer)


def _update(draft: Draft, command: Join, member: Member) -> None:
    if member.join_ticket is not None:
        draft.reply(member.join_ticket, RebalanceInProgress(draft.group.group_id))
    patience_ms = _NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else command.session_timeout_ms
    draft.put(
        member._replace(
            protocols=command.protocols,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            session_timeout_ms=command.session_timeout_ms,
            client_id=command.client_id,
            client_host=command.client_host,
            session_deadline_ms=draft.now_ms + patience_ms,
            join_ticket=command.ticket,
        )
    )
