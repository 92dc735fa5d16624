"""What happens to a transactional id: each request of its producers, and the passing of time.

    Empty, CompleteCommit, CompleteAbort --add_partitions, admit_write--> Ongoing
    Ongoing --end--> PrepareCommit --completed--> CompleteCommit
    Ongoing --end, init, tick--> PrepareAbort --completed--> CompleteAbort
    Empty, CompleteCommit, CompleteAbort --init--> Empty
    Empty, CompleteCommit, CompleteAbort --end (an abort that gives a new epoch)--> PrepareAbort
    Empty, CompleteCommit, CompleteAbort --tick--> forgotten

A transition takes the transaction as it is and gives it as it will be; the same object means that
nothing is to be stored. What is refused is raised, and nothing has changed.

Invariant: a decision is never taken back: what is prepared can only be completed. The epochs of a
producer id never decrease, and nobody is admitted with an epoch other than the newest. Whoever
fences a producer raises its epoch, so that the markers fence it in the partitions, too.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import (
    ConcurrentTransaction,
    FencedProducer,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    UnknownProducer,
)
from millstream.settings.transactions import TransactionSettings
from millstream.transactions.commands import AddPartitions, End, InitProducer
from millstream.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    TopicPartition,
    Transaction,
    TransactionState,
)

_ONGOING = TransactionState.ONGOING


def needs_new_producer_id(transaction: Transaction | None, command: InitProducer | End) -> bool:
    """Whether the transition must be given a new producer id."""
    if isinstance(command, InitProducer):
        return transaction is None or _rotates_on_init(transaction, command)
    return transaction is not None and _rotates_on_end(transaction, command)


def init(
    transaction: Transaction | None,
    command: InitProducer,
    now_ms: int,
    *,
    new_producer_id: int = NO_PRODUCER,
    settings: TransactionSettings,
) -> Transaction:
    """Give a producer an epoch that nobody else has; first abort what is ongoing.

    Prepared to abort: complete that, then ask again.
    """
    if not 0 < command.timeout_ms <= settings.max_timeout_ms:
        raise InvalidTransactionTimeout(
            timeout_ms=command.timeout_ms, maximum_ms=settings.max_timeout_ms
        )
    if transaction is None:
        # Nothing is known of the id: whoever asks first has it, even with a producer of before.
        assert new_producer_id != NO_PRODUCER
        return _emptied(command, now_ms, producer_id=new_producer_id, producer_epoch=0)
    _check_init(transaction, command)
    if transaction.state.is_ending:
        raise ConcurrentTransaction(transaction.transactional_id)
    if transaction.state is _ONGOING:
        # One that begins anew in the midst of its own transaction may ask again, with the epoch
        # that it knows.
        previous_epoch = transaction.producer_epoch if _brings_producer(command) else NO_EPOCH
        return _fenced(transaction, now_ms, previous_epoch=previous_epoch)
    if _rotates_on_init(transaction, command):
        assert new_producer_id != NO_PRODUCER
        return _emptied(command, now_ms, producer_id=new_producer_id, producer_epoch=0)
    if _is_previous(transaction, command.producer_id, command.producer_epoch):
        return _emptied_again(transaction, command, now_ms)
    return _emptied(
        command,
        now_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch + 1,
    )


def add_partitions(
    transaction: Transaction | None, command: AddPartitions, now_ms: int
) -> Transaction:
    """Let partitions take part in the transaction, which begins with the first of them."""
    if transaction is None:
        raise UnknownProducer(
            transactional_id=command.transactional_id, producer_id=command.producer_id
        )
    _check_producer(transaction, command.producer_id, command.producer_epoch)
    if transaction.state.is_ending:
        raise ConcurrentTransaction(transaction.transactional_id)
    return _extended(transaction, command.partitions, now_ms, bumps_epoch=False)


def admit_write(
    transaction: Transaction,
    producer_id: int,
    producer_epoch: int,
    partition: TopicPartition,
    now_ms: int,
    *,
    adds: bool,
    also: frozenset[TopicPartition] = frozenset(),
) -> Transaction:
    """Let records into a partition, which must take part, or does from now on (`adds`).

    Then so do `also` those that are about to be asked for: each time costs as much as there are.

    Asked for every batch: for a partition that takes part it is but a few comparisons.
    """
    if (
        transaction.state is _ONGOING
        and transaction.producer_epoch == producer_epoch
        and transaction.producer_id == producer_id
        and partition in transaction.partitions
    ):
        return transaction
    _check_producer(transaction, producer_id, producer_epoch)
    if transaction.state.is_ending:
        raise ConcurrentTransaction(transaction.transactional_id)
    if not adds:
        raise _refusal(transaction, f"write to {partition[0]}/{partition[1]}, which is not in it")
    return _extended(transaction, also | {partition}, now_ms, bumps_epoch=True)


def end(
    transaction: Transaction | None,
    command: End,
    now_ms: int,
    *,
    new_producer_id: int = NO_PRODUCER,
    has_records: bool = False,
) -> Transaction:
    """Decide. The same object: it was decided so before, and is complete.

    `has_records` says that records were written, all of them through one connection.
    """
    if transaction is None:
        raise UnknownProducer(
            transactional_id=command.transactional_id, producer_id=command.producer_id
        )
    operation = "be committed" if command.is_commit else "be aborted"
    if _repeats_end(transaction, command):
        if transaction.state.is_commit != command.is_commit:
            raise _refusal(transaction, operation)
        if transaction.state.is_ending:
            raise ConcurrentTransaction(transaction.transactional_id)
        return transaction
    _check_producer(transaction, command.producer_id, command.producer_epoch)
    if transaction.state.is_ending:
        raise ConcurrentTransaction(transaction.transactional_id)
    if not _can_end(transaction, command):
        raise _refusal(transaction, operation)
    follows_abort = not command.bumps_epoch and (
        not command.is_commit or (transaction.follows_abort and not has_records)
    )
    prepared = _prepared(transaction, command, now_ms, new_producer_id)
    return replace(prepared, follows_abort=follows_abort)


def completed(transaction: Transaction, now_ms: int) -> Transaction:
    """All partitions have been told."""
    assert transaction.state.is_ending
    was_committed = transaction.state.is_commit
    done = replace(
        transaction,
        state=TransactionState.COMPLETE_COMMIT
        if was_committed
        else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        data_epoch=NO_EPOCH,
        updated_ms=now_ms,
    )
    if transaction.next_producer_id == NO_PRODUCER:
        return done
    return replace(
        done,
        producer_id=transaction.next_producer_id,
        producer_epoch=0,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER,
    )


def may_take_up(transaction: Transaction, epoch: int) -> bool:
    """Whether records that a partition has, and the coordinator forgot, are still its producer's.

    It was told of none of them, and will send them again.
    """
    return epoch == transaction.producer_epoch <= MAX_EPOCH and not transaction.state.is_ending


def taken_up(transaction: Transaction, partition: TopicPartition, now_ms: int) -> Transaction:
    """Let the partition that has them take part, as if it had always done so."""
    return _extended(
        transaction, frozenset({partition}), now_ms, bumps_epoch=transaction.bumps_epoch
    )


def is_fenced(transaction: Transaction) -> bool:
    """Whether it is being ended without its producer's doing, which cannot go on."""
    assert transaction.state.is_ending
    return transaction.producer_epoch != transaction.data_epoch and not transaction.bumps_epoch


