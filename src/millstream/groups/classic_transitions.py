"""What happens to a classic group: every request its members make, and the passing of time.

Joining is in `classic_join`. All transitions take a group and give an Outcome; none changes
anything. Time is told to a group by `tick`, at the latest when `deadline_of` says.
"""

from __future__ import annotations

from millstream.errors import (
    IllegalGeneration,
    InconsistentProtocol,
    MillstreamError,
    RebalanceInProgress,
    UnknownMember,
)
from millstream.groups.classic_group import ClassicGroup, ClassicState, Member
from millstream.groups.classic_join import join
from millstream.groups.classic_rebalance import (
    ClassicOutcome,
    Draft,
    complete_join,
    complete_join_if_ready,
    dismiss,
    prepare_rebalance,
    rebalance,
    synced,
)
from millstream.groups.commands import Heartbeat, Leave, Leaver, Left, Sync
from millstream.groups.outcome import Outcome, Reply, Ticket
from millstream.settings.groups import GroupSettings

__all__ = ["join", "drop_join", "sync", "heartbeat", "leave", "tick", "deadline_of"]


def drop_join(
    group: ClassicGroup, ticket: Ticket, now_ms: int, settings: GroupSettings
) -> ClassicOutcome:
    """The connection of a member that waits to join has closed: nobody waits for it any more.

    The member leaves the group; if its client lives, it joins again. A static member keeps its
    place for one more session (KIP-345).
    """
    draft = Draft(group, now_ms, settings)
    member = next((m for m in group.members.values() if m.join_ticket == ticket), None)
    if member is None:
        # Its join was answered before.
        return draft.outcome()
    waits_no_more = member._replace(join_ticket=None, is_new=False)
    draft.put(waits_no_more.renewed(now_ms))
    if member.instance_id is None:
        dismiss(draft, [member.member_id])
        rebalance(draft)
    return draft.outcome()


def sync(
    group: ClassicGroup, command: Sync, now_ms: int, settings: GroupSettings
) -> ClassicOutcome:
    """Take the leader's assignment; give a member its own, now or once the leader has come."""
    draft = Draft(group, now_ms, settings)
    refusal = _sync_refusal(group, command)
    if refusal is not None:
        draft.reply(command.ticket, refusal)
        return draft.outcome()
    member = group.members[command.member_id]
    draft.put(member._replace(owes_sync=False).renewed(now_ms))
    if not any(m.owes_sync for m in draft.group.members.values()):
        draft.group = draft.group._replace(sync_deadline_ms=None)
    if group.state is ClassicState.STABLE:
        draft.reply(command.ticket, synced(group, member))
        return draft.outcome()
    if member.sync_ticket is not None:
        draft.reply(member.sync_ticket, RebalanceInProgress(group.group_id))
    draft.put(draft.group.members[member.member_id]._replace(sync_ticket=command.ticket))
    if group.leader_id == member.member_id:
        _assign(draft, dict(command.assignments))
    return draft.outcome()


def heartbeat(group: ClassicGroup, command: Heartbeat, now_ms: int) -> ClassicOutcome:
    """Renew a session; tell a member that it must join again.

    The most frequent request of all: it never brings a deadline closer, and stores nothing.
    """
    refusal = group.refusal_of(command.member_id, command.instance_id)
    if refusal is None and command.generation != group.generation:
        refusal = IllegalGeneration(generation=command.generation, current=group.generation)
    if refusal is not None:
        return Outcome(group, (), (Reply(command.ticket, refusal),))
    if group.state is ClassicState.PREPARING_REBALANCE:
        refusal = RebalanceInProgress(group.group_id)
    return Outcome(renewed(group, command.member_id, now_ms), (), (Reply(command.ticket, refusal),))


def renewed(group: ClassicGroup, member_id: str, now_ms: int) -> ClassicGroup:
    """A member gave a sign of life."""
    member = group.members.get(member_id)
    # Who waits for the answer to a first join has a longer time than a session.
    if member is None or member.is_new:
        return group
    members = {**group.members, member_id: member.renewed(now_ms)}
    return group._replace(members=members)


def leave(
    group: ClassicGroup, command: Leave, now_ms: int, settings: GroupSettings
) -> ClassicOutcome:
    """Remove members at their own, or an administrator's, wish."""
    draft = Draft(group, now_ms, settings)
    results = tuple([_dismiss_leaver(draft, leaver) for leaver in command.leavers])
    if len(draft.group.members) < len(group.members):
        rebalance(draft)
    elif None in results:
        _stop_waiting(draft)
    draft.reply(command.ticket, Left(results))
    return draft.outcome()


