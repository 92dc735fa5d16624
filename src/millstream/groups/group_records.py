"""What is stored of groups and offsets, as values. Their bytes: `group_records_format`.

Invariant: for one group, or one partition in a group, the newest record says all there is to know;
a tombstone says that it is gone.
"""

from __future__ import annotations

from typing import NamedTuple


class MemberMetadata(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """Under the protocol of the generation."""
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A generation of a classic group, with its assignment."""

    group_id: str
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_since_ms: int
    members: tuple[MemberMetadata, ...]


class GroupTombstone(NamedTuple):
    group_id: str


class Committed(NamedTuple):
    """How far a group has come in a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """When it is forgotten, if whoever committed it said so (old clients could); else -1."""


class OffsetCommitted(NamedTuple):
    group_id: str
    topic: str
    partition: int
    committed: Committed


class OffsetTombstone(NamedTuple):
    group_id: str
    topic: str
    partition: int


ClassicRecord = GroupMetadata | GroupTombstone
OffsetRecord = OffsetCommitted | OffsetTombstone
