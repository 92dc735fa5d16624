"""Random schedules of transactions, a crash at every append and sync, and proof that both can fail.

A failure names its seed: `run_schedules(range(seed, seed + 1))` plays it again. One of a crash
names the crash point: `CrashPoint(...).run()` does.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any, NamedTuple, get_args

import pytest

from millstream.broker.transaction_registry import HostedTransaction
from millstream.errors import OutOfOrderSequence
from millstream.records.batch import BatchHeader
from millstream.storage.producer_state import ProducerStates
from millstream.transactions import transitions
from millstream.transactions.commands import End, InitProducer
from millstream.transactions.transaction import Transaction, TransactionState
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import CrashMoment
from tests.fakes.tiers import sampled
from tests.simulation.broken_transactions import (
    AdmitsAll,
    AnswersEarly,
    ForgetsDecided,
    ForgetsFirst,
    HangingTransactions,
    HastyCoordinator,
    HastyDecision,
    HastyMarkers,
    KeepsConnections,
    NewConnections,
    StrictMarkers,
    with_transactions,
)
from tests.simulation.group_checker import Violation
from tests.simulation.transaction_broker import SimulatedBroker
from tests.simulation.transaction_schedule import run_schedules
from tests.simulation.transaction_script import Script
from tests.simulation.transaction_world import CATALOG_LOG, COORDINATOR_LOG, DATA_LOG

_CHUNK = 20
_ENOUGH = range(400)
"""Each broken broker below is found in a tenth of them, so that another random stream also does."""
_SCRIPTS = 8
"""In each, syncs end in another order. A tenth of their crashes is enough, too."""
_PARTS = 9
_MODES: tuple[CrashMode, ...] = ("lost", "torn", "kept")
_MOMENTS: tuple[CrashMoment, ...] = get_args(CrashMoment)


class CrashPoint(NamedTuple):
    """Where a script crashes. The clients `go on` or are `replaced`."""

    slow_log: str
    seed: int
    operation: int
    moment: CrashMoment
    mode: CrashMode
    clients: str

    def run(self, broker: type[SimulatedBroker] = SimulatedBroker) -> None:
        """Raises Violation, which names the crash point."""
        is_replaced = self.clients == "replaced"
        script = Script(
            is_replaced=is_replaced, seed=self.seed, slow_log=self.slow_log, broker=broker
        )
        try:
            script.crash_at(self.operation, self.moment, self.mode)
        except Exception as failure:
            raise Violation(f"{self}: {failure}") from failure


def operations_of_logs(script: Script, *kinds: str) -> list[int]:
    """The numbers of these operations."""
    return [
        number
        for number, operation in enumerate(script.operations(), 1)
        if operation.startswith(kinds) and ".log" in operation
    ]


@pytest.mark.parametrize("chunk", sampled(range(500), 1, 3))
def test_transactions_keep_their_promises_whatever_happens(chunk: int) -> None:
    run_schedules(range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


@pytest.mark.parametrize("chunk", sampled(range(250), 1, 2))
def test_what_clients_give_up_is_never_seen(chunk: int) -> None:
    run_schedules(range(chunk * _CHUNK, (chunk + 1) * _CHUNK), gives_up=True)


@pytest.mark.parametrize("part", sampled(range(_PARTS), 1, 4))
@pytest.mark.parametrize("mode", _MODES)
def test_crash_after_any_append_or_sync_breaks_no_promise(mode: CrashMode, part: int) -> None:
    points = operations_of_logs(Script(), "write ", "sync ")
    assert len(points) > 100
    for number, operation in enumerate(points[part::_PARTS]):
        clients = "replaced" if number % 2 else "go on"
        CrashPoint("", 0, operation, "after", mode, clients).run()


@pytest.mark.torture
@pytest.mark.parametrize(
    ("mode", "moment", "clients"), list(product(_MODES, _MOMENTS, ("go on", "replaced")))
)
def test_crash_at_any_operation_breaks_no_promise(
    mode: CrashMode, moment: CrashMoment, clients: str
) -> None:
    for operation in range(1, len(Script().operations()) + 1):
        CrashPoint("", 0, operation, moment, mode, clients).run()


# Proof that both can fail: brokers with one thing wrong


def find_out_by_crashes(
    message: str,
    broker: type[SimulatedBroker] = SimulatedBroker,
    *,
    slow_log: str,
) -> None:
    with pytest.raises(Violation, match=message):
        crash_everywhere(broker, slow_log)


def crash_everywhere(broker: type[SimulatedBroker], slow_log: str) -> None:
    """In random order, so that it does not take long wherever in the script the defect matters."""
    points = [
        CrashPoint(slow_log, seed, operation, "after", "lost", clients)
        for seed in range(_SCRIPTS)
        for operation in operations_of_logs(
            Script(seed=seed, slow_log=slow_log, broker=broker), "sync "
        )
        for clients in ("go on", "replaced")
    ]
    Random(0).shuffle(points)
    for point in points:
        point.run(broker)


def find_out_by_chance(message: str, seeds: range = _ENOUGH, **options: Any) -> None:
    with pytest.raises(Violation, match=message):
        run_schedules(seeds, **options)


def test_markers_before_the_decision_is_durable_are_found_out() -> None:
    find_out_by_crashes("visible|hangs", HastyDecision, slow_log=COORDINATOR_LOG)


def test_completion_before_the_markers_are_durable_is_found_out() -> None:
    find_out_by_crashes("readers have seen|visible|hangs", HastyMarkers, slow_log=DATA_LOG)


@pytest.mark.parametrize(
    ("broker", "slow_log"), [(HastyCoordinator, COORDINATOR_LOG), (HastyMarkers, DATA_LOG)]
)
def test_hasty_flusher_is_found_out(broker: type[SimulatedBroker], slow_log: str) -> None:
    message = "readers have seen|visible|hangs|refused for no reason|given to two clients"
    find_out_by_chance(message, broker=broker, slow_log=slow_log)


@pytest.mark.system
def test_decided_transaction_that_is_not_completed_at_start_is_found_out() -> None:
    find_out_by_crashes("visible|hangs", ForgetsDecided, slow_log=DATA_LOG)
    find_out_by_chance("visible|hangs", broker=ForgetsDecided)


@pytest.mark.system
def test_unknown_transaction_that_stays_open_is_found_out() -> None:
    find_out_by_crashes(
        "hangs|refused for no reason", HangingTransactions, slow_log=COORDINATOR_LOG
    )


def test_repeated_records_that_were_aborted_at_start_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The partition knows their sequence, and takes them for stored."""
    check = ProducerStates.check_transactional

    def lenient(
        self: ProducerStates, header: BatchHeader, batch: bytearray | memoryview
    ) -> int | None:
        try:
            return check(self, header, batch)
        except OutOfOrderSequence:
            return self.check(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_sequence,
                is_transactional=True,
            )

    monkeypatch.setattr(ProducerStates, "check_transactional", lenient)
    monkeypatch.setattr(transitions, "may_take_up", lambda *_: False)
    find_out_by_crashes("visible in part|is not visible", slow_log=COORDINATOR_LOG)


