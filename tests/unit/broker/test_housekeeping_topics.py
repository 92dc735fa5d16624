"""Upkeep of topics that come, change and go while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from millstream.records import Record, build
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.compaction_plan import CompactionPlan
from millstream.storage.local_log import LocalLog
from tests.fakes.fake_broker import PATH, FakeBroker
from tests.fakes.fake_filesystem import FakeFile, FakeFilesystem
from tests.fakes.fake_flusher import PromptFlusher
from tests.fakes.log_steps import append
from tests.fakes.patience import HANG_S
from tests.fakes.sample_batches import batch_of, values_of

COMPACTED = LogSettings(
    segment_bytes=200, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


class RecordingFlusher(PromptFlusher):
    """Remembers what it was told to flush."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed: list[str] = []

    def flush(self, log: Any) -> None:
        self.flushed.append(log.name)


@pytest.mark.parametrize(
    ("flush_ms", "tick_ms"), [(100_000, 250), (1000, 250), (100, 50), (20, 10), (3, 5), (0, 5)]
)
def test_upkeep_looks_as_often_as_the_hastiest_topic_needs(flush_ms: int, tick_ms: int) -> None:
    async def test() -> None:
        flusher = RecordingFlusher()
        host = await FakeBroker(new_flusher=lambda **_: flusher).start()
        upkeep = host.housekeeping
        assert upkeep.flush_tick_ms == 250
        calm = host.directory.create("calm", 0)
        hasty = host.directory.create("hasty", 0, replace(calm.settings, flush_ms=flush_ms))
        await upkeep.flush_due()
        assert upkeep.flush_tick_ms == tick_ms
        append(hasty, batch_of(b"a"))
        host.clock.advance_ms(max(flush_ms - tick_ms, 0))
        await upkeep.flush_due()
        assert "hasty/0" in flusher.flushed
        assert "calm/0" not in flusher.flushed
        hasty.reconfigure(calm.settings)
        await upkeep.flush_due()
        assert upkeep.flush_tick_ms == 250

    run(test)


class SlowFilesystem(FakeFilesystem):
    """Does not get on with the files of a compaction until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self.may_go_on = threading.Event()

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        if ".cleaned" in path:
            self.is_asked.set()
            assert self.may_go_on.wait(HANG_S)
        return super().open(path, create=create)


def keyed(log: LocalLog, count: int) -> None:
    for number in range(count):
        append(log, build([Record(0, 0, b"k%d" % (number % 2), b"v%d" % number)]))
    log.sync()


def test_compaction_of_a_log_that_goes_is_cancelled_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        disk = SlowFilesystem()
        host = await FakeBroker(disk).start()
        upkeep = host.housekeeping
        log = host.directory.create("orders", 0, COMPACTED)
        other = host.directory.create("other", 0)
        keyed(log, 10)
        cleaning = asyncio.create_task(upkeep.clean())
        await asyncio.to_thread(disk.is_asked.wait, 120)
        # That of another log is nobody's business.
        await upkeep.release([other])
        assert not cleaning.done()
        released = asyncio.create_task(upkeep.release([log]))
        await asyncio.sleep(0)
        assert not released.done()
        disk.may_go_on.set()
        await released
        removal = host.directory.forget("orders", bytes(16))
        await asyncio.to_thread(removal.run)
        [fresh] = host.directory.open_new("orders", [0], COMPACTED)
        host.directory.add([fresh])
        await cleaning
        assert "upkeep failed" not in caplog.text
        assert disk.sizes(f"{PATH}/topics/orders/0") == {}
        keyed(fresh, 4)
        assert values_of(fresh) == [b"v0", b"v1", b"v2", b"v3"]

    run(test)


def test_log_that_went_since_the_look_began_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        host = await FakeBroker().start()
        upkeep = host.housekeeping
        for topic in ("a", "b", "c"):
            append(host.directory.create(topic, 0), batch_of(b"a"))
        cleaning = asyncio.create_task(upkeep.clean())
        await asyncio.sleep(0)
        host.directory.forget("c", bytes(16)).run()
        await cleaning
        assert caplog.text == ""

    run(test)


def test_files_of_deleted_topics_are_removed() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        host = await FakeBroker(disk).start()
        upkeep = host.housekeeping
        append(host.directory.create("orders", 0), batch_of(b"a"))
        host.directory.forget("orders", bytes(16)).run()
        assert disk.directories(f"{PATH}/deleted") == [bytes(16).hex()]
        await upkeep.remove_deleted()
        assert disk.directories(f"{PATH}/deleted") == []

    run(test)


def test_directory_that_cannot_be_removed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class StubbornFilesystem(FakeFilesystem):
        def remove_directory(self, path: str) -> None:
            raise PermissionError(1, "Operation not permitted", path)

    async def test() -> None:
        host = await FakeBroker(StubbornFilesystem()).start()
        host.directory.create("orders", 0)
        host.directory.forget("orders", bytes(16)).run()
        await host.housekeeping.remove_deleted()
        assert "could not be removed" in caplog.text

    run(test)


def test_pass_that_follows_one_that_was_cancelled_too_late_is_cancelled_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        disk = SlowFilesystem()
        storage = StorageSettings(compaction_buffer_bytes=1024, closing_threads=1)
        host = await FakeBroker(disk, storage=storage).start()
        upkeep = host.housekeeping
        log = host.directory.create("orders", 0, COMPACTED)
        for number in range(400):
            append(log, build([Record(0, 0, b"key %d" % (number % 100), b"v")]))
        log.sync()
        cancelled: list[CompactionPlan] = []
        cancel = CompactionPlan.cancel

        def cancel_too_late(plan: CompactionPlan) -> None:
            cancelled.append(plan)
            if len(cancelled) > 1:
                cancel(plan)

        monkeypatch.setattr(CompactionPlan, "cancel", cancel_too_late)
        cleaning = asyncio.create_task(upkeep.clean())
        await asyncio.to_thread(disk.is_asked.wait, 120)
        released = asyncio.create_task(upkeep.release([log]))
        await asyncio.sleep(0)
        disk.may_go_on.set()
        await released
        assert len(cancelled) > 1
        assert not upkeep.is_compacting
        await cleaning

    run(test)