def marker_epoch(transaction: Transaction) -> int:
    """The epoch of the markers. Whatever is smaller is fenced by them."""
    assert transaction.state.is_ending
    return transaction.producer_epoch


def is_commit(transaction: Transaction) -> bool:
    """Which markers to write."""
    assert transaction.state.is_ending
    return transaction.state.is_commit


def deadline_ms(transaction: Transaction, settings: TransactionSettings) -> int | None:
    """When something happens by itself: see `tick`."""
    if transaction.state is _ONGOING:
        return transaction.started_ms + transaction.timeout_ms
    if transaction.state.is_ending:
        return None
    return transaction.updated_ms + settings.id_expiration_ms


def tick(
    transaction: Transaction, now_ms: int, settings: TransactionSettings
) -> Transaction | None:
    """Abort what took too long, and fence its producer; forget (None) what nobody uses.

    A producer that takes new epochs may still ask to abort it, and is then told the new one: it
    goes on with the next transaction. Any other has to begin anew.
    """
    deadline = deadline_ms(transaction, settings)
    if deadline is None or now_ms < deadline:
        return transaction
    if transaction.state is not _ONGOING:
        return None
    if transaction.bumps_epoch and transaction.producer_epoch < MAX_EPOCH:
        aborted = _fenced(transaction, now_ms, previous_epoch=transaction.producer_epoch)
        return replace(aborted, bumps_epoch=True)
    return _fenced(transaction, now_ms, previous_epoch=NO_EPOCH)