def test_record_that_need_not_be_admitted_is_found_out() -> None:
    broken = with_transactions(AdmitsAll)
    find_out_by_crashes("refused for no reason", broken, slow_log="")
    find_out_by_chance("refused for no reason|visible|hangs", broker=broken)


def test_answer_before_the_decision_is_found_out() -> None:
    broken = with_transactions(AnswersEarly)
    find_out_by_crashes("a group is told|never answered|not visible", broken, slow_log="")
    find_out_by_chance("a group is told|hangs|visible|refused for no reason", broker=broken)


@pytest.mark.system
def test_client_that_is_not_fenced_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    init, tick = transitions.init, transitions.tick

    def lenient_init(before: Transaction | None, *rest: Any, **options: Any) -> Transaction:
        after = init(before, *rest, **options)
        if before is not None and after.state.is_ending:
            return replace(after, producer_epoch=before.producer_epoch)
        return after

    def lenient_tick(before: Transaction, *rest: Any) -> Transaction | None:
        after = tick(before, *rest)
        if after is not None and after.state.is_ending:
            return replace(after, producer_epoch=before.producer_epoch)
        return after

    monkeypatch.setattr(transitions, "init", lenient_init)
    monkeypatch.setattr(transitions, "tick", lenient_tick)
    find_out_by_chance("visible|refused for no reason")


def test_epoch_that_is_given_twice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    init = transitions.init

    def thrifty(before: Transaction | None, *rest: Any, **options: Any) -> Transaction:
        after = init(before, *rest, **options)
        if before is not None and after.state is TransactionState.EMPTY:
            return replace(after, producer_epoch=min(before.producer_epoch, after.producer_epoch))
        return after

    monkeypatch.setattr(transitions, "init", thrifty)
    find_out_by_chance("given to two clients")


def test_late_request_that_is_heard_is_found_out() -> None:
    find_out_by_chance("refused for no reason", broker=with_transactions(NewConnections))


def test_late_offsets_that_are_taken_after_an_abort_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HostedTransaction, "retire_offsets", lambda *_, **__: None)
    find_out_by_chance("not committed", gives_up=True)


def test_connection_that_is_kept_after_an_abort_is_found_out() -> None:
    find_out_by_chance(
        "nobody has committed it|it was aborted",
        broker=with_transactions(KeepsConnections),
        gives_up=True,
    )


def test_late_first_request_that_is_heard_is_found_out() -> None:
    find_out_by_chance("refused for no reason", broker=with_transactions(ForgetsFirst))


def test_records_admitted_while_an_id_is_waited_for_and_forgotten_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The state from before the wait counts, and not the one after it."""
    seen: dict[str, Transaction | None] = {}
    needs_new_id, init = transitions.needs_new_producer_id, transitions.init

    def remember(transaction: Transaction | None, command: InitProducer | End) -> bool:
        seen[command.transactional_id] = transaction
        return needs_new_id(transaction, command)

    def stale(_: Transaction | None, command: InitProducer, *rest: Any, **options: Any) -> Any:
        return init(seen[command.transactional_id], command, *rest, **options)

    monkeypatch.setattr(transitions, "needs_new_producer_id", remember)
    monkeypatch.setattr(transitions, "init", stale)
    find_out_by_chance("hangs", slow_log=CATALOG_LOG)


def test_end_that_fails_for_a_topic_that_is_gone_is_found_out() -> None:
    find_out_by_chance("the broker has failed|refused for no reason", broker=StrictMarkers)


def test_transaction_that_never_times_out_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "deadline_ms", lambda *_: None)
    find_out_by_chance("hangs")
