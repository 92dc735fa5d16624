"""What the coordinator knows of one transactional id: its producer, and its last transaction.

One value stands for all of it, and is also what is stored: the newest one in the log decides. So
a transition is a function from one such value to the next.

Invariant: an ongoing transaction has partitions; one that is being ended has those that it had,
or none if nothing was written; there are none otherwise. `data_epoch` is the epoch that the
records of such a transaction were written with, and unset otherwise; `producer_epoch` is the one
that counts, and fences every smaller one. No producer is ever told an epoch past MAX_EPOCH.
After a crash: nothing to do here but to end what is being ended; an ongoing transaction goes on,
and its time has gone on as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NO_PRODUCER = -1
NO_EPOCH = -1
MAX_EPOCH = 2**15 - 2
"""No producer is given a larger epoch: one more is left to fence it with."""

TopicPartition = tuple[str, int]


class TransactionState(Enum):
    """How far a transaction has come, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_ending(self) -> bool:
        """Whether it is decided, and not all partitions are known to have been told."""
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}

    @property
    def is_commit(self) -> bool:
        """Whether it is decided, and to be kept."""
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id's producer and its last transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous_epoch: int = NO_EPOCH
    """What the producer had before `producer_epoch`. A request that comes with it is one whose
    answer was lost. Unset once the newer epoch was used, or given to another producer."""
    previous_producer_id: int = NO_PRODUCER
    """The id that `previous_epoch` belongs to, if it is another one."""
    next_producer_id: int = NO_PRODUCER
    """The id to go on with, at epoch 0, when the transaction that is being ended has ended."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    bumps_epoch: bool = False
    """Whether its client takes a new epoch for each transaction: KIP-890, transaction.version 2."""
    data_epoch: int = NO_EPOCH
    follows_abort: bool = False
    """Whether its producer has aborted and gone on with the same epoch, so that a write which it
    gave up may still be under way. Until a transaction with records is committed, or a new epoch
    is taken."""
    started_ms: int = -1
    updated_ms: int = -1