def _emptied(
    command: InitProducer, now_ms: int, *, producer_id: int, producer_epoch: int
) -> Transaction:
    """A new epoch, by which every other producer is fenced.

    Only one that brought its epoch can be told apart when it asks again; for others nothing of
    before counts.
    """
    brought = _brings_producer(command)
    is_other_id = producer_id != command.producer_id
    return Transaction(
        transactional_id=command.transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_epoch=command.producer_epoch if brought else NO_EPOCH,
        previous_producer_id=command.producer_id if brought and is_other_id else NO_PRODUCER,
        timeout_ms=command.timeout_ms,
        updated_ms=now_ms,
    )


def _emptied_again(transaction: Transaction, command: InitProducer, now_ms: int) -> Transaction:
    """The answer was lost; it is the same again."""
    if transaction.state is TransactionState.EMPTY and transaction.timeout_ms == command.timeout_ms:
        return transaction
    return replace(
        transaction,
        timeout_ms=command.timeout_ms,
        state=TransactionState.EMPTY,
        bumps_epoch=False,
        follows_abort=False,
        started_ms=-1,
        updated_ms=now_ms,
    )


def _extended(
    transaction: Transaction,
    partitions: frozenset[TopicPartition],
    now_ms: int,
    *,
    bumps_epoch: bool,
) -> Transaction:
    if partitions <= transaction.partitions:
        return transaction
    if transaction.state is _ONGOING:
        return replace(
            transaction, partitions=transaction.partitions | partitions, updated_ms=now_ms
        )
    # Whoever begins has been told its epoch: the one before is of no use any more.
    return replace(
        transaction,
        previous_epoch=NO_EPOCH,
        previous_producer_id=NO_PRODUCER,
        state=_ONGOING,
        partitions=partitions,
        bumps_epoch=bumps_epoch,
        data_epoch=transaction.producer_epoch,
        started_ms=now_ms,
        updated_ms=now_ms,
    )


def _prepared(
    transaction: Transaction, command: End, now_ms: int, new_producer_id: int
) -> Transaction:
    rotates = _rotates_on_end(transaction, command)
    assert not rotates or new_producer_id != NO_PRODUCER
    is_ongoing = transaction.state is _ONGOING
    epoch = transaction.producer_epoch
    return replace(
        transaction,
        producer_epoch=epoch + 1 if command.bumps_epoch else epoch,
        previous_epoch=epoch if command.bumps_epoch else NO_EPOCH,
        previous_producer_id=NO_PRODUCER,
        next_producer_id=new_producer_id if rotates else NO_PRODUCER,
        state=TransactionState.PREPARE_COMMIT
        if command.is_commit
        else TransactionState.PREPARE_ABORT,
        bumps_epoch=command.bumps_epoch,
        data_epoch=epoch,
        started_ms=transaction.started_ms if is_ongoing else now_ms,
        updated_ms=now_ms,
    )


