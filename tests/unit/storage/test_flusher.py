"""Group commit: who is served by which sync, and who is told what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from millstream.clock import ManualClock
from millstream.errors import StorageFailure
from millstream.settings.log import LogSettings
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.flusher import Flusher
from millstream.storage.local_log import LocalLog
from millstream.storage.partition_log import SyncTask
from millstream.storage.segment_cache import SegmentCache
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.log_steps import append
from tests.fakes.patience import HANG_S
from tests.fakes.sample_batches import batch_of, values_of


class SlowLog(LocalLog):
    """A log whose syncs end when the test says so, and as it says."""

    def __init__(self, name: str = "orders/0") -> None:
        super().__init__(
            FakeFilesystem(),
            "/log",
            name=name,
            settings=LogSettings(),
            clock=ManualClock(),
            cache=SegmentCache(2),
        )
        self.begun: SimpleQueue[None] = SimpleQueue()
        self.results: SimpleQueue[BaseException | None] = SimpleQueue()
        self.syncs = 0

    def begin_sync(self) -> SlowSync:  # type: ignore[override]
        task = super().begin_sync()
        self.syncs += 1
        return SlowSync(self, task.target_offset, task)

    def finish_sync(self, task: SyncTask, error: OSError | None) -> None:
        assert isinstance(task, SlowSync)
        super().finish_sync(task.inner, error)


class SlowSync:
    def __init__(self, log: SlowLog, target_offset: int, inner: SyncTask) -> None:
        self.log = log
        self.target_offset = target_offset
        self.inner = inner

    def run(self) -> None:
        self.log.begun.put(None)
        result = self.log.results.get(timeout=HANG_S)
        if result is not None:
            raise result


class Owner:
    """The thread that owns the logs: collects whenever it is woken."""

    def __init__(self, threads: int) -> None:
        self.woken = threading.Semaphore(0)
        self.flusher = Flusher(threads=threads, wake=self.woken.release)
        self.told: list[tuple[str, StorageFailure | None]] = []

    def wait_for(self, log: LocalLog, who: str) -> None:
        """Let someone wait for all that was appended so far."""
        self.flusher.when_durable(log, log.end_offset, lambda e: self.told.append((who, e)))

    def collect(self) -> None:
        """Wait for one sync to end."""
        assert self.woken.acquire(timeout=HANG_S)
        self.flusher.collect()

    def collect_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.collect()

    def names(self) -> list[str]:
        return [who for who, _ in self.told]


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner(threads=2)
    yield owner
    owner.flusher.close()


def test_waiter_is_told_when_the_sync_of_its_append_has_ended(owner: Owner) -> None:
    log = SlowLog()
    append(log, batch_of(b"a"))
    owner.wait_for(log, "a")
    log.begun.get(timeout=HANG_S)
    assert owner.told == []
    log.results.put(None)
    owner.collect()
    assert owner.told == [("a", None)]
    assert log.synced_offset == 1


def test_all_who_come_during_a_sync_are_served_by_one_more(owner: Owner) -> None:
    log = SlowLog()
    append(log, batch_of(b"first"))
    owner.wait_for(log, "first")
    for number in range(100):
        append(log, batch_of(b"%d" % number))
        owner.wait_for(log, f"late {number}")
    log.results.put(None)
    owner.collect()
    # The sync under way began before the late ones came, so it says nothing about them.
    assert owner.names() == ["first"]
    log.results.put(None)
    owner.collect()
    assert owner.names() == ["first", *(f"late {number}" for number in range(100))]
    assert log.syncs == 2


def test_waiter_for_what_is_durable_is_told_at_once(owner: Owner) -> None:
    log = SlowLog()
    append(log, batch_of(b"a"))
    owner.wait_for(log, "a")
    log.results.put(None)
    owner.collect()
    owner.wait_for(log, "again")
    assert owner.names() == ["a", "again"]
    assert log.syncs == 1


def test_flush_that_nobody_waits_for_moves_the_synced_offset(owner: Owner) -> None:
    log = SlowLog()
    append(log, batch_of(b"a"))
    owner.flusher.flush(log)
    owner.flusher.flush(log)
    log.results.put(None)
    owner.collect()
    assert (log.synced_offset, log.syncs) == (1, 1)
    # What comes while a flush is under way does wait for another.
    append(log, batch_of(b"b"))
    owner.flusher.flush(log)
    append(log, batch_of(b"c"))
    owner.wait_for(log, "c")
    log.results.put(None)
    owner.collect()
    assert (log.synced_offset, owner.told) == (2, [])
    log.results.put(None)
    owner.collect()
    assert (log.synced_offset, owner.names()) == (3, ["c"])


def test_failed_sync_is_told_to_all_who_wait_and_all_who_come_later(owner: Owner) -> None:
    log = SlowLog()
    append(log, batch_of(b"durable"))
    owner.wait_for(log, "durable")
    log.results.put(None)
    owner.collect()
    for who in ("first", "second", "third"):
        append(log, batch_of(b"x"))
        owner.wait_for(log, who)
    log.results.put(OSError(5, "Input/output error"))
    owner.collect()
    owner.wait_for(log, "later")
    assert owner.names() == ["durable", "first", "second", "third", "later"]
    failures = [failure for _, failure in owner.told[1:]]
    assert all(isinstance(failure, StorageFailure) for failure in failures)
    assert (log.synced_offset, log.syncs) == (1, 2)
    # What was durable before stays so.
    owner.flusher.when_durable(log, 1, lambda e: owner.told.append(("old", e)))
    assert owner.told[-1] == ("old", None)


def test_task_that_fails_in_an_unforeseen_way_stops_the_log(owner: Owner) -> None:
    log = SlowLog()
    append(log, batch_of(b"a"))
    owner.wait_for(log, "a")
    log.results.put(ValueError("a bug of ours"))
    owner.collect()
    ((_, failure),) = owner.told
    assert isinstance(failure, StorageFailure)
    assert "a bug of ours" in str(failure)
    assert log.synced_offset == 0


def test_slow_log_does_not_hold_up_another(owner: Owner) -> None:
    slow, quick = SlowLog("slow/0"), SlowLog("quick/0")
    for log in (slow, quick):
        append(log, batch_of(b"a"))
        owner.wait_for(log, log.name)
    slow.begun.get(timeout=HANG_S)
    quick.results.put(None)
    owner.collect()
    assert owner.names() == ["quick/0"]
    slow.results.put(None)
    owner.collect()
    assert owner.names() == ["quick/0", "slow/0"]


def test_failed_log_does_not_stop_another(owner: Owner) -> None:
    broken, sound = SlowLog("broken/0"), SlowLog("sound/0")
    for log in (broken, sound):
        append(log, batch_of(b"a"))
        owner.wait_for(log, log.name)
    broken.results.put(OSError(5, "Input/output error"))
    owner.collect()
    sound.results.put(None)
    owner.collect()
    (first, failure), second = owner.told
    assert (first, second) == ("broken/0", ("sound/0", None))
    assert isinstance(failure, StorageFailure)


def test_waiter_that_fails_does_not_keep_the_others_from_hearing(
    owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: StorageFailure | None) -> None:
        raise ValueError("gone away")

    log = SlowLog()
    append(log, batch_of(b"a"))
    owner.flusher.when_durable(log, 1, fail)
    owner.wait_for(log, "after it")
    log.results.put(None)
    owner.collect()
    assert owner.names() == ["after it"]
    assert "gone away" in caplog.text


def test_waiter_that_appends_again_when_it_is_told_is_served_too(owner: Owner) -> None:
    log = SlowLog()
    append(log, batch_of(b"a"))

    def go_on(failure: StorageFailure | None) -> None:
        assert failure is None
        append(log, batch_of(b"b"))
        owner.wait_for(log, "b")

    owner.flusher.when_durable(log, 1, go_on)
    for _ in range(2):
        log.results.put(None)
        owner.collect()
    assert owner.names() == ["b"]
    assert log.synced_offset == 2


def test_close_lets_the_syncs_under_way_end_and_tells_all() -> None:
    owner = Owner(threads=1)
    logs = [SlowLog(f"orders/{number}") for number in range(3)]
    for log in logs:
        append(log, batch_of(b"a"))
        owner.wait_for(log, log.name)
        append(log, batch_of(b"b"))
        owner.wait_for(log, f"{log.name} again")
        for result in (None, OSError(5, "Input/output error")):
            log.results.put(result)
    owner.flusher.close()
    told = dict(owner.told)
    assert len(told) == 6
    for log in logs:
        assert told[log.name] is None
        assert isinstance(told[f"{log.name} again"], StorageFailure)
    assert not any(thread.is_alive() for thread in owner.flusher._threads)


def test_many_real_logs_become_durable_while_they_are_appended_to(tmp_path: Path) -> None:
    owner = Owner(threads=4)
    cache = SegmentCache(8)
    logs = [
        LocalLog(
            LocalFilesystem(),
            str(tmp_path / f"{number}"),
            name=f"orders/{number}",
            settings=LogSettings(segment_bytes=3000),
            clock=ManualClock(),
            cache=cache,
        )
        for number in range(20)
    ]
    told: list[tuple[str, int]] = []

    def append_and_wait(log: LocalLog, number: int) -> None:
        def note(failure: StorageFailure | None) -> None:
            assert failure is None
            assert log.synced_offset >= offset
            told.append((log.name, offset))

        append(log, batch_of(b"%d" % number, b"." * 100))
        offset = log.end_offset
        owner.flusher.when_durable(log, offset, note)

    for number in range(100):
        for log in logs:
            append_and_wait(log, number)
        owner.flusher.collect()
    owner.collect_until(lambda: len(told) == 2000)
    for log in logs:
        offsets = [offset for name, offset in told if name == log.name]
        assert offsets == sorted(offsets)
        assert log.synced_offset == log.end_offset == 200
        assert len(values_of(log)) == 200
    owner.flusher.close()
    for log in logs:
        log.close()
