"""Committed offsets of one group: who may commit, when offsets are forgotten, what may be deleted.

Offsets are held as a mapping from (topic, partition); `apply_offset` is how every change reaches
it, live and at replay. Those of transactions that have not ended are in `pending_offsets`.

Invariant: an offset is in the mapping exactly if its newest record is no tombstone. Records of
transactions count once these are committed, by where the records lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import NamedTuple

from millstream.errors import (
    IllegalGeneration,
    MetadataTooLarge,
    MillstreamError,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMember,
)
from millstream.groups.classic_group import ClassicGroup, ClassicState
from millstream.groups.classic_subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from millstream.groups.group_records import (
    Committed,
    OffsetCommitted,
    OffsetRecord,
    OffsetTombstone,
)

TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, Committed]


class Committer(NamedTuple):
    """In whose name offsets are committed."""

    member_id: str
    """Empty for a consumer that is no member of a group."""
    instance_id: str | None
    generation: int
    """-1 for a consumer that is no member of a group."""


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


def apply_offset(offsets: MutableMapping[TopicPartition, Committed], record: OffsetRecord) -> None:
    key = (record.topic, record.partition)
    if isinstance(record, OffsetCommitted):
        offsets[key] = record.committed
    else:
        offsets.pop(key, None)


def commit_refusal(group: ClassicGroup, committer: Committer) -> MillstreamError | None:
    """Why somebody may not commit offsets of a classic group now, if so."""
    member_id, instance_id, generation = committer
    if group.state is ClassicState.EMPTY and generation < 0:
        return None
    if is_nobody(committer):
        # Its members own the offsets; nobody commits beside them.
        return UnknownMember(member_id)
    refusal = group.refusal_of(member_id, instance_id)
    if refusal is None and generation != group.generation:
        refusal = IllegalGeneration(generation=generation, current=group.generation)
    if refusal is None and group.state is ClassicState.COMPLETING_REBALANCE:
        refusal = RebalanceInProgress(group.group_id)
    return refusal


def transactional_commit_refusal(
    group: ClassicGroup, committer: Committer
) -> MillstreamError | None:
    """Why somebody may not commit offsets of a classic group in a transaction, if so.

    Old producers do not say for which member they commit (KIP-447), and a rebalance does not keep
    them from it: their transaction ends before a new owner of the partition reads on.
    """
    member_id, instance_id, generation = committer
    if generation < 0 and group.state is ClassicState.EMPTY:
        return None
    if is_nobody(committer):
        return None
    refusal = group.refusal_of(member_id, instance_id)
    if refusal is None and generation != group.generation:
        refusal = IllegalGeneration(generation=generation, current=group.generation)
    return refusal


def is_nobody(committer: Committer) -> bool:
    """Whether there is no telling for which member of a group offsets are committed."""
    return committer.generation < 0 and not committer.member_id and committer.instance_id is None


def metadata_refusal(metadata: str, limit_bytes: int) -> MillstreamError | None:
    size_bytes = len(metadata.encode())
    if size_bytes > limit_bytes:
        return MetadataTooLarge(size_bytes=size_bytes, limit_bytes=limit_bytes)
    return None


def commit_records(
    group_id: str, wanted: Iterable[OffsetToCommit], *, now_ms: int, retention_ms: int = -1
) -> tuple[OffsetCommitted, ...]:
    """`retention_ms` is what some old clients ask for; -1 leaves it to the broker."""
    expire_timestamp_ms = -1 if retention_ms < 0 else now_ms + retention_ms
    return tuple(
        OffsetCommitted(
            group_id,
            item.topic,
            item.partition,
            Committed(
                offset=item.offset,
                leader_epoch=item.leader_epoch,
                metadata=item.metadata,
                commit_timestamp_ms=now_ms,
                expire_timestamp_ms=expire_timestamp_ms,
            ),
        )
        for item in wanted
    )


def tombstones(
    group_id: str, keys: Iterable[TopicPartition], is_gone: Callable[[TopicPartition], bool]
) -> tuple[OffsetTombstone, ...]:
    return tuple(OffsetTombstone(group_id, *key) for key in keys if is_gone(key))


class Usage(NamedTuple):
    """What keeps offsets of a group from being forgotten."""

    since_ms: int = 0
    """Until when all were in use."""
    topics: frozenset[str] | None = frozenset()
    """Those in use now; None is all."""


def usage_of(group: ClassicGroup | None) -> Usage:
    """None is a group whose members nobody coordinates."""
    if group is None or not group.protocol_type:
        return Usage()
    if group.state is ClassicState.EMPTY:
        return Usage(group.state_since_ms)
    if group.state is ClassicState.STABLE:
        return Usage(topics=subscribed_topics(group))
    return Usage(topics=None)


def expired(
    offsets: Offsets, usage: Usage, *, now_ms: int, retention_ms: int
) -> set[TopicPartition]:
    """Offsets that nobody has used for the time they are kept (KIP-211).

    The time runs from the commit, but never while the offset is in use.
    """
    if usage.topics is None:
        return set()
    return {
        key
        for key, committed in offsets.items()
        if key[0] not in usage.topics and _end_ms(committed, usage.since_ms, retention_ms) <= now_ms
    }


def _end_ms(committed: Committed, since_ms: int, retention_ms: int) -> int:
    if committed.expire_timestamp_ms >= 0:
        return committed.expire_timestamp_ms
    return max(committed.commit_timestamp_ms, since_ms) + retention_ms


def deletion_refusal(group: ClassicGroup) -> MillstreamError | None:
    """Why no offset of a group may be deleted by hand, if so: there is no telling what it uses."""
    in_use = group.state is not ClassicState.EMPTY
    if in_use and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return NonEmptyGroup(group.group_id)
    return None
