"""The checkpoint file: whole or not at all, never older than what was written before."""

from __future__ import annotations

import json
import threading
from contextlib import suppress

import pytest

from millstream.errors import CorruptData
from millstream.records import crc32c
from millstream.storage.checkpoint import CheckpointFile
from millstream.storage.filesystem import read_whole, write_atomically
from millstream.storage.recovery import LogCheckpoint
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFilesystem

PATH = "/data/checkpoint"
OLD = {"orders/0": LogCheckpoint(7)}
NEW = {"orders/0": LogCheckpoint(12, 12, 480), "payments/3": LogCheckpoint(0)}


@pytest.fixture
def disk() -> FakeFilesystem:
    disk = FakeFilesystem()
    disk.make_directory("/data")
    return disk


def write(disk: FakeFilesystem, checkpoints: dict[str, LogCheckpoint]) -> CheckpointFile:
    file = CheckpointFile(disk, PATH)
    prepared = file.prepare(checkpoints)
    assert prepared is not None
    prepared.run()
    return file


def load(disk: FakeFilesystem) -> dict[str, LogCheckpoint]:
    return CheckpointFile(disk, PATH).load()


def test_checkpoint_is_read_as_it_was_written(disk: FakeFilesystem) -> None:
    assert load(disk) == {}
    write(disk, OLD)
    assert load(disk) == OLD
    write(disk, NEW)
    assert load(disk) == NEW


def test_checkpoint_that_says_nothing_new_is_not_written(disk: FakeFilesystem) -> None:
    file = write(disk, OLD)
    assert file.prepare(dict(OLD)) is None
    assert file.prepare(NEW) is not None


def test_checkpoint_that_could_not_be_written_is_written_later(disk: FakeFilesystem) -> None:
    file = write(disk, OLD)
    disk.space_bytes = disk.used_bytes
    prepared = file.prepare(NEW)
    assert prepared is not None
    with pytest.raises(OSError, match="No space left"):
        prepared.run()
    assert load(disk) == OLD
    disk.space_bytes = None
    again = file.prepare(NEW)
    assert again is not None
    again.run()
    assert load(disk) == NEW


def test_late_writer_does_not_put_back_what_a_newer_one_replaced(disk: FakeFilesystem) -> None:
    file = CheckpointFile(disk, PATH)
    late, early = file.prepare(OLD), file.prepare(NEW)
    assert late is not None
    assert early is not None
    early.run()
    late.run()
    assert load(disk) == NEW


def test_newest_of_many_writers_at_once_remains(disk: FakeFilesystem) -> None:
    file = CheckpointFile(disk, PATH)
    prepared = [file.prepare({"orders/0": LogCheckpoint(number)}) for number in range(40)]
    threads = [threading.Thread(target=p.run) for p in reversed(prepared) if p is not None]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert load(disk) == {"orders/0": LogCheckpoint(39)}
    assert disk.sizes("/data").keys() == {"checkpoint"}


@pytest.mark.parametrize("bit", range(8))
def test_flipped_bit_anywhere_is_noticed(disk: FakeFilesystem, bit: int) -> None:
    write(disk, NEW)
    for position in range(disk.sizes("/data")["checkpoint"]):
        disk.flip(PATH, position, bit)
        if bit == 5 and position < 8:
            # A digit of the checksum may change its case and still say the same.
            with suppress(CorruptData):
                assert load(disk) == NEW
        else:
            with pytest.raises(CorruptData, match=PATH):
                load(disk)
        disk.flip(PATH, position, bit)


def test_cut_file_is_noticed(disk: FakeFilesystem) -> None:
    write(disk, NEW)
    for size in reversed(range(disk.sizes("/data")["checkpoint"])):
        disk.cut(PATH, size)
        with pytest.raises(CorruptData):
            load(disk)


@pytest.mark.parametrize(
    "document",
    [
        {"version": 2, "logs": {}},
        {"logs": {}},
        {"version": 1},
        {"version": 1, "logs": []},
        {"version": 1, "logs": {"orders/0": 7}},
        {"version": 1, "logs": {"orders/0": [1, 2, 3, 4, 5, 6]}},
        [],
    ],
)
def test_content_that_nobody_wrote_is_refused(disk: FakeFilesystem, document: object) -> None:
    body = json.dumps(document).encode()
    write_atomically(disk, PATH, b"%08x\n%b" % (crc32c(body), body))
    with pytest.raises(CorruptData):
        load(disk)


@pytest.mark.parametrize("moment", ["before", "halfway", "after"])
@pytest.mark.parametrize("mode", ["kept", "lost", "torn"])
def test_crash_leaves_the_old_checkpoint_or_the_new(
    disk: FakeFilesystem, mode: CrashMode, moment: CrashMoment
) -> None:
    write(disk, OLD)
    steps = disk.after_crash("kept")
    write(steps, NEW)
    for operation in range(1, steps.operation_count + 1):
        crashed = disk.after_crash("kept")
        crashed.crash_at(operation, moment)
        with pytest.raises(Crash):
            write(crashed, NEW)
        for seed in range(10):
            found = crashed.after_crash(mode, seed)
            assert load(found) in (OLD, NEW)
            write(found, NEW)
            assert load(found.after_crash("lost")) == NEW
    assert read_whole(steps.after_crash("lost"), f"{PATH}.tmp") is None