def tick(group: ClassicGroup, now_ms: int, settings: GroupSettings) -> ClassicOutcome:
    """Do what is due: sessions end, and so does the patience for those who are missing."""
    draft = Draft(group, now_ms, settings)
    _end_sessions(draft)
    if _is_due(draft.group.join_deadline_ms, now_ms):
        _end_join(draft)
    if _is_due(draft.group.sync_deadline_ms, now_ms):
        _end_sync(draft)
    return draft.outcome()


def deadline_of(group: ClassicGroup) -> int | None:
    """When something happens by itself."""
    deadlines = [m.session_deadline_ms for m in group.members.values() if m.may_expire]
    deadlines += group.pending.values()
    if group.join_deadline_ms is not None:
        deadlines.append(group.join_deadline_ms)
    if group.sync_deadline_ms is not None:
        deadlines.append(group.sync_deadline_ms)
    return min(deadlines, default=None)


def _sync_refusal(group: ClassicGroup, command: Sync) -> MillstreamError | None:
    refusal = group.refusal_of(command.member_id, command.instance_id)
    if refusal is not None:
        return refusal
    if command.generation != group.generation:
        return IllegalGeneration(generation=command.generation, current=group.generation)
    if command.protocol_type not in {None, group.protocol_type} or (
        command.protocol_name not in {None, group.protocol_name}
    ):
        reason = f"it uses {group.protocol_name!r} of type {group.protocol_type!r}"
        return InconsistentProtocol(group=group.group_id, reason=reason)
    if group.state is ClassicState.PREPARING_REBALANCE:
        return RebalanceInProgress(group.group_id)
    return None


def _assign(draft: Draft, assignments: dict[str, bytes]) -> None:
    """The generation is complete: store it, and answer all who wait for their part."""
    draft.enter(ClassicState.STABLE)
    group = draft.group

    def tell(member: Member) -> Member:
        assigned = member._replace(assignment=assignments.get(member.member_id, b""))
        if member.sync_ticket is None:
            return assigned
        draft.reply(member.sync_ticket, synced(group, assigned))
        return assigned._replace(sync_ticket=None).renewed(draft.now_ms)

    draft.change_all(tell)
    draft.store()


def _dismiss_leaver(draft: Draft, leaver: Leaver) -> MillstreamError | None:
    group = draft.group
    member_id = leaver.member_id
    if not member_id and leaver.instance_id is not None:
        member = group.static_member(leaver.instance_id)
        if member is None:
            return UnknownMember(leaver.instance_id)
        member_id = member.member_id
    elif member_id in group.pending:
        draft.forget_pending([member_id])
        return None
    elif (refusal := group.refusal_of(member_id, leaver.instance_id)) is not None:
        return refusal
    dismiss(draft, [member_id])
    return None


def _end_sessions(draft: Draft) -> None:
    group = draft.group
    late = [name for name, deadline_ms in group.pending.items() if deadline_ms <= draft.now_ms]
    silent = [
        name
        for name, member in group.members.items()
        if member.session_deadline_ms <= draft.now_ms and member.may_expire
    ]
    draft.forget_pending(late)
    dismiss(draft, silent)
    if silent:
        rebalance(draft)
    elif late:
        _stop_waiting(draft)


def _stop_waiting(draft: Draft) -> None:
    """Somebody who was given an id is not expected any more."""
    if draft.group.state is ClassicState.PREPARING_REBALANCE:
        complete_join_if_ready(draft)


def _end_join(draft: Draft) -> None:
    group = draft.group
    due_ms = group.join_deadline_ms
    assert due_ms is not None, "only a deadline that is set can pass"
    if group.is_initial and group.has_newcomer and due_ms < group.initial_limit_ms:
        later_ms = due_ms + draft.settings.initial_rebalance_delay_ms
        draft.group = group._replace(
            join_deadline_ms=min(later_ms, group.initial_limit_ms), has_newcomer=False
        )
    else:
        complete_join(draft)


def _end_sync(draft: Draft) -> None:
    """Members that joined and never asked for their assignment are gone."""
    owing = [name for name, member in draft.group.members.items() if member.owes_sync]
    dismiss(draft, owing)
    prepare_rebalance(draft)


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
