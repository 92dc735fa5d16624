"""Taking damage out of logs: what can be read keeps its offsets, what cannot is shown and lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.settings.log import LogSettings
from millstream.storage.filesystem import read_whole
from millstream.storage.local_log import LocalLog
from millstream.storage.log_repair import LogRepair
from millstream.storage.mirrored_log import MirroredLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment_cache import SegmentCache
from tests.fakes.fake_filesystem import Crash, FakeFilesystem
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import batch_of, read_all

SETTINGS = LogSettings(segment_bytes=300, index_interval_bytes=100)
DATA, BATCH_BYTES, PER_SEGMENT = "/data", 69, 4
COUNT = 12


def open_log(filesystem: FakeFilesystem, name: str, known: LogCheckpoint | None) -> LocalLog:
    options: dict[str, Any] = {
        "name": name,
        "settings": SETTINGS,
        "clock": ManualClock(),
        "cache": SegmentCache(8),
        "checkpoint": known,
    }
    if not name.startswith("__"):
        return LocalLog(filesystem, f"{DATA}/topics/{name}", **options)
    return MirroredLog(
        filesystem,
        f"{DATA}/topics/{name}",
        copy_directory=f"{DATA}/copies/{name}",
        damaged_directory=f"{DATA}/damaged",
        copy_checkpoint=known,
        **options,
    )


def stopped(filesystem: FakeFilesystem, name: str) -> dict[str, LogCheckpoint]:
    log = open_log(filesystem, name, None)
    for number in range(COUNT):
        append(log, batch_of(b"%02d" % number))
    log.close()
    return {each.name: each.checkpoint() for each in (log, *log.copies())}


def repair_of(filesystem: FakeFilesystem, name: str, known: dict[str, LogCheckpoint]) -> LogRepair:
    return LogRepair(filesystem, DATA, name, checkpoints=known, clock=ManualClock())


def flip(filesystem: FakeFilesystem, directory: str, offset: int) -> str:
    base = offset - offset % PER_SEGMENT
    path = f"{DATA}/{directory}/{base:020d}.log"
    filesystem.flip(path, (offset - base) * BATCH_BYTES + 65, 1)
    return path


def offsets_of(log: LocalLog) -> list[int]:
    return [record.offset for record in read_all(log)]


@pytest.mark.parametrize("offset", range(COUNT))
def test_log_without_its_damaged_batch_is_read_from_end_to_end(offset: int) -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem, "orders/0")
    path = flip(filesystem, "topics/orders/0", offset)
    before = read_whole(filesystem, path)
    repair = repair_of(filesystem, "orders/0", known)
    assert repair.lost == [range(offset, offset + 1)]
    assert path in repair.problems[0]
    kept = repair.run()
    assert read_whole(filesystem, f"{kept}/{path.rpartition('/')[2]}") == before
    for checkpoint in (known["orders/0"], None):
        log = open_log(filesystem.after_crash("kept"), "orders/0", checkpoint)
        rest = [each for each in range(COUNT) if each != offset]
        assert offsets_of(log) == rest
        assert not log.prove()
        assert append(log, batch_of(b"next")) == [COUNT]
        assert offsets_of(log) == [*rest, COUNT]
    assert not repair_of(filesystem, "orders/0", known).problems


@pytest.mark.parametrize("segment", range(3))
def test_missing_segment_is_accepted_as_lost_and_nothing_else_changes(segment: int) -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem, "orders/0")
    base = segment * PER_SEGMENT
    filesystem.remove(f"{DATA}/topics/orders/0/{base:020d}.log")
    repair = repair_of(filesystem, "orders/0", known)
    assert repair.lost == [range(base, base + PER_SEGMENT)]
    repair.run()
    log = open_log(filesystem.after_crash("kept"), "orders/0", known["orders/0"])
    rest = [each for each in range(COUNT) if not base <= each < base + PER_SEGMENT]
    assert offsets_of(log) == rest
    assert not log.prove()
    assert append(log, batch_of(b"next")) == [COUNT]
    assert not repair_of(filesystem, "orders/0", known).problems


def test_log_that_retention_has_cut_needs_no_repair() -> None:
    filesystem = FakeFilesystem()
    stopped(filesystem, "orders/0")
    log = open_log(filesystem, "orders/0", None)
    log.reconfigure(replace(SETTINGS, retention_bytes=300))
    for path in log.expire():
        filesystem.remove(path)
    log.close()
    assert log.start_offset > 0
    for known in ({}, {"orders/0": log.checkpoint()}):
        assert not repair_of(filesystem, "orders/0", known).problems


def test_log_that_is_whole_needs_no_repair() -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem, "orders/0")
    repair = repair_of(filesystem, "orders/0", known)
    assert not repair.problems
    assert not repair.lost


def test_state_of_which_one_copy_is_whole_needs_no_repair() -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem, "__consumer_offsets/0")
    flip(filesystem, "copies/__consumer_offsets/0", 3)
    assert not repair_of(filesystem, "__consumer_offsets/0", known).problems


@pytest.mark.parametrize(("one", "other", "lost"), [(2, 7, []), (7, 2, []), (5, 5, [range(5, 6)])])
def test_copies_that_are_both_damaged_become_one(one: int, other: int, lost: list[range]) -> None:
    filesystem = FakeFilesystem()
    name = "__consumer_offsets/0"
    known = stopped(filesystem, name)
    flip(filesystem, f"topics/{name}", one)
    flip(filesystem, f"copies/{name}", other)
    repair = repair_of(filesystem, name, known)
    assert len(repair.problems) == 2
    assert repair.lost == lost
    repair.run()
    assert len(filesystem.directories(f"{DATA}/damaged")) == 2
    for checkpoint in (known[name], None):
        log = open_log(filesystem.after_crash("kept"), name, checkpoint)
        rest = [each for each in range(COUNT) if not any(each in r for r in lost)]
        [copy] = log.copies()
        assert offsets_of(log) == offsets_of(copy) == rest
        assert append(log, batch_of(b"next")) == [COUNT]


@pytest.mark.parametrize("name", ["orders/0", "__consumer_offsets/0"])
def test_repair_that_a_crash_cut_short_is_repeated(name: str) -> None:
    def damaged() -> tuple[FakeFilesystem, dict[str, LogCheckpoint]]:
        filesystem = FakeFilesystem()
        known = stopped(filesystem, name)
        flip(filesystem, f"topics/{name}", 5)
        if name.startswith("__"):
            flip(filesystem, f"copies/{name}", 5)
        return filesystem.after_crash("kept"), known

    filesystem, known = damaged()
    repair_of(filesystem, name, known).run()
    for step in range(1, filesystem.operation_count + 1):
        filesystem, known = damaged()
        filesystem.crash_at(step, "before")
        with pytest.raises(Crash):
            repair_of(filesystem, name, known).run()
        found = filesystem.after_crash("lost")
        again = repair_of(found, name, known)
        if again.problems:
            again.run()
        log = open_log(found.after_crash("kept"), name, None)
        assert offsets_of(log) == [each for each in range(COUNT) if each != 5], step
