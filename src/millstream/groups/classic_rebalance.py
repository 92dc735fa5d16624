"""How a classic group goes from one generation to the next: the steps that requests and time share.

A draft is a transition under way: the group as it will be, with the records and replies so far. It
lives for one call.

Invariant: a ticket leaves a draft's group only together with a reply to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millstream.errors import (
    FencedInstance,
    MillstreamError,
    RebalanceInProgress,
    UnknownMember,
)
from millstream.groups.classic_group import ClassicGroup, ClassicState, Member, to_record
from millstream.groups.commands import Joined, JoinedMember, Synced
from millstream.groups.group_records import ClassicRecord
from millstream.groups.outcome import Outcome, Reply, Ticket
from millstream.settings.groups import GroupSettings

ClassicOutcome = Outcome[ClassicGroup, ClassicRecord]

_SHORTEST_RETRY_MS = 1000
"""A member may name a rebalance timeout of nothing; to try again at once would never end."""


class Draft:
    """A group in transition."""

    def __init__(self, group: ClassicGroup, now_ms: int, settings: GroupSettings) -> None:
        self.group = group
        self.now_ms = now_ms
        self.settings = settings
        self._records: list[ClassicRecord] = []
        self._replies: list[Reply] = []

    def outcome(self) -> ClassicOutcome:
        group = None if self.group.is_blank else self.group
        return Outcome(group, tuple(self._records), tuple(self._replies))

    def reply(self, ticket: Ticket, value: object | MillstreamError) -> None:
        self._replies.append(Reply(ticket, value))

    def store(self) -> None:
        """Have the group as it is now written to the log."""
        self._records.append(to_record(self.group))

    def put(self, member: Member) -> None:
        """Add a member, or change it without changing its place in the order."""
        self.group = self.group._replace(members={**self.group.members, member.member_id: member})

    def change_all(self, change: Callable[[Member], Member]) -> None:
        members = {member_id: change(member) for member_id, member in self.group.members.items()}
        self.group = self.group._replace(members=members)

    def enter(self, state: ClassicState) -> None:
        self.group = self.group._replace(state=state, state_since_ms=self.now_ms)

    def forget_pending(self, member_ids: Iterable[str]) -> None:
        gone = set(member_ids)
        pending = {name: at for name, at in self.group.pending.items() if name not in gone}
        self.group = self.group._replace(pending=pending)


def dismiss(draft: Draft, member_ids: Iterable[str]) -> None:
    """Remove members and answer whatever they wait for. The group is yet to be rebalanced."""
    gone = set(member_ids)
    for member_id in gone:
        _answer_both(draft, draft.group.members[member_id], UnknownMember(member_id))
    members = {name: m for name, m in draft.group.members.items() if name not in gone}
    leader_id = draft.group.leader_id
    if leader_id in gone:
        leader_id = next(iter(members), None)
    draft.group = draft.group._replace(members=members, leader_id=leader_id)


def replace_static(draft: Draft, old: Member, new_member_id: str) -> Member:
    """Let another process go on under a static identity, in the old one's place (KIP-345)."""
    assert old.instance_id is not None, "only static members are replaced"
    _answer_both(draft, old, FencedInstance(old.instance_id))
    new = old._replace(member_id=new_member_id, join_ticket=None, sync_ticket=None)
    members = {
        (new_member_id if name == old.member_id else name): (
            new if name == old.member_id else member
        )
        for name, member in draft.group.members.items()
    }
    leader_id = draft.group.leader_id
    if leader_id == old.member_id:
        leader_id = new_member_id
    draft.group = draft.group._replace(members=members, leader_id=leader_id)
    return new


def rebalance(draft: Draft) -> None:
    """Something changed that the next generation must know of."""
    if draft.group.state is ClassicState.PREPARING_REBALANCE:
        complete_join_if_ready(draft)
    else:
        prepare_rebalance(draft)


def prepare_rebalance(draft: Draft) -> None:
    """Begin to collect the members of the next generation."""
    if draft.group.state is ClassicState.COMPLETING_REBALANCE:
        _give_up_assignment(draft)
    is_initial = draft.group.state is ClassicState.EMPTY
    draft.change_all(lambda member: member._replace(owes_sync=False))
    draft.enter(ClassicState.PREPARING_REBALANCE)
    timeout_ms = draft.group.rebalance_timeout_ms
    delay_ms = draft.settings.initial_rebalance_delay_ms if is_initial else timeout_ms
    draft.group = draft.group._replace(
        sync_deadline_ms=None,
        join_deadline_ms=draft.now_ms + delay_ms,
        is_initial=is_initial,
        initial_limit_ms=draft.now_ms + max(timeout_ms, delay_ms),
        has_newcomer=False,
    )
    complete_join_if_ready(draft)


