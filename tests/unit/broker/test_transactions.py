"""The transaction coordinator, with the logs it writes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

from millstream.broker.transaction_registry import Way
from millstream.errors import (
    FencedProducer,
    InvalidTransactionState,
    MillstreamError,
    OutOfOrderSequence,
    Superseded,
    Unavailable,
    UnknownProducer,
    UnknownTransaction,
)
from millstream.records import ControlType, build_control
from millstream.settings.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from millstream.settings.transactions import TransactionSettings
from millstream.transactions.commands import End, InitProducer
from millstream.transactions.transaction import TransactionState
from tests.fakes.open_door import until
from tests.fakes.sample_batches import batch_of
from tests.fakes.simulated_loop import run_simulated
from tests.fakes.transaction_home import TransactionHome, Writer

BOTH_KINDS = pytest.mark.parametrize("bumps_epoch", [True, False], ids=["new", "old"])


def run(test: Callable[[TransactionHome], Coroutine[Any, Any, None]], **settings: int) -> None:
    home = TransactionHome(transactions=TransactionSettings(**settings))

    async def main() -> None:
        await home.start()
        await home.topics.create("a", partitions=2, overrides={})
        await home.topics.create("b", partitions=1, overrides={})
        await test(home)
        await home.stop()

    run_simulated(main(), home.clock)


async def begun(home: TransactionHome, name: str = "w", *, bumps_epoch: bool = True) -> Writer:
    """A writer that has written to two partitions."""
    writer = await home.writer(name, bumps_epoch=bumps_epoch)
    if not bumps_epoch:
        await home.add(writer, ("a", 0), ("b", 0))
    home.write(writer, "a", 0, b"one", b"two")
    home.write(writer, "b", 0, b"three")
    return writer


@BOTH_KINDS
def test_committed_records_are_seen_when_they_are_committed(bumps_epoch: bool) -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home, bumps_epoch=bumps_epoch)
        assert home.committed("a") == []
        await home.end(writer, is_commit=True)
        assert home.committed("a") == [b"one", b"two"]
        assert home.committed("b") == [b"three"]

    run(test)


@BOTH_KINDS
def test_aborted_records_are_never_seen(bumps_epoch: bool) -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home, bumps_epoch=bumps_epoch)
        await home.end(writer, is_commit=False)
        assert (home.committed("a"), home.committed("b")) == ([], [])
        log = home.partition("a", 0).log
        assert log.last_stable_offset == log.end_offset == 3

    run(test)


@BOTH_KINDS
def test_one_transaction_follows_the_other(bumps_epoch: bool) -> None:
    async def test(home: TransactionHome) -> None:
        writer = await home.writer(bumps_epoch=bumps_epoch)
        epoch = writer.epoch
        for number in range(5):
            if not bumps_epoch:
                await home.add(writer, ("a", 0))
            home.write(writer, "a", 0, b"%d" % number)
            await home.end(writer, is_commit=number != 2)
        assert home.committed("a") == [b"0", b"1", b"3", b"4"]
        assert writer.epoch == (epoch + 5 if bumps_epoch else epoch)

    run(test)


def test_offsets_are_committed_with_the_records() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home)
        await home.commit_offset(writer, "g", "b", 7)
        assert await home.committed_offset("g", "b") is None
        await home.end(writer, is_commit=True)
        assert await home.committed_offset("g", "b") == 7
        home.write(writer, "a", 0, b"four")
        await home.commit_offset(writer, "g", "b", 9)
        await home.end(writer, is_commit=False)
        assert await home.committed_offset("g", "b") == 7

    run(test)


def test_second_producer_of_an_id_fences_the_first_and_aborts_what_it_had_begun() -> None:
    async def test(home: TransactionHome) -> None:
        first = await begun(home)
        second = await home.writer()
        assert second.producer_id == first.producer_id
        assert second.epoch > first.epoch
        with pytest.raises(FencedProducer):
            home.write(first, "a", 0, b"late")
        with pytest.raises(FencedProducer):
            await home.end(first, is_commit=True)
        home.write(second, "a", 0, b"mine")
        await home.end(second, is_commit=True)
        assert home.committed("a") == [b"mine"]

    run(test)


def test_write_after_the_end_is_refused() -> None:
    async def test(home: TransactionHome) -> None:
        new = await begun(home)
        stale = Writer(new.name, new.producer_id, new.epoch, sequences=dict(new.sequences or {}))
        await home.end(new, is_commit=True)
        with pytest.raises(FencedProducer):
            home.write(stale, "a", 0, b"late")
        old = await begun(home, "old", bumps_epoch=False)
        await home.end(old, is_commit=True)
        with pytest.raises(InvalidTransactionState):
            home.write(old, "a", 0, b"late")

    run(test)


def test_old_client_must_name_a_partition_before_it_writes_there() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home, bumps_epoch=False)
        with pytest.raises(InvalidTransactionState):
            home.write(writer, "a", 1, b"not named")
        await home.add(writer, ("a", 1))
        home.write(writer, "a", 1, b"named")
        await home.end(writer, is_commit=True)
        assert home.committed("a", 1) == [b"named"]

    run(test)


def test_end_may_be_asked_for_again() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home)
        ask = End(writer.name, writer.producer_id, writer.epoch, is_commit=True, bumps_epoch=True)
        end = partial(home.transactions.end, connection=1)
        first, second = await asyncio.gather(end(ask), end(ask))
        assert (first.producer_id, first.producer_epoch) == (
            second.producer_id,
            second.producer_epoch,
        )
        assert home.partition("a", 0).log.end_offset == 3
        with pytest.raises(InvalidTransactionState):
            await end(ask._replace(is_commit=False))

    run(test)


def test_end_goes_on_when_whoever_asked_has_gone() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home)
        asked = asyncio.create_task(home.end(writer, is_commit=True))
        await asyncio.sleep(0)
        asked.cancel()
        await until(lambda: home.committed("a") == [b"one", b"two"])

    run(test)


def test_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await home.writer(timeout_ms=50)
        home.write(writer, "a", 0, b"slow")
        aborted = TransactionState.COMPLETE_ABORT
        await until(lambda: home.transactions.registry.describe("w").state is aborted)
        assert home.partition("a", 0).log.last_stable_offset == 2
        with pytest.raises(InvalidTransactionState):
            await home.end(writer, is_commit=True)
        assert home.committed("a") == []
        # By an abort it hears of its new epoch, and goes on.
        await home.end(writer, is_commit=False)
        home.write(writer, "a", 0, b"next")
        await home.end(writer, is_commit=True)
        assert home.committed("a") == [b"next"]

    run(test)


def test_old_client_whose_transaction_took_too_long_has_to_begin_anew() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await home.writer(timeout_ms=50, bumps_epoch=False)
        await home.add(writer, ("a", 0))
        home.write(writer, "a", 0, b"slow")
        aborted = TransactionState.COMPLETE_ABORT
        await until(lambda: home.transactions.registry.describe("w").state is aborted)
        for is_commit in (True, False):
            with pytest.raises(FencedProducer):
                await home.end(writer, is_commit=is_commit)

    run(test)


def test_id_that_nobody_uses_is_forgotten_for_good() -> None:
    async def test(home: TransactionHome) -> None:
        await home.writer()
        await until(lambda: not home.transactions.registry.list(now_ms=0))
        with pytest.raises(UnknownTransaction):
            home.transactions.registry.describe("w")
        await home.restart()
        assert home.transactions.registry.list(now_ms=0) == []

    run(test, id_expiration_ms=20)


def test_unknown_ids_are_refused_and_leave_nothing_behind() -> None:
    async def test(home: TransactionHome) -> None:
        stranger = Writer("stranger", 1, 0)
        with pytest.raises(UnknownProducer):
            await home.end(stranger, is_commit=True)
        with pytest.raises(UnknownProducer):
            await home.add(stranger, ("a", 0))
        with pytest.raises(InvalidTransactionState):
            home.write(stranger, "a", 0, b"x")
        with pytest.raises(MillstreamError):
            await home.transactions.init_producer(InitProducer("stranger", 0))
        assert home.transactions.registry.list(now_ms=0) == []
        assert list(home.transactions.registry.all()) == []

    run(test)


def test_topic_that_is_deleted_does_not_keep_a_transaction_from_ending() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home)
        await home.topics.delete("b")
        await home.end(writer, is_commit=True)
        assert home.committed("a") == [b"one", b"two"]
        assert home.transactions.registry.describe("w").state is TransactionState.COMPLETE_COMMIT

    run(test)


def test_partition_that_takes_no_marker_is_told_later() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home)
        home.disk.full_paths = ["*/topics/b/*"]
        await home.end(writer, is_commit=True)
        assert home.transactions.registry.describe("w").state is TransactionState.PREPARE_COMMIT
        assert (home.committed("a"), home.committed("b")) == ([b"one", b"two"], [])
        home.disk.full_paths = []
        await until(lambda: not home.transactions.registry.describe("w").state.is_ending)
        assert home.committed("b") == [b"three"]
        home.write(writer, "a", 0, b"next")
        await home.end(writer, is_commit=True)

    run(test)


@pytest.mark.parametrize("is_commit", [True, False])
def test_decided_transaction_is_completed_after_a_crash(is_commit: bool) -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home)
        await home.commit_offset(writer, "g", "b", 1)
        # No partition takes a marker.
        home.disk.full_paths = ["*/topics/[ab]/*", f"*/topics/{OFFSETS_TOPIC}/*"]
        await home.end(writer, is_commit=is_commit)
        await home.crash()
        assert home.committed("a") == ([b"one", b"two"] if is_commit else [])
        assert home.committed("b") == ([b"three"] if is_commit else [])
        assert await home.committed_offset("g", "b") == (1 if is_commit else None)
        assert not home.transactions.registry.describe("w").state.is_ending
        log = home.partition("a", 0).log
        assert log.last_stable_offset == log.end_offset
        home.write(writer, "a", 0, b"next")
        await home.end(writer, is_commit=True)
        assert home.committed("a")[-1] == b"next"

    run(test)


def test_ongoing_transaction_goes_on_after_a_crash() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home)
        await home.crash()
        assert home.committed("a") == []
        home.write(writer, "a", 0, b"more")
        await home.end(writer, is_commit=True)
        assert home.committed("a") == [b"one", b"two", b"more"]

    run(test)


def test_open_transaction_that_no_coordinator_knows_is_aborted_at_start() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await home.writer()
        home.write(writer, "a", 0, b"known")
        unknown = batch_of(b"unknown", producer_id=777, epoch=3, sequence=0, transactional=True)
        home.partition("a", 0).log.append([unknown])
        home.partition("a", 0).log.sync()
        await home.crash()
        log = home.partition("a", 0).log
        assert [each.producer_id for each in log.producers.open_transactions()] == [
            writer.producer_id
        ]
        await home.end(writer, is_commit=True)
        assert home.committed("a") == [b"known"]

    run(test)


def test_batch_whose_transaction_was_not_stored_counts_when_it_is_sent_again() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await home.writer()
        # The sync of the log of transactions comes too late.
        home.write(writer, "a", 0, b"once", is_settled=False)
        await home.crash()
        assert home.partition("a", 0).log.end_offset == 1
        writer.sequences = None
        home.write(writer, "a", 0, b"once")
        await home.end(writer, is_commit=True)
        assert home.committed("a") == [b"once"]

    run(test)


def test_transaction_that_cannot_be_taken_up_yet_is_not_aborted() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await home.writer()
        home.write(writer, "a", 0, b"once", is_settled=False)
        disk = home.filesystem = home.disk.after_crash("lost")
        disk.full_paths = [f"*/topics/{TRANSACTIONS_TOPIC}/*.log"]
        await home.start()
        log = home.partition("a", 0).log
        assert (log.end_offset, log.last_stable_offset) == (1, 0)
        disk.full_paths = []
        await until(lambda: home.transactions.registry.describe("w").partitions)
        writer.sequences = None
        home.write(writer, "a", 0, b"once")
        await home.end(writer, is_commit=True)
        assert home.committed("a") == [b"once"]

    run(test)


def test_marker_of_a_small_topic_is_not_too_large() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home)
        await home.topics.alter("a", {"max.message.bytes": "1"})
        await home.end(writer, is_commit=True)
        assert home.committed("a") == [b"one", b"two"]

    run(test)


def test_request_on_a_connection_that_was_given_up_is_not_heard() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home)
        pair = (writer.producer_id, writer.epoch)
        hear = home.transactions.hear
        hear("w", Way.COORDINATOR, 5, producer=pair)
        hear("w", Way.OFFSETS, 3, producer=pair)
        hear("w", Way.COORDINATOR, 6, producer=pair)
        with pytest.raises(Superseded):
            hear("w", Way.COORDINATOR, 5, producer=pair)
        # Who is not the producer is refused by others, and counts for nothing here.
        hear("w", Way.COORDINATOR, 9, producer=(writer.producer_id, writer.epoch - 1))
        hear("w", Way.COORDINATOR, 6, producer=pair)

    run(test)


def test_first_request_of_an_id_that_comes_again_late_is_not_heard() -> None:
    async def test(home: TransactionHome) -> None:
        hear = home.transactions.hear
        hear("w", Way.COORDINATOR, 1)
        hear("w", Way.COORDINATOR, 2)
        await home.writer()
        with pytest.raises(Superseded):
            hear("w", Way.COORDINATOR, 1)

    run(test)


def test_what_an_old_producer_gave_up_with_an_abort_is_not_part_of_its_next_transaction() -> None:
    async def test(home: TransactionHome) -> None:
        numbers = home.transactions.connections
        given_up, coordinator = numbers.next(), numbers.next()
        writer = await begun(home, bumps_epoch=False)
        late = deepcopy(writer)
        await home.end(writer, is_commit=False, connection=coordinator)
        await home.add(writer, ("a", 0))
        # Nothing tells it from the first record of the transaction...
        home.write(late, "a", 0, b"late", connection=given_up)
        # ... until that comes, through another connection.
        for _ in range(2):
            with pytest.raises(InvalidTransactionState, match="in doubt"):
                home.write(deepcopy(writer), "a", 0, b"next", connection=numbers.next())
        with pytest.raises(InvalidTransactionState, match="in doubt"):
            await home.end(writer, is_commit=True, connection=coordinator)
        await home.end(writer, is_commit=False, connection=coordinator)
        assert home.committed("a") == []
        await home.add(writer, ("a", 0))
        writer.sequences = dict(late.sequences or {})
        home.write(writer, "a", 0, b"again", connection=numbers.next())
        await home.end(writer, is_commit=True, connection=coordinator)
        assert home.committed("a") == [b"again"]

    run(test)


def test_write_given_up_with_an_abort_that_comes_after_the_next_one_is_late() -> None:
    async def test(home: TransactionHome) -> None:
        numbers = home.transactions.connections
        given_up, coordinator, newer = numbers.next(), numbers.next(), numbers.next()
        writer = await begun(home, bumps_epoch=False)
        late = deepcopy(writer)
        await home.end(writer, is_commit=False, connection=coordinator)
        await home.add(writer, ("a", 0))
        home.write(writer, "a", 0, b"next", connection=newer)
        with pytest.raises(Superseded):
            home.write(late, "a", 0, b"late", connection=given_up)
        await home.end(writer, is_commit=True, connection=coordinator)
        assert home.committed("a") == [b"next"]

    run(test)


def test_old_producer_goes_on_after_an_abort_through_the_connections_that_it_has() -> None:
    async def test(home: TransactionHome) -> None:
        numbers = home.transactions.connections
        records, coordinator = numbers.next(), numbers.next()
        writer = await begun(home, bumps_epoch=False)
        for number in range(3):
            await home.end(writer, is_commit=False, connection=coordinator)
            await home.add(writer, ("a", 0))
            home.write(writer, "a", 0, b"%d" % number, connection=records)
        await home.end(writer, is_commit=True, connection=coordinator)
        assert home.committed("a") == [b"2"]
        # What is committed proves that the connection is in use: from here on it may change.
        await home.add(writer, ("a", 0))
        home.write(writer, "a", 0, b"3", connection=records)
        home.write(writer, "a", 0, b"4", connection=numbers.next())
        await home.end(writer, is_commit=True, connection=coordinator)
        assert home.committed("a") == [b"2", b"3", b"4"]

    run(test)


def test_transaction_after_an_abort_takes_no_more_records_after_a_restart() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home, bumps_epoch=False)
        await home.end(writer, is_commit=False)
        await home.add(writer, ("a", 0))
        home.write(writer, "a", 0, b"before")
        await home.restart()
        with pytest.raises(InvalidTransactionState, match="in doubt"):
            home.write(deepcopy(writer), "a", 0, b"after")
        await home.end(writer, is_commit=False)
        await home.add(writer, ("a", 0))
        await home.restart()
        await home.end(writer, is_commit=False)
        await home.restart()
        # Nothing was open: whatever comes is newer than the abort.
        await home.add(writer, ("a", 0))
        home.write(writer, "a", 0, b"next")
        await home.end(writer, is_commit=True)
        assert home.committed("a") == [b"next"]

    run(test)


def test_old_producer_that_commits_keeps_its_connections() -> None:
    async def test(home: TransactionHome) -> None:
        numbers = home.transactions.connections
        records, coordinator = numbers.next(), numbers.next()
        writer = await begun(home, bumps_epoch=False)
        await home.end(writer, is_commit=True, connection=coordinator)
        await home.add(writer, ("a", 0))
        home.write(writer, "a", 0, b"next", connection=records)

    run(test)


def test_offsets_that_an_old_producer_gave_up_with_an_abort_are_not_committed_late() -> None:
    async def test(home: TransactionHome) -> None:
        numbers = home.transactions.connections
        given_up, coordinator = numbers.next(), numbers.next()
        writer = await begun(home, bumps_epoch=False)
        pair = (writer.producer_id, writer.epoch)
        await home.end(writer, is_commit=False, connection=coordinator)
        # There were no offsets that could have been given up.
        home.transactions.hear("w", Way.OFFSETS, given_up, producer=pair)
        await home.add(writer, ("__consumer_offsets", 0))
        await home.end(writer, is_commit=False, connection=coordinator)
        with pytest.raises(Superseded):
            home.transactions.hear("w", Way.OFFSETS, given_up, producer=pair)
        home.transactions.hear("w", Way.OFFSETS, numbers.next(), producer=pair)

    run(test)


def test_offsets_that_were_committed_before_an_abort_leave_their_connection_in_use() -> None:
    async def test(home: TransactionHome) -> None:
        numbers = home.transactions.connections
        kept, coordinator = numbers.next(), numbers.next()
        writer = await begun(home, bumps_epoch=False)
        pair = (writer.producer_id, writer.epoch)

        async def commit(result: MillstreamError | None) -> None:
            async def committed() -> list[MillstreamError | None]:
                return [result]

            await home.transactions.commit_offsets("w", *pair, committed, adds=False)

        await home.add(writer, ("__consumer_offsets", 0))
        await commit(None)
        await home.end(writer, is_commit=False, connection=coordinator)
        home.transactions.hear("w", Way.OFFSETS, kept, producer=pair)
        # One that failed is sent again, and may be under way.
        await home.add(writer, ("__consumer_offsets", 0))
        await commit(Unavailable("later"))
        await home.end(writer, is_commit=False, connection=coordinator)
        with pytest.raises(Superseded):
            home.transactions.hear("w", Way.OFFSETS, kept, producer=pair)

    run(test)


def test_sequence_that_was_used_in_the_transaction_before_is_not_taken_for_stored() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home, bumps_epoch=False)
        forgetful = deepcopy(writer)
        home.write(writer, "a", 0, b"unanswered")
        await home.end(writer, is_commit=False)
        await home.add(writer, ("a", 0))
        with pytest.raises(OutOfOrderSequence):
            home.write(deepcopy(forgetful), "a", 0, b"next")
        home.write(writer, "a", 0, b"next")
        with pytest.raises(OutOfOrderSequence):
            home.write(deepcopy(forgetful), "a", 0, b"next")

    run(test)


def test_marker_that_nobody_waits_for_wakes_readers() -> None:
    async def test(home: TransactionHome) -> None:
        writer = await begun(home)
        woken = []

        class Waiter:
            def wake(self) -> None:
                woken.append(True)

        home.partition("a", 0).waiters[Waiter()] = None
        await home.end(writer, is_commit=True)
        assert woken

    run(test)


def test_marker_without_a_transaction_does_no_harm() -> None:
    async def test(home: TransactionHome) -> None:
        log = home.partition("a", 0).log
        [outcome] = log.append(
            [
                build_control(
                    ControlType.COMMIT,
                    producer_id=1,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp_ms=0,
                )
            ]
        )
        assert outcome == 0
        assert log.last_stable_offset == 1

    run(test)
