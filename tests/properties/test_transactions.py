"""Transactions under whatever is asked of them, by whomever, in whatever order.

Two models. In the first, requests come with all kinds of epochs, newest, older and invented ones,
and nothing that must never happen does. In the second, a producer does all right, but answers are
lost and the coordinator crashes: it must never be fenced, and get what it asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millstream.errors import (
    ConcurrentTransaction,
    FencedProducer,
    InvalidTransactionState,
    MillstreamError,
)
from millstream.settings.transactions import TransactionSettings
from millstream.transactions import transitions
from millstream.transactions.commands import AddPartitions, End, InitProducer
from millstream.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    TopicPartition,
    Transaction,
    TransactionState,
)
from millstream.transactions.transaction_records import decode, encode
from tests.fakes.examples import examples

pytestmark = pytest.mark.hypothesis

ID = "payments"
TIMEOUT_MS = 1000
SETTINGS = TransactionSettings(id_expiration_ms=100 * TIMEOUT_MS)
NOBODY = (NO_PRODUCER, NO_EPOCH)

Producer = tuple[int, int]
"""Its id and its epoch. New ids are larger, so a newer producer is larger, too."""

FOLLOWING = {
    TransactionState.EMPTY: {"Empty", "Ongoing", "PrepareAbort"},
    TransactionState.ONGOING: {"Ongoing", "PrepareCommit", "PrepareAbort"},
    TransactionState.PREPARE_COMMIT: {"CompleteCommit"},
    TransactionState.PREPARE_ABORT: {"CompleteAbort"},
    TransactionState.COMPLETE_COMMIT: {"Empty", "Ongoing", "PrepareAbort"},
    TransactionState.COMPLETE_ABORT: {"Empty", "Ongoing", "PrepareAbort"},
}

partitions = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1))


def producer_of(transaction: Transaction) -> Producer:
    return transaction.producer_id, transaction.producer_epoch


class Coordinator:
    """The least that a runner does, with every value stored and read again."""

    def __init__(self) -> None:
        self.transaction: Transaction | None = None
        self.newest = NOBODY
        self.now_ms = 0
        self.last_id = 6

    def begin_at(self, epoch: int) -> None:
        """Skip most epochs of the first producer."""
        self.init(InitProducer(ID, TIMEOUT_MS))
        assert self.transaction is not None
        self.transaction = replace(self.transaction, producer_epoch=epoch)
        self.newest = producer_of(self.transaction)

    def init(self, command: InitProducer) -> Transaction:
        """As one request: what is ongoing is aborted on the way."""
        known = self.apply(lambda: self._init(command))
        if known.state.is_ending:
            self.complete()
            known = self.apply(lambda: self._init(command))
        assert known.state is TransactionState.EMPTY
        return known

    def add(self, command: AddPartitions) -> Transaction:
        return self.apply(
            lambda: transitions.add_partitions(self.transaction, command, self.now_ms)
        )

    def write(self, producer: Producer, partition: TopicPartition, *, adds: bool) -> Transaction:
        transaction = self.transaction
        assert transaction is not None
        return self.apply(
            lambda: transitions.admit_write(
                transaction, *producer, partition, self.now_ms, adds=adds
            )
        )

    def end(self, command: End) -> Transaction:
        return self.apply(lambda: self._end(command))

    def complete(self) -> Transaction:
        transaction = self.transaction
        assert transaction is not None
        return self.apply(lambda: transitions.completed(transaction, self.now_ms))

    def tick(self) -> None:
        if self.transaction is None:
            return
        ticked = transitions.tick(self.transaction, self.now_ms, SETTINGS)
        if ticked is None:
            assert self.transaction.state not in {
                TransactionState.ONGOING,
                TransactionState.PREPARE_ABORT,
                TransactionState.PREPARE_COMMIT,
            }
            self.transaction = None
        else:
            self.apply(lambda: ticked)

    def apply(self, transition: Callable[[], Transaction]) -> Transaction:
        before = self.transaction
        after = transition()
        if before is not None and after is not before:
            assert after.state.value in FOLLOWING[before.state]
        check(after)
        assert producer_of(after) >= self.newest
        self.newest = producer_of(after)
        assert decode(*encode(after)) == (ID, after)
        self.transaction = after
        return after

    def _init(self, command: InitProducer) -> Transaction:
        new_id = self._new_id(command)
        try:
            known = transitions.init(
                self.transaction, command, self.now_ms, new_producer_id=new_id, settings=SETTINGS
            )
        except MillstreamError:
            assert new_id == NO_PRODUCER, "an id was spent on what is refused"
            raise
        assert new_id in {NO_PRODUCER, known.producer_id}
        return known

    def _end(self, command: End) -> Transaction:
        new_id = self._new_id(command)
        try:
            known = transitions.end(self.transaction, command, self.now_ms, new_producer_id=new_id)
        except MillstreamError:
            assert new_id == NO_PRODUCER, "an id was spent on what is refused"
            raise
        assert new_id in {NO_PRODUCER, known.next_producer_id}
        return known

    def _new_id(self, command: InitProducer | End) -> int:
        if not transitions.needs_new_producer_id(self.transaction, command):
            return NO_PRODUCER
        self.last_id += 1
        return self.last_id


def check(transaction: Transaction) -> None:
    """The invariants that are stated with the value."""
    state = transaction.state
    has_begun = state is TransactionState.ONGOING or state.is_ending
    assert 0 <= transaction.producer_epoch <= MAX_EPOCH + 1
    if state in {TransactionState.ONGOING, TransactionState.EMPTY}:
        assert transaction.producer_epoch <= MAX_EPOCH
    if state in {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT}:
        assert transaction.partitions
    assert has_begun or not transaction.partitions
    assert (transaction.data_epoch != NO_EPOCH) == has_begun
    assert transaction.data_epoch <= transaction.producer_epoch <= transaction.data_epoch + 1 or (
        not has_begun
    )
    assert transaction.next_producer_id == NO_PRODUCER or state.is_ending
    if state is TransactionState.ONGOING:
        assert transaction.previous_epoch == transaction.previous_producer_id == NO_EPOCH
        assert transaction.data_epoch == transaction.producer_epoch
    if transaction.previous_producer_id != NO_PRODUCER:
        assert transaction.previous_epoch != NO_EPOCH
        assert transaction.previous_producer_id != transaction.producer_id
    assert (transaction.started_ms == -1) == (state is TransactionState.EMPTY)


class StrangersMachine(RuleBasedStateMachine):
    """Anyone asks for anything."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.told: list[Producer] = []

    @initialize(epoch=st.sampled_from([0, MAX_EPOCH - 2, MAX_EPOCH - 1, MAX_EPOCH]))
    def begin(self, epoch: int) -> None:
        self.coordinator.begin_at(epoch)
        self.told.append(self.coordinator.newest)

    @rule(data=st.data())
    def init(self, data: st.DataObject) -> None:
        who = data.draw(st.just(NOBODY) | self.producers())
        command = InitProducer(ID, TIMEOUT_MS, *who)
        try:
            known = self.coordinator.init(command)
        except MillstreamError:
            return
        if who == NOBODY:
            assert producer_of(known) not in self.told
        else:
            assert self.coordinator.init(command) is known
        self.tell(known)

    @rule(data=st.data(), several=st.frozensets(partitions))
    def add(self, data: st.DataObject, several: frozenset[TopicPartition]) -> None:
        who = data.draw(self.producers())
        command = AddPartitions(ID, *who, several)
        try:
            known = self.coordinator.add(command)
        except MillstreamError:
            return
        assert who == self.coordinator.newest
        assert several <= known.partitions
        assert self.coordinator.add(command) is known

    @precondition(lambda self: self.coordinator.transaction is not None)
    @rule(data=st.data(), partition=partitions, adds=st.booleans())
    def write(self, data: st.DataObject, partition: TopicPartition, adds: bool) -> None:
        who = data.draw(self.producers())
        before = self.coordinator.transaction
        try:
            known = self.coordinator.write(who, partition, adds=adds)
        except MillstreamError:
            assert (
                who != self.coordinator.newest or not adds or self.is_ending() or who[1] > MAX_EPOCH
            )
            return
        assert who == self.coordinator.newest
        assert known.state is TransactionState.ONGOING
        assert known.data_epoch == who[1]
        assert partition in known.partitions
        assert adds or known is before
        assert self.coordinator.write(who, partition, adds=False) is known

    @rule(data=st.data(), is_commit=st.booleans(), bumps_epoch=st.booleans())
    def end(self, data: st.DataObject, is_commit: bool, bumps_epoch: bool) -> None:
        command = End(ID, *data.draw(self.producers()), is_commit, bumps_epoch)
        before = self.coordinator.transaction
        try:
            known = self.coordinator.end(command)
        except MillstreamError:
            return
        assert known.state.is_commit == is_commit
        if known is before:
            return
        assert before is not None
        assert transitions.is_commit(known) == is_commit
        assert known.partitions == before.partitions
        assert transitions.marker_epoch(known) == known.data_epoch + bumps_epoch
        with pytest.raises(ConcurrentTransaction):
            self.coordinator.end(command)
        with pytest.raises(MillstreamError):
            self.coordinator.end(command._replace(is_commit=not is_commit))

    @precondition(lambda self: self.is_ending())
    @rule()
    def complete(self) -> None:
        self.tell(self.coordinator.complete())

    @rule(passed_ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS, 50 * TIMEOUT_MS]))
    def wait(self, passed_ms: int) -> None:
        self.coordinator.now_ms += passed_ms
        self.coordinator.tick()

    @invariant()
    def nothing_is_overdue(self) -> None:
        transaction = self.coordinator.transaction
        if transaction is not None:
            deadline = transitions.deadline_ms(transaction, SETTINGS)
            assert (deadline is None) == transaction.state.is_ending
            assert deadline is None or deadline > self.coordinator.now_ms

    def producers(self) -> st.SearchStrategy[Producer]:
        """Mostly the newest and those of before; also the one to come, and one that is not."""
        last_id, previous_epoch = self.coordinator.newest
        known = [(last_id, previous_epoch), *self.told[-4:]]
        return st.sampled_from([*known, *known, (last_id, previous_epoch + 1), (1, 0)])

    def tell(self, known: Transaction) -> None:
        """What a client may have learnt. The epoch after the last is not for clients."""
        if known.producer_epoch <= MAX_EPOCH:
            self.told.append(producer_of(known))

    def is_ending(self) -> bool:
        transaction = self.coordinator.transaction
        return transaction is not None and transaction.state.is_ending


