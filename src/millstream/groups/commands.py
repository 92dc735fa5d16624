"""What members of a classic group ask for, and what they are told. Wire versions are gone here."""

from __future__ import annotations

from typing import NamedTuple

from millstream.errors import MillstreamError
from millstream.groups.outcome import Ticket


class SupportedProtocol(NamedTuple):
    """An assignment strategy that a member can use, with what it subscribes to."""

    name: str
    metadata: bytes


class Join(NamedTuple):
    """Take part in the next generation."""

    ticket: Ticket
    member_id: str
    """Empty for a member that has none yet."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[SupportedProtocol, ...]
    new_member_id: str
    """For a member that has none."""
    must_return: bool
    """Whether a new member is first sent back with its id (KIP-394)."""
    may_skip_assignment: bool
    """Whether the leader can be told to keep the assignment (KIP-814)."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """Only the leader is told of the members."""

    generation: int
    protocol_type: str
    protocol_name: str
    leader_id: str
    member_id: str
    members: tuple[JoinedMember, ...]
    skip_assignment: bool = False


class Sync(NamedTuple):
    """Give the assignment, if the sender leads, and get one's own."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Synced(NamedTuple):
    protocol_type: str
    protocol_name: str
    assignment: bytes


class Heartbeat(NamedTuple):
    """Say that one is alive. Answered by None."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int


class Leaver(NamedTuple):
    member_id: str
    """Empty where a static member is named by its identity alone."""
    instance_id: str | None
    reason: str | None = None


class Leave(NamedTuple):
    ticket: Ticket
    leavers: tuple[Leaver, ...]


class Left(NamedTuple):
    """One result for each leaver, in order; None is success."""

    results: tuple[MillstreamError | None, ...]
