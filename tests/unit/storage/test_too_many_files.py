"""A process that can open no more files for a while: syncs wait, and nothing is lost."""

from __future__ import annotations

import errno
import threading

import pytest

from millstream.clock import ManualClock
from millstream.errors import StorageFailure, TooManyFiles
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.flusher import Flusher
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import SYNC_FAILED
from tests.fakes.fake_filesystem import FakeFile, FakeFilesystem
from tests.fakes.log_steps import append
from tests.fakes.patience import HANG_S
from tests.fakes.sample_batches import batch_of, idempotent_batch, values_of

PATH = "/data"
SETTINGS = LogSettings(segment_bytes=300)


class CrampedFilesystem(FakeFilesystem):
    """Has no handle left for a directory or a snapshot, as long as it is told so."""

    is_cramped = False
    refusals = 0

    def sync_directory(self, path: str) -> None:
        self._refuse(path)
        super().sync_directory(path)

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        if path.endswith(".snapshot"):
            self._refuse(path)
        return super().open(path, create=create)

    def _refuse(self, path: str) -> None:
        if self.is_cramped:
            self.refusals += 1
            raise OSError(errno.EMFILE, "Too many open files", path)


def opened(disk: FakeFilesystem) -> DataDirectory:
    storage = StorageSettings(closing_threads=1)
    return DataDirectory(disk, PATH, storage=storage, defaults=SETTINGS, clock=ManualClock())


@pytest.fixture
def disk() -> CrampedFilesystem:
    return CrampedFilesystem()


@pytest.fixture
def log(disk: CrampedFilesystem) -> LocalLog:
    return opened(disk).create("orders", 0)


def after_power_cut(disk: FakeFilesystem) -> LocalLog:
    return opened(disk.after_crash("lost")).log("orders", 0)


def test_sync_that_finds_too_many_files_open_can_be_tried_again(
    disk: CrampedFilesystem, log: LocalLog
) -> None:
    for number in range(5):
        append(log, idempotent_batch(number))
    dirty_since_ms = log.dirty_since_ms
    disk.is_cramped = True
    for _ in range(2):
        with pytest.raises(TooManyFiles):
            log.sync()
        assert log.failure is None
        assert log.synced_offset == 0
        assert log.dirty_since_ms == dirty_since_ms
    # Appends and reads go on.
    append(log, idempotent_batch(5))
    assert len(values_of(log)) == 6
    disk.is_cramped = False
    log.sync()
    assert log.synced_offset == 6
    assert SYNC_FAILED not in disk.sizes(f"{PATH}/topics/orders/0")
    # The snapshots that were due are there, too.
    assert any(name.endswith(".snapshot") for name in disk.sizes(f"{PATH}/topics/orders/0"))
    found = after_power_cut(disk)
    assert values_of(found) == values_of(log)
    assert append(found, idempotent_batch(5)) == [5]


def test_those_who_wait_are_served_once_files_can_be_opened(
    disk: CrampedFilesystem, log: LocalLog
) -> None:
    wake = threading.Event()
    flusher = Flusher(threads=1, wake=wake.set)
    told: list[StorageFailure | None] = []
    disk.is_cramped = True
    append(log, batch_of(b"a"))
    flusher.when_durable(log, 1, told.append)
    while disk.refusals < 3:
        assert wake.wait(HANG_S)
        wake.clear()
        flusher.collect()
    assert told == []
    disk.is_cramped = False
    while not told:
        assert wake.wait(HANG_S)
        wake.clear()
        flusher.collect()
    assert told == [None]
    flusher.close()
    assert values_of(after_power_cut(disk)) == [b"a"]


def test_flusher_that_is_closed_gives_up(disk: CrampedFilesystem, log: LocalLog) -> None:
    flusher = Flusher(threads=1, wake=lambda: None)
    told: list[StorageFailure | None] = []
    disk.is_cramped = True
    append(log, batch_of(b"a"))
    flusher.when_durable(log, 1, told.append)
    flusher.close()
    assert [type(failure) for failure in told] == [StorageFailure]
    assert log.failure is None


def test_log_that_cannot_be_closed_cleanly_does_not_say_that_it_was(
    disk: CrampedFilesystem, log: LocalLog
) -> None:
    append(log, batch_of(b"a"))
    disk.is_cramped = True
    with pytest.raises(StorageFailure):
        log.close()
    assert log.checkpoint().end_offset == -1


def test_failed_sync_still_stops_the_log(disk: CrampedFilesystem, log: LocalLog) -> None:
    append(log, batch_of(b"a"))
    disk.fail_sync("*.log")
    with pytest.raises(StorageFailure):
        log.sync()
    disk.is_cramped = True
    with pytest.raises(StorageFailure):
        log.sync()
    assert log.failure is not None
