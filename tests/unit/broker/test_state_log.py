"""The broker's own state as keyed records in a log."""

from __future__ import annotations

import asyncio

import pytest

from millstream.broker.state_log import Entry, StateLog, TransactionalProducer
from millstream.clock import ManualClock
from millstream.errors import MessageTooLarge, MillstreamError, StorageFailure
from millstream.records import ControlType, build_control
from millstream.settings.log import LogSettings
from millstream.storage.flusher import Done
from millstream.storage.local_log import LocalLog
from millstream.storage.log_walk import sound_batches
from millstream.storage.partition_log import PartitionLog
from millstream.storage.segment_cache import SegmentCache
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.fake_flusher import PromptFlusher


class LateFlusher(PromptFlusher):
    """Tells nobody anything until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[int, Done]] = []

    def when_durable(self, log: PartitionLog, offset: int, done: Done) -> None:
        self.waiting.append((offset, done))


class Home:
    def __init__(self, settings: LogSettings | None = None) -> None:
        self.clock = ManualClock()
        self.log = LocalLog(
            FakeFilesystem(),
            "/state/0",
            name="state/0",
            settings=settings or LogSettings(),
            clock=self.clock,
            cache=SegmentCache(2),
        )
        self.flusher = LateFlusher()
        self.state = StateLog(
            self.log, self.flusher, clock=self.clock, max_decompressed_bytes=1 << 20
        )

    def replayed(self) -> list[Entry]:
        return [(record.key or b"", record.value) for record in self.state.replay()]


def test_what_is_replayed_is_what_was_appended_in_order() -> None:
    home = Home()
    assert home.state.append([(b"a", b"1"), (b"b", b"2")]) == 2
    assert home.state.append([(b"a", None)]) == 3
    assert home.replayed() == [(b"a", b"1"), (b"b", b"2"), (b"a", None)]


def test_entries_have_the_time_of_the_clock() -> None:
    home = Home()
    home.clock.advance_ms(77)
    home.state.append([(b"a", b"1")])
    assert [record.timestamp_ms for record in home.state.replay()] == [home.clock.now_ms()]


def test_entries_are_stored_all_or_none() -> None:
    home = Home(LogSettings(max_message_bytes=200))
    with pytest.raises(MessageTooLarge):
        home.state.append([(b"a", b"1"), (b"b", b"x" * 500)])
    assert home.replayed() == []


def test_entries_of_a_transaction_carry_its_producer_and_no_sequence() -> None:
    home = Home()
    home.state.append([(b"a", b"1"), (b"b", b"2")])
    assert home.state.append([(b"a", b"3")], producer=TransactionalProducer(7, 2)) == 3
    plain, transactional = [header for header, _ in sound_batches(home.log, 0)]
    assert not plain.is_transactional
    assert transactional.is_transactional
    assert (transactional.producer_id, transactional.producer_epoch) == (7, 2)
    assert transactional.base_sequence == -1


def test_batches_tell_of_transactions_and_of_their_ends() -> None:
    home = Home()
    producer = TransactionalProducer(7, 2)
    home.state.append([(b"a", b"1")])
    for kind in ControlType:
        home.state.append([(b"b", b"2")], producer=producer)
        marker = build_control(
            kind, producer_id=7, producer_epoch=2, coordinator_epoch=0, timestamp_ms=0
        )
        home.log.append([marker])
    found = [
        ([record.value for record in records], *rest) for records, *rest in home.state.batches()
    ]
    assert found == [
        ([b"1"], None, None),
        ([b"2"], producer, None),
        ([], producer, False),
        ([b"2"], producer, None),
        ([], producer, True),
    ]
    assert home.replayed() == [(b"a", b"1"), (b"b", b"2"), (b"b", b"2")]


def test_durable_waits_for_the_sync() -> None:
    async def main() -> None:
        home = Home()
        end = home.state.append([(b"a", b"1")])
        future = home.state.durable(end)
        assert not future.done()
        [(offset, done)] = home.flusher.waiting
        assert offset == end
        done(None)
        await future

    asyncio.run(main())


def test_failed_sync_is_told_to_who_waits() -> None:
    async def main() -> None:
        home = Home()
        future = home.state.durable(home.state.append([(b"a", b"1")]))
        failure = StorageFailure(path="state/0", operation="sync", reason="it is broken")
        home.flusher.waiting[0][1](failure)
        with pytest.raises(MillstreamError, match="it is broken"):
            await future

    asyncio.run(main())


def test_who_waits_no_longer_is_not_told() -> None:
    async def main() -> None:
        home = Home()
        future = home.state.durable(home.state.append([(b"a", b"1")]))
        future.cancel()
        home.flusher.waiting[0][1](None)
        assert future.cancelled()

    asyncio.run(main())
