"""Random schedules of transactions, a crash at every append and sync, and proof that both can fail.

A failure names its seed: `run_schedules(range(seed, seed + 1))` plays it again. One of a crash
names the operation of the disk: `Script(...).crash_at(...)` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import get_args

import pytest

from millstream.broker import transactions
from millstream.broker.durability import durable
from millstream.broker.partition import Partition
from millstream.broker.transaction_markers import TransactionMarkers
from millstream.broker.transaction_registry import HostedTransaction
from millstream.broker.transactions import TransactionCoordinator
from millstream.storage.producer_state import OpenTransaction, ProducerStates
from millstream.transactions import transitions
from millstream.transactions.commands import End, InitProducer
from millstream.transactions.transaction import TopicPartition, Transaction
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import CrashMoment
from tests.simulation.group_checker import Violation
from tests.simulation.transaction_schedule import run_schedules
from tests.simulation.transaction_script import Script

_CHUNK = 20
_ENOUGH = range(200)
"""Schedules in which the broken brokers below are found out."""
_MODES: tuple[CrashMode, ...] = ("lost", "torn", "kept")
_MOMENTS: tuple[CrashMoment, ...] = get_args(CrashMoment)


def crash(operations: Iterable[int], moment: CrashMoment, mode: CrashMode, who: str) -> None:
    """Raises Violation, which names the operation. The clients `go on` or are `replaced`."""
    for number in operations:
        try:
            Script(is_replaced=who == "replaced").crash_at(number, moment, mode)
        except Exception as failure:
            what = f"{moment} operation {number}, {mode}, clients {who}"
            raise Violation(f"{what}: {failure}") from failure


def appends_and_syncs() -> list[int]:
    """The numbers of these operations."""
    return [
        number
        for number, operation in enumerate(Script().operations(), 1)
        if operation.startswith(("write", "sync ")) and ".log" in operation
    ]


@pytest.mark.parametrize("chunk", range(10))
def test_transactions_keep_their_promises_whatever_happens(chunk: int) -> None:
    run_schedules(range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


@pytest.mark.torture
@pytest.mark.parametrize("chunk", range(10, 500))
def test_transactions_keep_their_promises_for_long(chunk: int) -> None:
    run_schedules(range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


@pytest.mark.parametrize("chunk", range(5))
def test_what_clients_give_up_is_never_seen(chunk: int) -> None:
    run_schedules(range(chunk * _CHUNK, (chunk + 1) * _CHUNK), gives_up=True)


@pytest.mark.torture
@pytest.mark.parametrize("chunk", range(5, 250))
def test_what_clients_give_up_is_never_seen_for_long(chunk: int) -> None:
    run_schedules(range(chunk * _CHUNK, (chunk + 1) * _CHUNK), gives_up=True)


@pytest.mark.parametrize("mode", _MODES)
def test_crash_after_any_append_or_sync_breaks_no_promise(mode: CrashMode) -> None:
    points = appends_and_syncs()
    assert len(points) > 100
    crash(points[::2], "after", mode, "go on")
    crash(points[1::2], "after", mode, "replaced")


@pytest.mark.torture
@pytest.mark.parametrize(
    ("mode", "moment", "who"), list(product(_MODES, _MOMENTS, ("go on", "replaced")))
)
def test_crash_at_any_operation_breaks_no_promise(
    mode: CrashMode, moment: CrashMoment, who: str
) -> None:
    count = len(Script().operations())
    crash(range(1, count + 1), moment, mode, who)


# Proof that both can fail: brokers with one thing wrong


def find_out_by_crashes(message: str) -> None:
    with pytest.raises(Violation, match=message):
        crash_everywhere()


def crash_everywhere() -> None:
    for mode, who in product(_MODES, ("go on", "replaced")):
        crash(appends_and_syncs(), "after", mode, who)


def find_out_by_chance(message: str, seeds: range = _ENOUGH, *, gives_up: bool = False) -> None:
    with pytest.raises(Violation, match=message):
        run_schedules(seeds, gives_up=gives_up)


async def at_once(*_: object) -> None:
    """What need not be waited for, or done."""


async def as_if_done(*_: object) -> bool:
    return True


def test_markers_before_the_decision_is_durable_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hasty(
        self: TransactionCoordinator, hosted: HostedTransaction, ending: Transaction
    ) -> None:
        self._store(hosted, ending)
        await self._complete(hosted)

    monkeypatch.setattr(TransactionCoordinator, "_finish", hasty)
    find_out_by_crashes("visible|hangs")
    find_out_by_chance("readers have seen|visible|hangs")


def test_completion_before_the_markers_are_durable_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wait = TransactionMarkers._durable

    async def data_durable(self: TransactionMarkers, transaction: Transaction) -> None:
        await wait(self, self._partitions(transaction.partitions))

    monkeypatch.setattr(TransactionMarkers, "data_durable", data_durable)
    monkeypatch.setattr(TransactionMarkers, "_durable", at_once)
    find_out_by_crashes("visible|hangs")
    find_out_by_chance("readers have seen|visible|hangs")


def test_decided_transaction_that_is_not_completed_at_start_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = TransactionCoordinator.start

    async def forgetful(self: TransactionCoordinator) -> None:
        complete = self._complete
        self._complete = at_once  # type: ignore[method-assign,assignment]
        await start(self)
        self._complete = complete  # type: ignore[method-assign]

    monkeypatch.setattr(TransactionCoordinator, "start", forgetful)
    find_out_by_crashes("never answered")
    find_out_by_chance("hangs")


def test_unknown_transaction_that_stays_open_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionMarkers, "abort_unknown", as_if_done)
    find_out_by_crashes("hangs|refused for no reason")


def test_repeated_records_that_were_aborted_at_start_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The partition knows their sequence, and takes them for stored."""

    def knows(
        self: TransactionCoordinator, place: TopicPartition, unknown: OpenTransaction
    ) -> bool:
        hosted = self.registry.of_producer(unknown.producer_id)
        assert hosted is not None
        assert hosted.transaction is not None
        return place in hosted.transaction.partitions

    monkeypatch.setattr(TransactionCoordinator, "_knows_or_takes_up", knows)
    monkeypatch.setattr(ProducerStates, "_has_ended", lambda *_: False)
    find_out_by_crashes("visible in part")


