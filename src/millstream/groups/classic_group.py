"""A classic group: its members, its generation, and what it waits for.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^            |   ^                 |                  |
      +------------+   +-----------------+------------------+

In PreparingRebalance members hand in join requests, which are answered together when the next
generation begins; in CompletingRebalance they wait for the leader's assignment.

Invariant: member ids and static identities are unique; some protocol is supported by all members;
the leader is a member, unless there is none; an Empty group has no members.
After a crash: rebuilt from its newest record, so a group that was rebalancing is back in the last
generation whose assignment was stored. Deadlines and tickets are not stored: members get a whole
new session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from millstream.errors import FencedInstance, MillstreamError, UnknownMember
from millstream.groups.commands import SupportedProtocol
from millstream.groups.group_records import GroupMetadata, MemberMetadata
from millstream.groups.outcome import Ticket


class ClassicState(StrEnum):
    """Kafka's names, as clients are shown them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """Said of groups that do not exist."""


class Member(NamedTuple):
    """Fields from `session_deadline_ms` on are not stored."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[SupportedProtocol, ...]
    """In order of preference."""
    assignment: bytes = b""
    session_deadline_ms: int = 0
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    is_new: bool = False
    """Whether its first join is still unanswered."""
    owes_sync: bool = False
    """Whether it was told of the generation and has not asked for its assignment."""

    @property
    def may_expire(self) -> bool:
        """Who waits for an answer cannot heartbeat; only a newcomer may be gone all the same."""
        return self.is_new or (self.join_ticket is None and self.sync_ticket is None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it subscribes to under a protocol."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    def renewed(self, now_ms: int) -> Member:
        """With a whole session from now on."""
        return self._replace(session_deadline_ms=now_ms + self.session_timeout_ms)


NOBODY: Mapping[str, Member] = MappingProxyType({})
_NOBODY_PENDING: Mapping[str, int] = MappingProxyType({})


class ClassicGroup(NamedTuple):
    """Never changed: every transition makes another one."""

    group_id: str
    state: ClassicState
    state_since_ms: int
    generation: int
    protocol_type: str
    """Empty where only offsets are committed: a simple group."""
    protocol_name: str | None
    leader_id: str | None
    members: Mapping[str, Member] = NOBODY
    """In order of joining."""
    pending: Mapping[str, int] = _NOBODY_PENDING
    """Ids given to members that have yet to come back with them (KIP-394), with the time to."""
    join_deadline_ms: int | None = None
    """When the next generation begins, whoever is missing. Only in PreparingRebalance."""
    sync_deadline_ms: int | None = None
    """When those who owe a sync are removed."""
    is_initial: bool = False
    """Whether this rebalance began with an Empty group, and so waits for more to come."""
    initial_limit_ms: int = 0
    """Until when an initial rebalance may be drawn out by newcomers."""
    has_newcomer: bool = False
    """Whether somebody came since the initial rebalance was last drawn out."""

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and all(m.join_ticket is not None for m in self.members.values())

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known of it that a new group would not have."""
        return not (self.members or self.pending or self.generation)

    def static_member(self, instance_id: str) -> Member | None:
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def refusal_of(self, member_id: str, instance_id: str | None) -> MillstreamError | None:
        """Why a request that comes in a member's name is not to be believed, if it is not."""
        member = self.members.get(member_id)
        if instance_id is not None and (member is None or member.instance_id != instance_id):
            known = self.static_member(instance_id) is not None
            return FencedInstance(instance_id) if known else UnknownMember(member_id)
        return UnknownMember(member_id) if member is None else None

    def supports(self, protocol_type: str, protocols: Collection[SupportedProtocol]) -> bool:
        """Whether a member with these protocols has one in common with all others."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type and protocols)
        common = self._common_protocols()
        return protocol_type == self.protocol_type and any(
            protocol.name in common or not self.members for protocol in protocols
        )

    def elected_protocol(self) -> str:
        """The one with the most votes; each member votes for its first that all support."""
        common = self._common_protocols()
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _common_protocols(self) -> set[str]:
        names = [{p.name for p in member.protocols} for member in self.members.values()]
        return set.intersection(*names) if names else set()


def new_group(group_id: str, now_ms: int) -> ClassicGroup:
    return ClassicGroup(
        group_id=group_id,
        state=ClassicState.EMPTY,
        state_since_ms=now_ms,
        generation=0,
        protocol_type="",
        protocol_name=None,
        leader_id=None,
    )


def to_record(group: ClassicGroup) -> GroupMetadata:
    """What is stored of a group, at the moment of a transition to Stable or Empty."""
    return GroupMetadata(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id,
        state_since_ms=group.state_since_ms,
        members=tuple(
            MemberMetadata(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def from_record(record: GroupMetadata, now_ms: int) -> ClassicGroup:
    """The group as stored. Its members have a whole session from now on to be heard of."""
    members = {
        stored.member_id: Member(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocols=(SupportedProtocol(record.protocol_name or "", stored.subscription),),
            assignment=stored.assignment,
        ).renewed(now_ms)
        for stored in record.members
    }
    return ClassicGroup(
        group_id=record.group_id,
        state=ClassicState.STABLE if members else ClassicState.EMPTY,
        state_since_ms=record.state_since_ms,
        generation=record.generation,
        protocol_type=record.protocol_type,
        protocol_name=record.protocol_name,
        leader_id=record.leader_id,
        members=members,
    )