def _fenced(transaction: Transaction, now_ms: int, *, previous_epoch: int) -> Transaction:
    """Abort without the producer's doing. It may still come with `previous_epoch`, if set."""
    assert transaction.state is _ONGOING
    return replace(
        transaction,
        producer_epoch=transaction.producer_epoch + 1,
        previous_epoch=previous_epoch,
        state=TransactionState.PREPARE_ABORT,
        bumps_epoch=False,
        follows_abort=False,
        updated_ms=now_ms,
    )


def _check_init(transaction: Transaction, command: InitProducer) -> None:
    """A producer that goes on must be the newest, or have been told of nothing since (KIP-360)."""
    pair = command.producer_id, command.producer_epoch
    is_known = _is_current(transaction, *pair) or _is_previous(transaction, *pair)
    if _brings_producer(command) and not is_known:
        raise FencedProducer(
            transaction.transactional_id,
            epoch=command.producer_epoch,
            current_epoch=transaction.producer_epoch,
        )


def _check_producer(transaction: Transaction, producer_id: int, producer_epoch: int) -> None:
    if producer_id != transaction.producer_id:
        raise UnknownProducer(
            transactional_id=transaction.transactional_id, producer_id=producer_id
        )
    if not _is_current(transaction, producer_id, producer_epoch):
        raise FencedProducer(
            transaction.transactional_id,
            epoch=producer_epoch,
            current_epoch=transaction.producer_epoch,
        )


def _refusal(transaction: Transaction, operation: str) -> InvalidTransactionState:
    return InvalidTransactionState(
        identity=transaction.transactional_id, state=transaction.state.value, operation=operation
    )


def _brings_producer(command: InitProducer) -> bool:
    return command.producer_id != NO_PRODUCER


def _is_current(transaction: Transaction, producer_id: int, producer_epoch: int) -> bool:
    return (
        producer_id == transaction.producer_id
        and producer_epoch == transaction.producer_epoch
        and producer_epoch <= MAX_EPOCH  # the one after it was given to nobody
    )


def _is_previous(transaction: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Whether this is what the producer had before the answer that it may have missed."""
    if transaction.previous_epoch == NO_EPOCH or producer_epoch != transaction.previous_epoch:
        return False
    if transaction.previous_producer_id != NO_PRODUCER:
        return producer_id == transaction.previous_producer_id
    return producer_id == transaction.producer_id


def _repeats_end(transaction: Transaction, command: End) -> bool:
    """Whether the producer asks again for what it has asked for.

    One that takes new epochs comes with the epoch of before: with the newest one, it means the
    next transaction. One that does not can mean the last only, as an empty one is not ended.
    """
    if transaction.state in {TransactionState.EMPTY, _ONGOING}:
        return False
    if command.bumps_epoch:
        return transaction.bumps_epoch and _is_previous(
            transaction, command.producer_id, command.producer_epoch
        )
    return _is_current(transaction, command.producer_id, command.producer_epoch)


def _can_end(transaction: Transaction, command: End) -> bool:
    """A producer that takes new epochs may abort what has not begun (KIP-890).

    It cannot know whether its first write has arrived, and wants to be sure that it will not.
    """
    return transaction.state is _ONGOING or (command.bumps_epoch and not command.is_commit)


def _rotates_on_init(transaction: Transaction, command: InitProducer) -> bool:
    """Whether the epochs are used up, so that the producer gets another id."""
    if transaction.state is _ONGOING or transaction.state.is_ending:
        return False
    if transaction.producer_epoch < MAX_EPOCH:
        return False
    pair = command.producer_id, command.producer_epoch
    if not _brings_producer(command) or _is_current(transaction, *pair):
        return True
    # Fenced by its own wish with the very last epoch, which is given to nobody.
    return transaction.producer_epoch > MAX_EPOCH and _is_previous(transaction, *pair)


def _rotates_on_end(transaction: Transaction, command: End) -> bool:
    return (
        command.bumps_epoch
        and transaction.producer_epoch >= MAX_EPOCH
        and not transaction.state.is_ending
        and _is_current(transaction, command.producer_id, command.producer_epoch)
        and _can_end(transaction, command)
    )