def test_record_that_need_not_be_admitted_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionCoordinator, "admit", lambda *_, **__: 0)
    find_out_by_crashes("refused for no reason")
    find_out_by_chance("refused for no reason")


def test_answer_before_the_decision_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def decided(
        self: TransactionCoordinator, hosted: HostedTransaction, command: End
    ) -> Transaction:
        new_id = await self._id_for(hosted.transaction, command)
        now_ms = self._clock.now_ms()
        return transitions.end(hosted.transaction, command, now_ms, new_producer_id=new_id)

    async def hasty(self: TransactionCoordinator, command: End, *, connection: int) -> Transaction:
        async def work(hosted: HostedTransaction) -> None:
            after = await decided(self, hosted, command)
            if after is not hosted.transaction:
                await self._finish(hosted, after)

        hosted = self.registry.find(command.transactional_id)
        after = await decided(self, hosted, command)
        self._turns.begin(self._turns.take(hosted, work))
        return transitions.completed(after, self._clock.now_ms())

    monkeypatch.setattr(TransactionCoordinator, "end", hasty)
    find_out_by_crashes("a group is told")
    find_out_by_chance("hangs|visible|refused for no reason")


def test_client_that_is_not_fenced_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fenced = transitions._fenced

    def lenient(transaction: Transaction, now_ms: int, *, previous_epoch: int) -> Transaction:
        ending = fenced(transaction, now_ms, previous_epoch=previous_epoch)
        return replace(ending, producer_epoch=transaction.producer_epoch)

    monkeypatch.setattr(transitions, "_fenced", lenient)
    find_out_by_chance("visible in part|refused for no reason")


def test_epoch_that_is_given_twice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied = transitions._emptied

    def thrifty(command: InitProducer, now_ms: int, **pair: int) -> Transaction:
        made = emptied(command, now_ms, **pair)
        return replace(made, producer_epoch=max(0, made.producer_epoch - 1))

    monkeypatch.setattr(transitions, "_emptied", thrifty)
    find_out_by_chance("given to two clients")


def test_late_request_that_is_heard_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostedTransaction, "hear", lambda *_: None)
    find_out_by_chance("refused for no reason")


def test_connection_that_is_kept_after_an_abort_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HostedTransaction, "retire_connections", lambda *_, **__: None)
    find_out_by_chance("nobody has committed it|it was aborted", gives_up=True)


def test_late_first_request_that_is_heard_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "is_id", lambda _: False)
    # Rare: it must be the first of all, and then no other may be sent for long.
    find_out_by_chance("refused for no reason", range(380, 400))


def test_records_admitted_while_an_id_is_waited_for_and_forgotten_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def stale(
        self: TransactionCoordinator, hosted: HostedTransaction, command: InitProducer
    ) -> Transaction:
        before = hosted.transaction
        new_id = await self._id_for(before, command)
        now_ms = self._clock.now_ms()
        settings = self.settings
        return transitions.init(before, command, now_ms, new_producer_id=new_id, settings=settings)

    monkeypatch.setattr(TransactionCoordinator, "_initialised", stale)
    find_out_by_chance("hangs")


def test_end_that_fails_for_a_topic_that_is_gone_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def strict(self: TransactionMarkers, partitions: Iterable[Partition]) -> None:
        waits = [durable(self._flusher, p.log, p.log.end_offset) for p in partitions]
        await asyncio.gather(*waits)

    monkeypatch.setattr(TransactionMarkers, "_durable", strict)
    # Rare: the topic must go while a sync of it is waited for.
    find_out_by_chance("the broker has failed", range(60, 80))


def test_transaction_that_never_times_out_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionCoordinator, "_set_timer", lambda *_: None)
    find_out_by_chance("hangs")
