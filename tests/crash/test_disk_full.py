"""A disk that is full: on a fake one at every size that it may have, and on a real small one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.clock import ManualClock
from millstream.errors import DiskFull, MillstreamError, StorageFailure
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.segment_cache import SegmentCache
from tests.crash.ledger import Ledger
from tests.crash.scripted_run import SETTINGS, LogOwner, run
from tests.crash.witnessed_log import PRODUCERS, WitnessedLog
from tests.fakes.fake_disk import SECTOR_BYTES
from tests.fakes.fake_filesystem import Crash, FakeFilesystem
from tests.fakes.sample_batches import batch_of, read_all
from tests.fakes.tiers import sampled

ROUNDS = 8
BUDGETS = 48
PARTS = 4


class Filler:
    """Appends to a log whatever the disk says, and notes what was taken."""

    def __init__(self, log: WitnessedLog, now_ms: int) -> None:
        self.witnessed = log
        self.log = log.log
        self.now_ms = now_ms
        self.refused = 0

    def append(self, *batches: bytearray) -> None:
        """Each batch is taken or finds no room, and none is taken after one that did not."""
        outcomes = self.log.append(batches)
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, int):
                assert outcome == self.witnessed.ledger.end_offset
                self.witnessed.ledger.note_sent(batch)
            else:
                assert isinstance(outcome, DiskFull)
                self.refused += 1
        taken = [isinstance(outcome, int) for outcome in outcomes]
        assert taken == sorted(taken, reverse=True)
        assert self.log.end_offset == self.witnessed.ledger.end_offset

    def batches_of(self, producer: int) -> list[bytearray]:
        """Two batches that follow on what the producer got stored; the first fills a segment."""
        last = self.witnessed.ledger.last_of(producer)
        sequence = last.header.last_sequence + 1 if last else 0
        return [
            batch_of(
                b"." * size,
                timestamps_ms=[self.now_ms],
                producer_id=producer,
                epoch=0,
                sequence=sequence + number,
            )
            for number, size in enumerate((900, 700))
        ]

    def fill(self) -> None:
        for number in range(ROUNDS):
            for producer in PRODUCERS:
                self.append(*self.batches_of(producer))
            # In one write, of which the first half may find room.
            self.append(*(batch_of(b"." * 300, timestamps_ms=[self.now_ms]) for _ in range(3)))
            if number % 2:
                self.witnessed.sync()


@pytest.mark.parametrize("part", sampled(range(PARTS), 1))
def test_full_disk_refuses_appends_until_there_is_room(part: int) -> None:
    refused = 0
    for budget in range(part, BUDGETS, PARTS):
        owner = LogOwner(FakeFilesystem(space_bytes=budget * SECTOR_BYTES), Ledger())
        filler = Filler(owner.open(), owner.clock.now_ms())
        filler.fill()
        refused += filler.refused
        # All that was taken can be read, and was synced, on the full disk.
        owner.ledger.prove(owner.log)
        assert owner.log.failure is None
        assert owner.log.synced_offset == owner.ledger.end_offset
        before = LogOwner(owner.disk.after_crash("lost"), owner.ledger.copy())
        before.disk.space_bytes = None
        before.open().ledger.take_over(before.log)
        # With room again the same log goes on where it was.
        owner.disk.space_bytes = None
        filler.refused = 0
        filler.fill()
        assert filler.refused == 0
        filler.witnessed.close()
        owner.note_checkpoint()
        after = LogOwner(owner.disk.after_crash("lost"), owner.ledger.copy())
        after.checkpoints = owner.checkpoints[-1:]
        after.open().ledger.take_over(after.log)
        assert after.log.report.clean
    assert refused


@pytest.mark.parametrize("part", sampled(range(PARTS), 1))
def test_log_that_was_stopped_or_killed_on_a_full_disk_is_whole(part: int) -> None:
    for budget in range(part, BUDGETS, PARTS):
        for stop in (True, False):
            owner = LogOwner(FakeFilesystem(space_bytes=budget * SECTOR_BYTES), Ledger())
            filler = Filler(owner.open(), owner.clock.now_ms())
            filler.fill()
            if stop:
                try:
                    filler.witnessed.close()
                except StorageFailure:
                    assert owner.log.checkpoint().end_offset == -1, "not a clean stop"
            owner.note_checkpoint()
            after = LogOwner(owner.disk.after_crash("kept"), owner.ledger.copy())
            after.disk.space_bytes = None
            after.checkpoints = owner.checkpoints[-1:]
            after.open().ledger.take_over(after.log)
            assert after.ledger.end_offset == owner.ledger.end_offset


@pytest.mark.parametrize("part", sampled(range(PARTS), 1))
def test_recovery_that_finds_no_room_loses_nothing(part: int) -> None:
    """Crash somewhere, try to recover with little room, then with enough."""
    whole = LogOwner(FakeFilesystem(), Ledger())
    run(whole)
    failed = 0
    for operation in range(60 + part * 30, whole.disk.operation_count, 120):
        owner = LogOwner(FakeFilesystem(), Ledger())
        owner.disk.crash_at(operation, "before")
        with pytest.raises(Crash):
            run(owner)
        for sectors in range(12):
            disk = owner.disk.after_crash("torn", operation)
            disk.space_bytes = disk.used_bytes + sectors * SECTOR_BYTES
            first = LogOwner(disk, owner.ledger.copy())
            first.checkpoints = owner.checkpoints[-1:]
            try:
                first.open().ledger.take_over(first.log)
            except OSError:
                failed += 1
            disk.space_bytes = None
            again = LogOwner(disk, owner.ledger.copy())
            again.checkpoints = owner.checkpoints[-1:]
            again.open().ledger.take_over(again.log)
    assert failed


@pytest.mark.parametrize("sectors", sampled(sorted(range(BUDGETS), key=lambda n: n % 8), 6))
def test_directory_on_a_full_disk_says_so_and_goes_on_when_there_is_room(sectors: int) -> None:
    disk = FakeFilesystem(space_bytes=sectors * SECTOR_BYTES)
    try:
        directory = open_directory(disk)
        log = directory.create("orders", 0)
    except (OSError, MillstreamError):
        assert sectors < 4, "there is room for the lock, the checkpoint and little else"
        return
    filler = Filler(WitnessedLog(log, Ledger()), 0)
    for _ in range(2):
        filler.fill()
        if (write := directory.prepare_checkpoint()) is not None:
            try:
                write.run()
            except OSError:
                assert filler.refused
    assert log.failure is None
    directory.close()
    assert all("cleanly" in note for note in directory.take_notes())
    disk.space_bytes = None
    again = open_directory(disk)
    found = again.log("orders", 0)
    assert found.end_offset == log.end_offset
    filler.witnessed.ledger.take_over(found)
    again.close()
    assert again.take_notes() == []


def open_directory(disk: FakeFilesystem) -> DataDirectory:
    return DataDirectory(
        disk,
        "/data",
        storage=StorageSettings(closing_threads=1),
        defaults=SETTINGS,
        clock=ManualClock(),
    )


# --- a real disk


DISK_BYTES = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of its own, of a megabyte and few files."""
    path = tmp_path / "disk"
    path.mkdir()
    options = f"size={DISK_BYTES},nr_inodes=40"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    subprocess.run(command, check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def open_real(path: Path, settings: LogSettings) -> LocalLog:
    return LocalLog(
        LocalFilesystem(),
        str(path / "log"),
        name="orders/0",
        settings=settings,
        clock=ManualClock(),
        cache=SegmentCache(4),
    )


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.system
@pytest.mark.needs("mount")
@pytest.mark.parametrize(
    ("ballast_bytes", "segment_bytes"),
    [
        pytest.param(DISK_BYTES // 2, 60_000, id="no space"),
        pytest.param(0, 20_000, id="no more files"),
    ],
)
def test_real_disk_that_is_full_refuses_appends_until_there_is_room(
    small_disk: Path, ballast_bytes: int, segment_bytes: int
) -> None:
    (small_disk / "ballast").write_bytes(bytes(ballast_bytes))
    log = open_real(small_disk, LogSettings(segment_bytes=segment_bytes))
    taken = 0
    while isinstance(outcome := log.append([batch_of(b"%5d" % taken, b"." * 3000)])[0], int):
        taken += 1
        log.sync()
    assert isinstance(outcome, DiskFull)
    open_before = open_files()
    for _ in range(100):
        (outcome,) = log.append([batch_of(b"no room", b"." * 3000)])
        assert isinstance(outcome, DiskFull)
        log.sync()
    assert open_files() == open_before
    assert [record.offset for record in read_all(log)] == list(range(2 * taken))
    (small_disk / "ballast").unlink()
    if not ballast_bytes:
        subprocess.run(["mount", "-o", "remount,nr_inodes=400", str(small_disk)], check=True)
    for number in range(taken, taken + 5):
        assert log.append([batch_of(b"%5d" % number, b"." * 3000)]) == [2 * number]
        log.sync()
    log.close()
    again = open_real(small_disk, LogSettings(segment_bytes=segment_bytes))
    values = [record.value for record in read_all(again)][::2]
    assert values == [b"%5d" % number for number in range(taken + 5)]
    again.close()
