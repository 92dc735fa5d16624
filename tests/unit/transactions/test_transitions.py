"""What each request does to a transaction, and what it is told otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.errors import (
    ConcurrentTransaction,
    FencedProducer,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    MillstreamError,
    UnknownProducer,
)
from millstream.settings.transactions import TransactionSettings
from millstream.transactions.commands import AddPartitions, End, InitProducer
from millstream.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    Transaction,
    TransactionState,
)
from millstream.transactions.transitions import (
    add_partitions,
    admit_write,
    completed,
    deadline_ms,
    end,
    init,
    is_commit,
    marker_epoch,
    needs_new_producer_id,
    tick,
)

ID = "payments"
PRODUCER = 7
EPOCH = 5
TIMEOUT_MS = 60_000
A, B = ("a", 0), ("b", 1)
SETTINGS = TransactionSettings(max_timeout_ms=900_000, id_expiration_ms=1_000_000)

EMPTY = Transaction(
    transactional_id=ID,
    producer_id=PRODUCER,
    producer_epoch=EPOCH,
    timeout_ms=TIMEOUT_MS,
    updated_ms=10,
)
ONGOING = replace(
    EMPTY,
    state=TransactionState.ONGOING,
    partitions=frozenset({A}),
    data_epoch=EPOCH,
    started_ms=100,
    updated_ms=100,
)
EXHAUSTED = replace(ONGOING, producer_epoch=MAX_EPOCH, data_epoch=MAX_EPOCH)


def begun(transaction: Transaction = EMPTY) -> Transaction:
    return admit_write(
        transaction, transaction.producer_id, transaction.producer_epoch, A, 100, adds=True
    )


def adding(*partitions: tuple[str, int], epoch: int = EPOCH) -> AddPartitions:
    return AddPartitions(ID, PRODUCER, epoch, frozenset(partitions))


def ending(
    transaction: Transaction = ONGOING, *, is_commit: bool = True, bumps_epoch: bool = False
) -> End:
    return End(ID, transaction.producer_id, transaction.producer_epoch, is_commit, bumps_epoch)


def started(
    transaction: Transaction | None, *producer: int, new_id: int = NO_PRODUCER
) -> Transaction:
    command = InitProducer(ID, TIMEOUT_MS, *producer)
    assert needs_new_producer_id(transaction, command) == (new_id != NO_PRODUCER)
    return init(transaction, command, 200, new_producer_id=new_id, settings=SETTINGS)


def ended(transaction: Transaction, command: End) -> Transaction:
    return completed(end(transaction, command, 200), 300)


def producer_of(transaction: Transaction) -> tuple[int, int]:
    return transaction.producer_id, transaction.producer_epoch


class TestInit:
    def test_unknown_id_gets_a_new_producer(self) -> None:
        assert started(None, new_id=9) == Transaction(
            transactional_id=ID,
            producer_id=9,
            producer_epoch=0,
            timeout_ms=TIMEOUT_MS,
            updated_ms=200,
        )

    def test_forgotten_producer_gets_a_new_id_and_may_ask_again(self) -> None:
        known = started(None, 3, 8, new_id=9)
        assert producer_of(known) == (9, 0)
        assert started(known, 3, 8) is known

    def test_new_producer_gets_the_next_epoch_and_cannot_be_repeated(self) -> None:
        known = started(EMPTY)
        assert producer_of(known) == (PRODUCER, EPOCH + 1)
        assert known.previous_epoch == NO_EPOCH
        with pytest.raises(FencedProducer):
            started(known, PRODUCER, EPOCH)

    def test_producer_that_goes_on_gets_the_next_epoch_once(self) -> None:
        known = started(EMPTY, PRODUCER, EPOCH)
        assert producer_of(known) == (PRODUCER, EPOCH + 1)
        assert started(known, PRODUCER, EPOCH) is known

    def test_repeat_with_another_timeout_keeps_the_epoch(self) -> None:
        known = started(EMPTY, PRODUCER, EPOCH)
        command = InitProducer(ID, 5, PRODUCER, EPOCH)
        again = init(known, command, 300, settings=SETTINGS)
        assert again == replace(known, timeout_ms=5, updated_ms=300)

    @pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
    @pytest.mark.parametrize("transaction", [EMPTY, ONGOING])
    def test_other_epoch_is_fenced(self, transaction: Transaction, epoch: int) -> None:
        with pytest.raises(FencedProducer):
            started(transaction, PRODUCER, epoch)

    def test_other_producer_is_fenced(self) -> None:
        with pytest.raises(FencedProducer):
            started(EMPTY, PRODUCER + 1, EPOCH)

    def test_ongoing_transaction_is_aborted_with_an_epoch_that_fences(self) -> None:
        fenced = started(ONGOING)
        assert fenced.state is TransactionState.PREPARE_ABORT
        assert (marker_epoch(fenced), fenced.data_epoch) == (EPOCH + 1, EPOCH)
        assert fenced.partitions == {A}
        aborted = completed(fenced, 300)
        with pytest.raises(FencedProducer):
            started(aborted, PRODUCER, EPOCH)
        assert producer_of(started(aborted)) == (PRODUCER, EPOCH + 2)

    def test_producer_may_begin_anew_within_its_own_transaction(self) -> None:
        fenced = started(ONGOING, PRODUCER, EPOCH)
        assert marker_epoch(fenced) == EPOCH + 1
        known = started(completed(fenced, 300), PRODUCER, EPOCH)
        assert producer_of(known) == (PRODUCER, EPOCH + 1)
        assert known.state is TransactionState.EMPTY

    def test_late_repeat_does_not_disturb_the_transaction_that_followed(self) -> None:
        ongoing = begun(started(EMPTY, PRODUCER, EPOCH))
        with pytest.raises(FencedProducer):
            started(ongoing, PRODUCER, EPOCH)

    @pytest.mark.parametrize("bumps_epoch", [False, True])
    def test_transaction_that_is_being_ended_is_waited_for(self, bumps_epoch: bool) -> None:
        prepared = end(ONGOING, ending(bumps_epoch=bumps_epoch), 200)
        with pytest.raises(ConcurrentTransaction):
            started(prepared)
        with pytest.raises(ConcurrentTransaction):
            started(prepared, PRODUCER, EPOCH)

    def test_lost_answer_to_an_end_is_made_up_for(self) -> None:
        known = started(ended(ONGOING, ending(bumps_epoch=True)), PRODUCER, EPOCH)
        assert producer_of(known) == (PRODUCER, EPOCH + 1)
        assert known.state is TransactionState.EMPTY
        assert known.started_ms == -1

    @pytest.mark.parametrize("timeout_ms", [-1, 0, SETTINGS.max_timeout_ms + 1])
    def test_timeout_must_be_within_its_limits(self, timeout_ms: int) -> None:
        command = InitProducer(ID, timeout_ms)
        with pytest.raises(InvalidTransactionTimeout):
            init(None, command, 0, new_producer_id=9, settings=SETTINGS)


class TestExhaustedEpochs:
    def test_new_producer_gets_another_id(self) -> None:
        known = started(replace(EMPTY, producer_epoch=MAX_EPOCH), new_id=9)
        assert producer_of(known) == (9, 0)
        assert known.previous_producer_id == NO_PRODUCER

    def test_producer_that_goes_on_gets_another_id_once(self) -> None:
        known = started(replace(EMPTY, producer_epoch=MAX_EPOCH), PRODUCER, MAX_EPOCH, new_id=9)
        assert producer_of(known) == (9, 0)
        assert started(known, PRODUCER, MAX_EPOCH) is known
        with pytest.raises(FencedProducer):
            started(known, PRODUCER, MAX_EPOCH - 1)

    def test_last_epoch_is_given_before_another_id(self) -> None:
        known = started(replace(EMPTY, producer_epoch=MAX_EPOCH - 1))
        assert producer_of(known) == (PRODUCER, MAX_EPOCH)

    @pytest.mark.parametrize("producer", [(), (PRODUCER, MAX_EPOCH)])
    def test_epoch_that_fences_the_last_is_given_to_nobody(self, producer: tuple[int, ...]) -> None:
        fenced = started(EXHAUSTED, *producer)
        assert marker_epoch(fenced) == MAX_EPOCH + 1
        known = started(completed(fenced, 300), *producer, new_id=9)
        assert producer_of(known) == (9, 0)

    def test_end_goes_on_with_another_id(self) -> None:
        command = ending(EXHAUSTED, bumps_epoch=True)
        assert needs_new_producer_id(EXHAUSTED, command)
        prepared = end(EXHAUSTED, command, 200, new_producer_id=9)
        assert producer_of(prepared) == (PRODUCER, MAX_EPOCH + 1)
        assert prepared.next_producer_id == 9
        with pytest.raises(ConcurrentTransaction):
            end(prepared, command, 200)
        done = completed(prepared, 300)
        assert producer_of(done) == (9, 0)
        assert not needs_new_producer_id(done, command)
        assert end(done, command, 400) is done
        assert producer_of(started(done, PRODUCER, MAX_EPOCH)) == (9, 0)

    def test_end_without_new_epochs_keeps_the_id(self) -> None:
        command = ending(EXHAUSTED)
        assert not needs_new_producer_id(EXHAUSTED, command)
        assert producer_of(ended(EXHAUSTED, command)) == (PRODUCER, MAX_EPOCH)

    def test_abort_of_nothing_goes_on_with_another_id(self) -> None:
        empty = replace(EMPTY, producer_epoch=MAX_EPOCH)
        command = ending(empty, is_commit=False, bumps_epoch=True)
        assert needs_new_producer_id(empty, command)
        assert producer_of(completed(end(empty, command, 0, new_producer_id=9), 0)) == (9, 0)

    def test_commit_of_nothing_takes_no_id(self) -> None:
        empty = replace(EMPTY, producer_epoch=MAX_EPOCH)
        assert not needs_new_producer_id(empty, ending(empty, bumps_epoch=True))

    def test_end_that_has_to_wait_takes_no_id(self) -> None:
        prepared = end(EXHAUSTED, ending(EXHAUSTED), 200)
        command = ending(prepared, is_commit=False, bumps_epoch=True)
        assert not needs_new_producer_id(prepared, command)
        with pytest.raises(ConcurrentTransaction):
            end(prepared, command, 200)

    def test_invented_epoch_is_fenced(self) -> None:
        late = tick(EXHAUSTED, 100 + TIMEOUT_MS, SETTINGS)
        assert late is not None
        done = completed(late, 300)
        assert done.producer_epoch == MAX_EPOCH + 1
        with pytest.raises(FencedProducer):
            admit_write(done, PRODUCER, MAX_EPOCH + 1, A, 0, adds=True)
        with pytest.raises(FencedProducer):
            end(done, ending(done, is_commit=False, bumps_epoch=True), 0)
        with pytest.raises(FencedProducer):
            started(done, PRODUCER, MAX_EPOCH + 1)


class TestAddPartitions:
    def test_first_partition_begins_the_transaction(self) -> None:
        assert add_partitions(EMPTY, adding(A), 100) == ONGOING

    def test_more_partitions_join_in(self) -> None:
        more = add_partitions(ONGOING, adding(A, B), 150)
        assert more == replace(ONGOING, partitions=frozenset({A, B}), updated_ms=150)

    def test_repeat_changes_nothing(self) -> None:
        assert add_partitions(ONGOING, adding(A), 150) is ONGOING

    def test_no_partitions_begin_nothing(self) -> None:
        assert add_partitions(EMPTY, adding(), 150) is EMPTY

    def test_next_transaction_begins_after_the_last_is_complete(self) -> None:
        again = add_partitions(ended(ONGOING, ending()), adding(B), 400)
        assert again == replace(ONGOING, partitions=frozenset({B}), started_ms=400, updated_ms=400)

    @pytest.mark.parametrize(
        ("transaction", "command", "error"),
        [
            (None, adding(A), UnknownProducer),
            (EMPTY, adding(A)._replace(producer_id=8), UnknownProducer),
            (ONGOING, adding(A, epoch=EPOCH - 1), FencedProducer),
            (ONGOING, adding(A, epoch=EPOCH + 1), FencedProducer),
            (end(ONGOING, ending(), 0), adding(B), ConcurrentTransaction),
            (end(ONGOING, ending(bumps_epoch=True), 0), adding(B), FencedProducer),
        ],
    )
    def test_refusals(
        self, transaction: Transaction | None, command: AddPartitions, error: type[MillstreamError]
    ) -> None:
        with pytest.raises(error):
            add_partitions(transaction, command, 0)


class TestAdmitWrite:
    def test_partition_in_the_transaction_is_admitted(self) -> None:
        assert admit_write(ONGOING, PRODUCER, EPOCH, A, 150, adds=False) is ONGOING

    @pytest.mark.parametrize("transaction", [EMPTY, ONGOING, ended(ONGOING, ending())])
    def test_other_partition_must_be_added_first(self, transaction: Transaction) -> None:
        with pytest.raises(InvalidTransactionState):
            admit_write(transaction, PRODUCER, EPOCH, B, 150, adds=False)

    @pytest.mark.parametrize("transaction", [EMPTY, ONGOING, ended(ONGOING, ending())])
    def test_other_partition_is_added_on_the_way(self, transaction: Transaction) -> None:
        written = admit_write(transaction, PRODUCER, EPOCH, B, 150, adds=True)
        assert written.state is TransactionState.ONGOING
        assert written.partitions == transaction.partitions | {B}
        assert written.data_epoch == EPOCH

    @pytest.mark.parametrize("adds", [False, True])
    def test_other_producers_are_refused(self, adds: bool) -> None:
        with pytest.raises(UnknownProducer):
            admit_write(ONGOING, PRODUCER + 1, EPOCH, A, 150, adds=adds)
        for epoch in (EPOCH - 1, EPOCH + 1):
            with pytest.raises(FencedProducer):
                admit_write(ONGOING, PRODUCER, epoch, A, 150, adds=adds)

    @pytest.mark.parametrize("adds", [False, True])
    def test_nothing_is_written_while_it_is_being_ended(self, adds: bool) -> None:
        same_epoch = end(ONGOING, ending(), 0)
        with pytest.raises(ConcurrentTransaction):
            admit_write(same_epoch, PRODUCER, EPOCH, A, 150, adds=adds)
        next_epoch = end(ONGOING, ending(bumps_epoch=True), 0)
        with pytest.raises(FencedProducer):
            admit_write(next_epoch, PRODUCER, EPOCH, A, 150, adds=adds)


class TestEnd:
    @pytest.mark.parametrize("wants_commit", [False, True])
    def test_old_client_keeps_its_epoch(self, wants_commit: bool) -> None:
        prepared = end(ONGOING, ending(is_commit=wants_commit), 200)
        assert is_commit(prepared) is wants_commit
        assert marker_epoch(prepared) == EPOCH
        done = completed(prepared, 300)
        assert producer_of(done) == (PRODUCER, EPOCH)
        assert done.partitions == frozenset()
        assert (done.started_ms, done.updated_ms) == (100, 300)

    @pytest.mark.parametrize("wants_commit", [False, True])
    def test_new_client_gets_the_next_epoch(self, wants_commit: bool) -> None:
        prepared = end(ONGOING, ending(is_commit=wants_commit, bumps_epoch=True), 200)
        assert is_commit(prepared) is wants_commit
        assert (marker_epoch(prepared), prepared.data_epoch) == (EPOCH + 1, EPOCH)
        assert producer_of(completed(prepared, 300)) == (PRODUCER, EPOCH + 1)

    @pytest.mark.parametrize("bumps_epoch", [False, True])
    @pytest.mark.parametrize("wants_commit", [False, True])
    def test_repeat_is_answered_and_never_turned_round(
        self, wants_commit: bool, bumps_epoch: bool
    ) -> None:
        command = ending(is_commit=wants_commit, bumps_epoch=bumps_epoch)
        opposite = command._replace(is_commit=not wants_commit)
        prepared = end(ONGOING, command, 200)
        with pytest.raises(ConcurrentTransaction):
            end(prepared, command, 250)
        with pytest.raises(InvalidTransactionState):
            end(prepared, opposite, 250)
        done = completed(prepared, 300)
        assert end(done, command, 350) is done
        with pytest.raises(InvalidTransactionState):
            end(done, opposite, 350)

    def test_repeat_comes_too_late_once_the_next_has_begun(self) -> None:
        command = ending(bumps_epoch=True)
        with pytest.raises(FencedProducer):
            end(begun(ended(ONGOING, command)), command, 400)

    @pytest.mark.parametrize(
        "transaction",
        [EMPTY, ended(ONGOING, ending()), ended(ONGOING, ending(bumps_epoch=True))],
    )
    def test_new_client_may_abort_what_has_not_begun(self, transaction: Transaction) -> None:
        command = ending(transaction, is_commit=False, bumps_epoch=True)
        prepared = end(transaction, command, 400)
        assert prepared.state is TransactionState.PREPARE_ABORT
        assert prepared.partitions == frozenset()
        assert prepared.started_ms == 400
        done = completed(prepared, 500)
        assert producer_of(done) == (PRODUCER, transaction.producer_epoch + 1)
        assert end(done, command, 600) is done

    @pytest.mark.parametrize(
        "transaction",
        [EMPTY, ended(ONGOING, ending()), ended(ONGOING, ending(bumps_epoch=True))],
    )
    def test_new_client_cannot_commit_what_has_not_begun(self, transaction: Transaction) -> None:
        with pytest.raises(InvalidTransactionState):
            end(transaction, ending(transaction, bumps_epoch=True), 400)

    @pytest.mark.parametrize("wants_commit", [False, True])
    def test_old_client_cannot_end_what_has_not_begun(self, wants_commit: bool) -> None:
        with pytest.raises(InvalidTransactionState):
            end(EMPTY, ending(is_commit=wants_commit), 400)

    @pytest.mark.parametrize("bumps_epoch", [False, True])
    def test_other_producers_are_refused(self, bumps_epoch: bool) -> None:
        command = ending(bumps_epoch=bumps_epoch)
        with pytest.raises(UnknownProducer):
            end(None, command, 0)
        with pytest.raises(UnknownProducer):
            end(ONGOING, command._replace(producer_id=8), 0)
        for epoch in (EPOCH - 1, EPOCH + 1):
            with pytest.raises(FencedProducer):
                end(ONGOING, command._replace(producer_epoch=epoch), 0)

    @pytest.mark.parametrize("producer", [(), (PRODUCER, EPOCH)])
    @pytest.mark.parametrize("bumps_epoch", [False, True])
    @pytest.mark.parametrize("wants_commit", [False, True])
    def test_fenced_producer_does_not_take_the_abort_for_its_own(
        self, wants_commit: bool, bumps_epoch: bool, producer: tuple[int, ...]
    ) -> None:
        fenced = started(ONGOING, *producer)
        command = ending(is_commit=wants_commit, bumps_epoch=bumps_epoch)
        for transaction in (fenced, completed(fenced, 300)):
            with pytest.raises(FencedProducer):
                end(transaction, command, 400)

    def test_clients_of_both_kinds_take_turns(self) -> None:
        new = ended(begun(EMPTY), ending(EMPTY, bumps_epoch=True))
        old = ended(add_partitions(new, adding(A, epoch=EPOCH + 1), 0), ending(new))
        assert producer_of(old) == (PRODUCER, EPOCH + 1)
        assert end(old, ending(new), 0) is old
        again = ended(begun(old), ending(old, is_commit=False, bumps_epoch=True))
        assert producer_of(again) == (PRODUCER, EPOCH + 2)
        assert again.state is TransactionState.COMPLETE_ABORT


def test_partitions_that_are_about_to_be_asked_for_are_added_with_the_first() -> None:
    places = frozenset({("t", number) for number in range(100)})
    begun = admit_write(EMPTY, PRODUCER, EPOCH, ("t", 3), 7, adds=True, also=places)
    assert begun.partitions == places
    assert admit_write(begun, PRODUCER, EPOCH, ("t", 99), 8, adds=True, also=places) is begun


class TestTick:
    def test_ongoing_transaction_is_aborted_when_its_time_is_up(self) -> None:
        due_ms = deadline_ms(ONGOING, SETTINGS)
        assert due_ms == 100 + TIMEOUT_MS
        assert tick(ONGOING, due_ms - 1, SETTINGS) is ONGOING
        late = tick(ONGOING, due_ms, SETTINGS)
        assert late is not None
        assert late.state is TransactionState.PREPARE_ABORT
        assert (marker_epoch(late), late.data_epoch) == (EPOCH + 1, EPOCH)
        with pytest.raises(FencedProducer):
            started(completed(late, due_ms), PRODUCER, EPOCH)

    def test_producer_that_takes_new_epochs_may_go_on_after_it_was_too_slow(self) -> None:
        slow = replace(ONGOING, bumps_epoch=True)
        late = tick(slow, 100 + TIMEOUT_MS, SETTINGS)
        assert late is not None
        aborted = completed(late, 0)
        repeat = End(aborted.transactional_id, PRODUCER, EPOCH, is_commit=False, bumps_epoch=True)
        assert end(aborted, repeat, 0) is aborted
        with pytest.raises(InvalidTransactionState):
            end(aborted, repeat._replace(is_commit=True), 0)

    def test_more_partitions_give_no_more_time(self) -> None:
        more = add_partitions(ONGOING, adding(B), 5000)
        assert deadline_ms(more, SETTINGS) == deadline_ms(ONGOING, SETTINGS)

    @pytest.mark.parametrize("transaction", [EMPTY, ended(ONGOING, ending())])
    def test_unused_id_is_forgotten(self, transaction: Transaction) -> None:
        due_ms = transaction.updated_ms + SETTINGS.id_expiration_ms
        assert deadline_ms(transaction, SETTINGS) == due_ms
        assert tick(transaction, due_ms - 1, SETTINGS) is transaction
        assert tick(transaction, due_ms, SETTINGS) is None

    def test_what_is_decided_has_no_deadline(self) -> None:
        prepared = end(ONGOING, ending(), 200)
        assert deadline_ms(prepared, SETTINGS) is None
        assert tick(prepared, 10**12, SETTINGS) is prepared
