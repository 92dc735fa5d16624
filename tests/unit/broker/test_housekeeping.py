"""The broker's upkeep of its logs. Where nothing else is said, time moves when the test says so."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from millstream.errors import StorageFailure
from millstream.records import Record, build
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.filesystem import Filesystem, LocalFilesystem
from millstream.storage.flusher import Flusher
from millstream.storage.local_log import LocalLog
from tests.fakes.fake_broker import PATH, FakeBroker
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.log_steps import append
from tests.fakes.open_door import until
from tests.fakes.patience import HANG_S
from tests.fakes.sample_batches import batch_of, headers_in, records_in, values_of

_T = TypeVar("_T")

SETTINGS = LogSettings(
    segment_bytes=500,
    flush_ms=1000,
    retention_ms=60_000,
    file_delete_delay_ms=5000,
)
STORAGE = StorageSettings(
    checkpoint_ms=5, retention_check_ms=5, closing_threads=1, cached_segments=4
)


class Broker(FakeBroker):
    """A broker with small segments, whose syncs run in threads."""

    def __init__(
        self,
        filesystem: Filesystem | None = None,
        path: str = PATH,
        *,
        settings: LogSettings = SETTINGS,
    ) -> None:
        super().__init__(filesystem, path, storage=STORAGE, log=settings, new_flusher=Flusher)

    def filled_log(self, topic: str, batches: int = 20) -> LocalLog:
        log = self.directory.create(topic, 0)
        for number in range(batches):
            append(log, batch_of(b"%d" % number, b"." * 50, timestamps_ms=[self.now_ms] * 2))
        return log

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    async def flush(self) -> None:
        """One pass that looks for what is to be flushed, and the syncs that it begins."""
        await self.housekeeping.flush_due()
        await until(lambda: not self.flusher.under_way)


def run(test: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    return asyncio.run(test())


async def durable(flusher: Flusher, log: LocalLog, offset: int) -> StorageFailure | None:
    done: asyncio.Future[StorageFailure | None] = asyncio.get_running_loop().create_future()
    flusher.when_durable(log, offset, done.set_result)
    return await done


# --- flushing


def test_data_that_nobody_waits_for_is_synced_within_flush_ms() -> None:
    async def test() -> None:
        broker = await Broker().start()
        log = broker.filled_log("orders", 2)
        await broker.flush()
        assert log.synced_offset == 0
        # It looks every quarter of a second, so this look is the last one in time.
        broker.clock.advance_ms(750)
        await broker.flush()
        assert log.synced_offset == log.end_offset == 4
        await broker.stop()

    run(test)


def test_as_many_messages_as_flush_messages_allows_are_synced_at_once() -> None:
    async def test() -> None:
        settings = LogSettings(flush_messages=3, flush_ms=60_000)
        broker = await Broker(settings=settings).start()
        log = broker.filled_log("orders", 1)
        await broker.flush()
        assert (log.synced_offset, log.end_offset) == (0, 2)
        append(log, batch_of(b"third"))
        await broker.flush()
        assert log.synced_offset == 3
        assert broker.housekeeping.flush_tick_ms == 5
        await broker.stop()

    run(test)


def test_clean_log_is_not_synced() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        broker = await Broker(disk).start()
        log = broker.filled_log("orders", 2)
        broker.filled_log("payments", 2)
        broker.clock.advance_ms(1000)
        await broker.flush()
        append(log, batch_of(b"more"))
        broker.clock.advance_ms(1000)
        before = disk.operation_count
        await broker.flush()
        assert disk.operations[before:] == ["sync /data/topics/orders/0/00000000000000000000.log"]
        await broker.stop()

    run(test)


def test_log_that_has_stopped_does_not_stop_the_flushing_of_others() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        broker = await Broker(disk).start()
        broken, sound = broker.filled_log("broken", 2), broker.filled_log("sound", 2)
        disk.fail_sync("*/broken/*")
        for _ in range(3):
            broker.clock.advance_ms(1000)
            append(sound, batch_of(b"more"))
            await broker.flush()
        assert isinstance(broken.failure, StorageFailure)
        assert broken.synced_offset == 0
        assert sound.synced_offset == sound.end_offset == 7
        await broker.stop()

    run(test)


# --- checkpoints


def test_checkpoint_is_written_when_something_changed() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        broker = await Broker(disk).start()
        log = broker.filled_log("orders", 5)
        log.sync()
        await broker.housekeeping.checkpoint()
        before = disk.operation_count
        await broker.housekeeping.checkpoint()
        assert disk.operation_count == before
        found = (await Broker(disk.after_crash("lost")).start()).directory.log("orders", 0)
        assert found.end_offset == log.end_offset
        assert found.report.scanned_bytes < 200, "one batch at most"
        await broker.stop()

    run(test)


def test_checkpoint_that_fails_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        broker = await Broker(disk).start()
        log = broker.filled_log("orders", 5)
        log.sync()
        disk.fail_sync("*/checkpoint.tmp")
        await broker.housekeeping.checkpoint()
        assert "the checkpoint could not be written" in caplog.text
        await broker.housekeeping.checkpoint()
        found = (await Broker(disk.after_crash("lost")).start()).directory.log("orders", 0)
        assert found.report.scanned_bytes < 200, "one batch at most"
        await broker.stop()

    run(test)


# --- retention


def deleted_in(broker: Broker, topic: str) -> list[str]:
    names = broker.filesystem.sizes(f"/data/topics/{topic}/0")
    return [name for name in names if name.endswith(".deleted")]


def test_expired_segments_are_renamed_and_removed_later() -> None:
    async def test() -> None:
        broker = await Broker().start()
        log = broker.filled_log("orders")
        log.sync()
        view = log.read(0, 100)
        content = bytes(view)
        segments = len(log.segments())
        broker.clock.advance_ms(SETTINGS.retention_ms + 1)
        await broker.housekeeping.clean()
        # All is too old; the segment that was active is closed, but not on disk yet.
        assert len(deleted_in(broker, "orders")) == 3 * (segments - 1)
        broker.clock.advance_ms(SETTINGS.file_delete_delay_ms - 1)
        await broker.housekeeping.clean()
        assert len(deleted_in(broker, "orders")) == 3 * (segments - 1)
        broker.clock.advance_ms(1)
        await broker.flush()
        await broker.housekeeping.clean()
        assert len(deleted_in(broker, "orders")) == 3
        assert (log.start_offset, log.end_offset) == (40, 40)
        broker.clock.advance_ms(SETTINGS.file_delete_delay_ms)
        await broker.housekeeping.clean()
        assert deleted_in(broker, "orders") == []
        # A reader that was there before is not disturbed.
        assert view == content
        assert append(log, batch_of(b"next")) == [40]
        await broker.stop()

    run(test)


def test_log_whose_upkeep_fails_is_logged_and_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        broker = await Broker(disk).start()
        for topic in ("broken", "sound"):
            broker.filled_log(topic).sync()
        disk.fail_sync("*/broken/*")
        append(broker.directory.log("broken", 0), batch_of(b"more"))
        with pytest.raises(StorageFailure):
            broker.directory.log("broken", 0).sync()
        broker.clock.advance_ms(SETTINGS.retention_ms + 1)
        await broker.housekeeping.clean()
        assert "broken/0: upkeep failed" in caplog.text
        assert "sound/0" not in caplog.text
        assert broker.directory.log("sound", 0).start_offset > 0
        await broker.stop()

    run(test)


class StubbornFilesystem(FakeFilesystem):
    """Does not let go of record files."""

    def remove(self, path: str) -> None:
        if path.endswith(".log.deleted"):
            raise PermissionError(errno.EPERM, "Operation not permitted", path)
        super().remove(path)


def test_file_that_cannot_be_removed_is_logged_and_others_go(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        broker = await Broker(StubbornFilesystem()).start()
        broker.filled_log("orders").sync()
        broker.clock.advance_ms(SETTINGS.retention_ms + 1)
        await broker.housekeeping.clean()
        broker.clock.advance_ms(SETTINGS.file_delete_delay_ms)
        await broker.housekeeping.clean()
        left = deleted_in(broker, "orders")
        assert left
        assert all(name.endswith(".log.deleted") for name in left)
        assert "could not be removed" in caplog.text
        await broker.stop()

    run(test)


# --- running


def test_upkeep_does_all_its_work_by_itself(tmp_path: Path) -> None:
    async def test() -> None:
        settings = LogSettings(
            segment_bytes=500, flush_ms=2, retention_bytes=600, file_delete_delay_ms=0
        )
        broker = await Broker(LocalFilesystem(), str(tmp_path), settings=settings).start()
        upkeep = asyncio.create_task(broker.housekeeping.run())
        log = broker.filled_log("orders")
        broker.clock.advance_ms(1000)
        await until(lambda: log.synced_offset == log.end_offset)
        await until(lambda: sum(segment.size for segment in log.segments()) < 1200)
        await until(lambda: not list(tmp_path.glob("topics/orders/0/*.deleted")))
        await until(lambda: b"orders/0" in (tmp_path / "checkpoint").read_bytes())
        values = values_of(log)
        upkeep.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upkeep
        await broker.stop()
        again = await Broker(LocalFilesystem(), str(tmp_path), settings=settings).start()
        assert all(report.clean for report in again.directory.reports)
        assert values_of(again.directory.log("orders", 0)) == values
        await again.stop()

    run(test)


def test_upkeep_that_is_cancelled_at_any_moment_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        others = asyncio.all_tasks()
        for ticks in range(30):
            disk = FakeFilesystem()
            broker = await Broker(disk).start()
            broker.filled_log("orders").sync()
            upkeep = asyncio.create_task(broker.housekeeping.run())
            broker.clock.advance_ms(SETTINGS.retention_ms + 1)
            for _ in range(ticks):
                await asyncio.sleep(0.0005)
            upkeep.cancel()
            with pytest.raises(asyncio.CancelledError):
                await upkeep
            assert asyncio.all_tasks() == others
            await broker.stop()
            assert caplog.text == ""
            again = await Broker(disk.after_crash("lost")).start()
            assert [r for r in again.directory.reports if not r.clean] == []
            await again.stop()

    run(test)


# --- many at once


WRITERS = 16
READERS = 16
BATCHES = 40


async def write(broker: Broker, log: LocalLog, writer: int) -> dict[int, bytes]:
    """Append one batch after the other, each when the last is durable; by their offsets."""
    written: dict[int, bytes] = {}
    for number in range(BATCHES):
        values = [b"%d %d %d" % (writer, number, n) for n in range(1 + number % 3)]
        (offset,) = append(log, batch_of(*values))
        written |= {offset + n: value for n, value in enumerate(values)}
        if number % 4:
            assert await durable(broker.flusher, log, offset + len(values)) is None
            assert log.synced_offset >= offset + len(values)
        else:
            await asyncio.sleep(0)
    return written


async def read(log: LocalLog, end: Awaitable[int]) -> dict[int, bytes | None]:
    """Follow the log until it has reached its end; what was seen, by offset."""
    last = asyncio.ensure_future(end)
    seen: dict[int, bytes | None] = {}
    offset = 0
    while not last.done() or offset < last.result():
        view = log.read(offset, 2000)
        for record in records_in(view):
            if record.offset >= offset:
                assert record.offset == len(seen), "no gap, and nothing twice"
                seen[record.offset] = record.value
        if view:
            offset = headers_in(view)[-1].next_offset
        await asyncio.sleep(0)
    return seen


def test_many_writers_and_readers_of_one_log_see_the_same(tmp_path: Path) -> None:
    async def test() -> None:
        settings = LogSettings(segment_bytes=20_000, flush_ms=5, retention_ms=-1)
        broker = await Broker(LocalFilesystem(), str(tmp_path), settings=settings).start()
        upkeep = asyncio.create_task(broker.housekeeping.run())
        log = broker.directory.create("orders", 0)
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        readers = [asyncio.create_task(read(log, asyncio.shield(end))) for _ in range(READERS)]
        written = await asyncio.gather(*(write(broker, log, n) for n in range(WRITERS)))
        end.set_result(log.end_offset)
        expected = {offset: value for part in written for offset, value in part.items()}
        assert len(expected) == sum(map(len, written)), "no offset was given twice"
        assert sorted(expected) == list(range(log.end_offset))
        for reader in readers:
            assert await reader == expected
        upkeep.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upkeep
        await broker.stop()

    run(test)


class FailingSwap(LocalFilesystem):
    """A disk that fails at the commit of a compaction, when the test lets it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.proceed = threading.Event()

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".swap"):
            self.reached.set()
            self.proceed.wait(HANG_S)
            raise OSError(errno.EIO, "Input/output error")
        super().rename(source, target)