class FaithfulMachine(RuleBasedStateMachine):
    """One producer, which repeats what was not answered, in old versions and in new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.me = NOBODY
        self.written: set[TopicPartition] = set()

    @initialize(epoch=st.sampled_from([0, MAX_EPOCH - 3, MAX_EPOCH - 1, MAX_EPOCH]))
    def begin(self, epoch: int) -> None:
        self.coordinator.begin_at(epoch)
        self.me = self.coordinator.newest

    @rule(lost=st.integers(0, 2), is_new=st.booleans())
    def init(self, lost: int, is_new: bool) -> None:
        """As one that has just started, or as one that goes on."""
        command = InitProducer(ID, TIMEOUT_MS, *(NOBODY if is_new else self.me))
        known = [self.coordinator.init(command) for _ in range(lost + 1)][-1]
        self.meet(known)
        self.written.clear()

    @rule(lost=st.integers(0, 2), several=st.frozensets(partitions, min_size=1))
    def write_as_of_old(self, lost: int, several: frozenset[TopicPartition]) -> None:
        for _ in range(lost + 1):
            self.coordinator.add(AddPartitions(ID, *self.me, several))
        for partition in several:
            self.coordinator.write(self.me, partition, adds=False)
        self.written |= several

    @rule(lost=st.integers(0, 2), partition=partitions)
    def write(self, lost: int, partition: TopicPartition) -> None:
        for _ in range(lost + 1):
            self.coordinator.write(self.me, partition, adds=True)
        self.written.add(partition)

    @precondition(lambda self: self.written)
    @rule(lost=st.integers(0, 2), is_commit=st.booleans(), bumps_epoch=st.booleans())
    def end(self, lost: int, is_commit: bool, bumps_epoch: bool) -> None:
        prepared = self.coordinator.end(End(ID, *self.me, is_commit, bumps_epoch))
        assert prepared.partitions == self.written
        self.finish(End(ID, *self.me, is_commit, bumps_epoch), lost)

    @precondition(lambda self: not self.written)
    @rule(lost=st.integers(0, 2))
    def abort_nothing(self, lost: int) -> None:
        command = End(ID, *self.me, is_commit=False, bumps_epoch=True)
        assert not self.coordinator.end(command).partitions
        self.finish(command, lost)

    @precondition(lambda self: not self.written)
    @rule()
    def forget(self) -> None:
        """A producer may come back long after its id was forgotten."""
        self.coordinator.now_ms += SETTINGS.id_expiration_ms
        self.coordinator.tick()
        assert self.coordinator.transaction is None
        self.init(lost=1, is_new=False)

    @precondition(lambda self: self.written)
    @rule()
    def be_too_slow(self) -> None:
        self.coordinator.now_ms += TIMEOUT_MS
        self.coordinator.tick()
        known = self.coordinator.complete()
        commit = End(ID, *self.me, is_commit=True, bumps_epoch=True)
        if known.bumps_epoch:
            # It cannot commit any more, but is told its new epoch when it aborts.
            with pytest.raises(InvalidTransactionState):
                self.coordinator.end(commit)
            assert self.coordinator.end(commit._replace(is_commit=False)) is known
            self.written.clear()
            self.meet(known)
            return
        with pytest.raises(FencedProducer):
            self.coordinator.end(commit)
        with pytest.raises(FencedProducer):
            self.coordinator.init(InitProducer(ID, TIMEOUT_MS, *self.me))
        self.init(lost=0, is_new=True)

    def finish(self, command: End, lost: int) -> None:
        known = self.coordinator.complete()
        for _ in range(lost):
            assert self.coordinator.end(command) is known
        assert known.state.is_commit == command.is_commit
        self.written.clear()
        if command.bumps_epoch:
            self.meet(known)
        else:
            assert producer_of(known) == self.me

    def meet(self, known: Transaction) -> None:
        assert producer_of(known) > self.me
        assert known.producer_epoch <= MAX_EPOCH
        self.me = producer_of(known)


MANY = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    report_multiple_bugs=False,
    # Shrinking would take longer than a test may.
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


def test_no_request_breaks_what_always_holds() -> None:
    run_state_machine_as_test(StrangersMachine, settings=MANY)


def test_producer_that_does_all_right_gets_what_it_asks_for() -> None:
    run_state_machine_as_test(FaithfulMachine, settings=MANY)