def complete_join_if_ready(draft: Draft) -> None:
    """Begin the next generation if nobody is missing.

    An initial rebalance is not over when all have joined, since more may come; only when all
    have gone.
    """
    group = draft.group
    if group.has_all_joined and not (group.is_initial and group.members):
        complete_join(draft)


def complete_join(draft: Draft) -> None:
    """Begin the next generation with those who joined.

    A static member that did not join stays: it may be restarting, and keeps its place until its
    session ends (KIP-345).
    """
    missing = [
        member.member_id
        for member in draft.group.members.values()
        if member.join_ticket is None and member.instance_id is None
    ]
    dismiss(draft, missing)
    if not draft.group.members:
        _become_empty(draft)
    elif _elect_leader(draft):
        _begin_generation(draft)
    else:
        retry_ms = max(draft.group.rebalance_timeout_ms, _SHORTEST_RETRY_MS)
        draft.group = draft.group._replace(join_deadline_ms=draft.now_ms + retry_ms)


def joined(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> Joined:
    """What a member is told of the generation."""
    members: tuple[JoinedMember, ...] = ()
    if member_id == group.leader_id:
        members = tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata(group.protocol_name))
            for m in group.members.values()
        )
    assert group.protocol_name is not None, "a generation with members has a protocol"
    assert group.leader_id is not None, "a generation with members has a leader"
    return Joined(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id,
        member_id=member_id,
        members=members,
        skip_assignment=skip_assignment,
    )


def synced(group: ClassicGroup, member: Member) -> Synced:
    """What a member is told of its assignment."""
    assert group.protocol_name is not None, "a generation with members has a protocol"
    return Synced(group.protocol_type, group.protocol_name, member.assignment)


def _become_empty(draft: Draft) -> None:
    draft.enter(ClassicState.EMPTY)
    draft.group = draft.group._replace(
        generation=draft.group.generation + 1,
        protocol_name=None,
        leader_id=None,
        join_deadline_ms=None,
        sync_deadline_ms=None,
        is_initial=False,
        has_newcomer=False,
    )
    draft.store()


def _begin_generation(draft: Draft) -> None:
    draft.enter(ClassicState.COMPLETING_REBALANCE)
    group = draft.group = draft.group._replace(
        generation=draft.group.generation + 1,
        protocol_name=draft.group.elected_protocol(),
        join_deadline_ms=None,
        sync_deadline_ms=draft.now_ms + draft.group.rebalance_timeout_ms,
        is_initial=False,
        has_newcomer=False,
    )

    def tell(member: Member) -> Member:
        if member.join_ticket is not None:
            draft.reply(member.join_ticket, joined(group, member.member_id))
        waiting = member._replace(join_ticket=None, is_new=False, owes_sync=True)
        return waiting.renewed(draft.now_ms)

    draft.change_all(tell)


def _elect_leader(draft: Draft) -> bool:
    """Keep the leader if it joined, else take the first who did; whether there is one."""
    members = draft.group.members
    leader = members[draft.group.leader_id] if draft.group.leader_id is not None else None
    if leader is None or leader.join_ticket is None:
        leader = next((m for m in members.values() if m.join_ticket is not None), None)
    if leader is None:
        return False
    draft.group = draft.group._replace(leader_id=leader.member_id)
    return True


def _give_up_assignment(draft: Draft) -> None:
    """Send those who wait for the leader back to join again."""

    def send_back(member: Member) -> Member:
        if member.sync_ticket is None:
            return member._replace(assignment=b"")
        draft.reply(member.sync_ticket, RebalanceInProgress(draft.group.group_id))
        return member._replace(assignment=b"", sync_ticket=None).renewed(draft.now_ms)

    draft.change_all(send_back)


def _answer_both(draft: Draft, member: Member, error: MillstreamError) -> None:
    for ticket in (member.join_ticket, member.sync_ticket):
        if ticket is not None:
            draft.reply(ticket, error)