def test_compaction_that_fails_while_upkeep_is_cancelled_does_not_keep_it_from_ending(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        disk = FailingSwap()
        settings = LogSettings(
            segment_bytes=1,
            cleanup_policy=frozenset({"compact"}),
            min_cleanable_dirty_ratio=0.0,
        )
        broker = await Broker(disk, str(tmp_path), settings=settings).start()
        log = broker.directory.create("orders", 0)
        for value in (b"old", b"new", b"other"):
            append(log, build([Record(0, log.end_offset, b"key", value)]))
        log.sync()
        upkeep = asyncio.create_task(broker.housekeeping.run())
        await asyncio.to_thread(disk.reached.wait, 120)
        upkeep.cancel()
        disk.proceed.set()
        await asyncio.wait([upkeep], timeout=HANG_S)
        assert upkeep.cancelled()
        assert log.failure is not None
        await broker.stop()

    asyncio.run(scenario())


def test_compaction_begins_at_the_look_after_a_segment_is_archived() -> None:
    async def test() -> None:
        settings = LogSettings(
            segment_bytes=300, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
        )
        broker = await Broker(settings=settings).start()
        log = broker.directory.create("orders", 0)
        await broker.housekeeping.compact_due()
        for number in range(20):
            append(log, build([Record(0, broker.now_ms, b"key", b"%d" % number)]))
        log.sync()
        await broker.housekeeping.compact_due()
        assert broker.housekeeping.work.passes == 1
        assert log.segments()[0].next_offset > 1
        # Nothing is new.
        before = broker.disk.operation_count
        await broker.housekeeping.compact_due()
        assert broker.disk.operation_count == before
        await broker.stop()

    run(test)


def test_compaction_begins_when_a_record_is_as_old_as_max_compaction_lag_ms() -> None:
    async def test() -> None:
        settings = LogSettings(
            cleanup_policy=frozenset({"compact"}),
            min_cleanable_dirty_ratio=1.0,
            max_compaction_lag_ms=10_000,
        )
        broker = await Broker(settings=settings).start()
        log = broker.directory.create("orders", 0)
        for number in range(3):
            append(log, build([Record(0, broker.now_ms, b"key", b"%d" % number)]))
        await broker.housekeeping.compact_due()
        broker.clock.advance_ms(9_999)
        await broker.housekeeping.compact_due()
        assert len(log.segments()) == 1
        broker.clock.advance_ms(1)
        await broker.housekeeping.compact_due()
        assert len(log.segments()) == 2
        log.sync()
        # Something is compacted already, so that the share of what is not is small.
        await broker.housekeeping.compact_due()
        assert broker.housekeeping.work.passes == 1
        append(log, build([Record(0, broker.now_ms, b"key", b"3")]))
        broker.clock.advance_ms(10_000)
        await broker.housekeeping.compact_due()
        log.sync()
        await broker.housekeeping.compact_due()
        assert broker.housekeeping.work.passes == 2
        await broker.stop()

    run(test)
