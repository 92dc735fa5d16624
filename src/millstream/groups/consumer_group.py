"""A group of the consumer protocol (KIP-848), as a value.

The broker assigns. A group has an epoch, which goes up whenever what is subscribed to changes; for
each epoch there is a target assignment; and each member is led from what it has to its target, one
heartbeat at a time: first it gives up what is no longer its own, then it moves to the new epoch,
then it gets what others have given up.

Invariant: no partition is held by two members, where a member holds what it is assigned and what
it has yet to give up.
After a crash: all but the deadlines comes back from the records; every member gets a full session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NamedTuple

from millstream.groups.commands import SupportedProtocol
from millstream.groups.consumer_partitions import NO_PARTITIONS, Partitions, union

LEAVE_EPOCH = -1
"""In a heartbeat: the member leaves."""
STATIC_LEAVE_EPOCH = -2
"""In a heartbeat: the static member leaves and means to return. Until it does, its epoch."""
JOIN_EPOCH = 0


class TopicFacts(NamedTuple):
    """What a group must know of a topic."""

    topic_id: bytes
    partitions: int
    is_internal: bool = False


TopicsView = Mapping[str, TopicFacts]
"""All topics by name. Whoever keeps it makes another one when a topic changes, and only then."""


class GroupState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """Numbered as in the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has been told to give something up and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for what others have yet to give up."""


class ClassicMembership(NamedTuple):
    """Of a member that still speaks the classic protocol: what it joined with."""

    session_timeout_ms: int
    protocols: tuple[SupportedProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member says of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMembership | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """How far a member has come towards its target."""

    epoch: int = 0
    previous_epoch: int = 0
    """Accepted too, since the reply that told of the new one may have been lost."""
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)
    """Taken from it, and not yet given up."""

    @property
    def held(self) -> Partitions:
        """What nobody else may be given."""
        return union(self.assigned, self.revoking)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    metadata: MemberMetadata = field(default_factory=MemberMetadata)
    current: CurrentAssignment = field(default_factory=CurrentAssignment)
    session_deadline_ms: int = 0
    """When it is taken for dead. Not persisted."""
    rebalance_deadline_ms: int | None = None
    """By when it must have given up partitions, joined or synced. Not persisted."""

    @property
    def speaks_classic(self) -> bool:
        return self.metadata.classic is not None

    @property
    def has_left_for_now(self) -> bool:
        return self.current.epoch == STATIC_LEAVE_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    """Of the topics subscribed to, as they were when the epoch began."""
    members: Mapping[str, Member] = field(default_factory=dict)
    target_epoch: int = 0
    """The epoch that the target was computed for; behind the group's while it is `Assigning`."""
    target: Mapping[str, Partitions] = field(default_factory=dict)
    topics_seen: TopicsView | None = field(default=None, compare=False, repr=False)
    """The view that `metadata_hash` was last compared with. Not persisted."""

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(is_reconciled(self, member) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING


def is_reconciled(group: ConsumerGroup, member: Member) -> bool:
    current = member.current
    return current.state is MemberState.STABLE and current.epoch == group.target_epoch


def target_of(group: ConsumerGroup, member_id: str) -> Partitions:
    return group.target.get(member_id, NO_PARTITIONS)


def static_member(group: ConsumerGroup, instance_id: str) -> Member | None:
    for member in group.members.values():
        if member.metadata.instance_id == instance_id:
            return member
    return None


def with_member(group: ConsumerGroup, member: Member) -> ConsumerGroup:
    return replace(group, members={**group.members, member.member_id: member})


def without_members(group: ConsumerGroup, member_ids: frozenset[str]) -> ConsumerGroup:
    """A new epoch without some members. What they held is free."""
    return replace(
        group,
        epoch=group.epoch + 1,
        members={m: member for m, member in group.members.items() if m not in member_ids},
        target={m: partitions for m, partitions in group.target.items() if m not in member_ids},
    )


def with_member_replaced(group: ConsumerGroup, old: Member, new: Member) -> ConsumerGroup:
    """A static member under another id, which takes over what was meant for the old one."""
    ids = {old.member_id: new.member_id}
    return replace(
        group,
        members={
            ids.get(m, m): new if m == old.member_id else member
            for m, member in group.members.items()
        },
        target={ids.get(m, m): partitions for m, partitions in group.target.items()},
    )


def deadline_of(group: ConsumerGroup) -> int | None:
    """The next moment at which something happens by itself."""
    deadlines = [member.session_deadline_ms for member in group.members.values()]
    deadlines.extend(
        member.rebalance_deadline_ms
        for member in group.members.values()
        if member.rebalance_deadline_ms is not None
    )
    return min(deadlines, default=None)
