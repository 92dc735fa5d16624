"""What a transactional producer asks of the coordinator. Wire versions are gone here."""

from __future__ import annotations

from typing import NamedTuple

from millstream.transactions.transaction import NO_EPOCH, NO_PRODUCER, TopicPartition


class InitProducer(NamedTuple):
    """Take over a transactional id: fence whoever used it, and abort what was left open."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER
    """Of a producer that goes on after an error (KIP-360); with its epoch, or neither."""
    producer_epoch: int = NO_EPOCH


class AddPartitions(NamedTuple):
    """Name partitions before anything is written to them; the first begin a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


class End(NamedTuple):
    """Commit, or abort."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    bumps_epoch: bool
    """Whether the producer takes a new epoch from the answer (KIP-890, transaction.version 2)."""
