"""What the local engine vouches for when its owner does two things at once."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path

import pytest

from millstream.clock import ManualClock
from millstream.errors import DiskFull
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment import SegmentState
from millstream.storage.segment_cache import SegmentCache
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.log_steps import append, fill
from tests.fakes.sample_batches import batch_of, values_of

SMALL = LogSettings(segment_bytes=200, retention_ms=-1)


class Owner:
    """Opens logs on a fake disk, and fails to write checkpoints on demand."""

    def __init__(self, disk: FakeFilesystem) -> None:
        self.disk = disk
        self.checkpoint_fails = False

    def open(self, checkpoint: LogCheckpoint | None = None) -> LocalLog:
        return LocalLog(
            self.disk,
            "/data/orders/0",
            name="orders/0",
            settings=SMALL,
            clock=ManualClock(),
            cache=SegmentCache(2),
            checkpoint=checkpoint,
            before_truncate=self._checkpoint,
        )

    def _checkpoint(self) -> None:
        if self.checkpoint_fails:
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def owner() -> Owner:
    disk = FakeFilesystem()
    disk.make_directory("/data")
    return Owner(disk)


def test_log_that_would_rest_while_a_sync_is_queued_still_syncs_its_records(owner: Owner) -> None:
    log = owner.open()
    append(log, batch_of(b"first"))
    log.begin_sync()  # waits in a queue
    log.rest()
    log.sync()
    assert log.synced_offset == 1
    after = Owner(owner.disk.after_crash("lost", 0)).open(log.checkpoint())
    assert values_of(after) == [b"first"]
    assert not after.report.damage


def test_truncation_without_a_checkpoint_changes_nothing(owner: Owner) -> None:
    log = owner.open()
    fill(log, 9)
    values = values_of(log)
    owner.checkpoint_fails = True
    with pytest.raises(DiskFull):
        log.truncate(3)
    assert values_of(log) == values
    append(log, batch_of(b"next"))
    log.sync()
    assert {s.state for s in log.segments()} == {SegmentState.ARCHIVED, SegmentState.ACTIVE}
    after = Owner(owner.disk.after_crash("lost", 0)).open(log.checkpoint())
    assert values_of(after) == [*values, b"next"]


def test_file_removed_during_a_listing_hides_no_other(tmp_path: Path) -> None:
    filesystem = LocalFilesystem()
    names = {f"{number:020d}.log" for number in range(20)}
    for name in names:
        (tmp_path / name).touch()
    stop = threading.Event()

    def come_and_go() -> None:
        path = tmp_path / "00000000000000000000.log.deleted"
        while not stop.is_set():
            path.touch()
            path.unlink()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(1500):
            assert names <= filesystem.sizes(str(tmp_path)).keys()
    finally:
        stop.set()
        thread.join()


def test_directory_removed_under_one_log_leaves_the_others_to_stop_cleanly(tmp_path: Path) -> None:
    def open_directory() -> DataDirectory:
        return DataDirectory(
            LocalFilesystem(),
            str(tmp_path),
            storage=StorageSettings(),
            defaults=LogSettings(),
            clock=ManualClock(),
        )

    directory = open_directory()
    for topic in ("gone", "kept"):
        append(directory.create(topic, 0), batch_of(b"x"))
    shutil.rmtree(tmp_path / "topics" / "gone")
    directory.close()
    assert any(note.startswith("gone/0 was not closed cleanly") for note in directory.take_notes())
    again = open_directory()
    assert again.log("kept", 0).report.clean
    again.close()


def test_append_goes_on_when_its_directory_is_removed_without_giving_an_offset_twice(
    tmp_path: Path,
) -> None:
    log = LocalLog(
        LocalFilesystem(),
        str(tmp_path / "log"),
        name="log",
        settings=LogSettings(index_interval_bytes=0),
        clock=ManualClock(),
        cache=SegmentCache(1),
    )
    append(log, batch_of(b"x"))
    shutil.rmtree(tmp_path / "log")
    # More index entries than wait in memory.
    offsets = [offset for _ in range(300) for offset in append(log, batch_of(b"x"))]
    assert offsets == list(range(1, 301))
