"""Logs of the broker's own state: two copies, of which a whole one repairs the other."""

from __future__ import annotations

import pytest

from millstream.clock import ManualClock
from millstream.errors import StateDamaged
from millstream.settings.log import LogSettings
from millstream.storage.filesystem import read_whole, remove_tree
from millstream.storage.mirrored_log import MirroredLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment_cache import SegmentCache
from tests.fakes.fake_filesystem import Crash, FakeFilesystem
from tests.fakes.log_steps import append, sync
from tests.fakes.sample_batches import batch_of, values_of

SETTINGS = LogSettings(segment_bytes=300, index_interval_bytes=100)
PRIMARY, COPY, DAMAGED = "/data/topics/__state/0", "/data/copies/__state/0", "/data/damaged"
RECORDS = "00000000000000000000.log"
VALUES = [b"%d" % number for number in range(12)]


def open_log(
    filesystem: FakeFilesystem, checkpoints: dict[str, LogCheckpoint] | None = None
) -> MirroredLog:
    known = checkpoints or {}
    return MirroredLog(
        filesystem,
        PRIMARY,
        copy_directory=COPY,
        damaged_directory=DAMAGED,
        name="__state/0",
        settings=SETTINGS,
        clock=ManualClock(),
        cache=SegmentCache(8),
        checkpoint=known.get(PRIMARY),
        copy_checkpoint=known.get(COPY),
    )


def checkpoints_of(log: MirroredLog) -> dict[str, LogCheckpoint]:
    [copy] = log.copies()
    return {PRIMARY: log.checkpoint(), COPY: copy.checkpoint()}


def stopped(filesystem: FakeFilesystem) -> dict[str, LogCheckpoint]:
    """A log with a few segments that was closed; what was written down of it."""
    log = open_log(filesystem)
    for value in VALUES:
        append(log, batch_of(value))
    log.close()
    return checkpoints_of(log)


def values_of_copy(log: MirroredLog) -> list[bytes | None]:
    [copy] = log.copies()
    return values_of(copy)


def test_both_copies_hold_every_batch() -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem)
    log = open_log(filesystem, known)
    assert values_of(log) == values_of_copy(log) == VALUES
    assert filesystem.sizes(PRIMARY) == filesystem.sizes(COPY)


@pytest.mark.parametrize(("directory", "number"), [(PRIMARY, 0), (COPY, 1)])
@pytest.mark.parametrize("is_clean", [True, False])
def test_damaged_copy_is_replaced_and_kept(directory: str, number: int, is_clean: bool) -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem)
    filesystem.flip(f"{directory}/{RECORDS}", 70, 3)
    damaged = read_whole(filesystem, f"{directory}/{RECORDS}")
    log = open_log(filesystem, known if is_clean else None)
    assert values_of(log) == values_of_copy(log) == VALUES
    reports = [log.report, log.copies()[0].report]
    [repair] = reports[number].repaired
    assert f"{directory}/{RECORDS}: bytes 69 to" in repair
    [kept] = filesystem.directories(DAMAGED)
    assert f"{DAMAGED}/{kept}" in repair
    assert read_whole(filesystem, f"{DAMAGED}/{kept}/{RECORDS}") == damaged
    assert not any(report.damage for report in reports)
    append(log, batch_of(b"next"))
    assert values_of(log) == values_of_copy(log) == [*VALUES, b"next"]


def test_log_does_not_open_when_both_copies_are_damaged() -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem)
    filesystem.flip(f"{PRIMARY}/{RECORDS}", 70, 3)
    filesystem.flip(f"{COPY}/{RECORDS}", 170, 3)
    with pytest.raises(StateDamaged) as raised:
        open_log(filesystem, known)
    message = str(raised.value)
    assert f"{PRIMARY}/{RECORDS}: bytes 69 to" in message
    assert f"{COPY}/{RECORDS}: bytes 138 to" in message
    assert "millstream segment repair" in message
    # Nothing was changed: an operator may still restore a backup of either.
    assert not filesystem.directories(DAMAGED)


@pytest.mark.parametrize("directory", [PRIMARY, COPY])
@pytest.mark.parametrize("is_known", [True, False])
def test_missing_copy_is_made_again(directory: str, is_known: bool) -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem)
    remove_tree(filesystem, directory)
    log = open_log(filesystem, known if is_known else None)
    assert values_of(log) == values_of_copy(log) == VALUES


def test_missing_first_segment_is_damage() -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem)
    filesystem.remove(f"{PRIMARY}/{RECORDS}")
    log = open_log(filesystem, known)
    assert values_of(log) == VALUES
    assert "the segments before offset" in log.report.repaired[0]


@pytest.mark.parametrize("directory", [PRIMARY, COPY])
def test_longer_copy_counts_after_a_crash(directory: str) -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    for value in VALUES:
        append(log, batch_of(value))
        sync(log)
    found = filesystem.after_crash("lost")
    newest = max(name for name in found.sizes(directory) if name.endswith(".log"))
    found.cut(f"{directory}/{newest}", 1)
    log = open_log(found)
    assert values_of(log) == values_of_copy(log) == VALUES


def test_synced_batches_are_on_both_disks() -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    append(log, batch_of(b"synced"))
    sync(log)
    for directory in (PRIMARY, COPY):
        found = filesystem.after_crash("lost")
        remove_tree(found, directory)
        assert values_of(open_log(found)) == [b"synced"]


def test_copy_whose_sync_fails_is_left_behind_and_replaced_at_the_next_start() -> None:
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    append(log, batch_of(b"both"))
    sync(log)
    filesystem.fail_sync(f"{COPY}/{RECORDS}")
    append(log, batch_of(b"primary alone"))
    sync(log)
    assert log.synced_offset == 2
    assert log.failure is None
    assert log.report.copy_failure
    append(log, batch_of(b"more"))
    sync(log)
    log.close()
    log = open_log(filesystem.after_crash("lost"))
    assert values_of(log) == values_of_copy(log) == [b"both", b"primary alone", b"more"]
    assert not log.report.copy_failure


@pytest.mark.parametrize("damage", [True, False])
@pytest.mark.parametrize("directory", [PRIMARY, COPY])
def test_crash_at_any_step_of_a_replacement_loses_nothing(directory: str, damage: bool) -> None:
    def prepared() -> tuple[FakeFilesystem, dict[str, LogCheckpoint]]:
        filesystem = FakeFilesystem()
        known = stopped(filesystem)
        if damage:
            filesystem.flip(f"{directory}/{RECORDS}", 70, 3)
        else:
            remove_tree(filesystem, directory)
        return filesystem.after_crash("kept"), known

    filesystem, known = prepared()
    open_log(filesystem, known)
    for step in range(1, filesystem.operation_count + 1):
        filesystem, known = prepared()
        filesystem.crash_at(step, "before")
        with pytest.raises(Crash):
            open_log(filesystem, known)
        # The checkpoint on disk names no clean stop while the directory is open.
        points = {name: LogCheckpoint(each.recovery_point) for name, each in known.items()}
        log = open_log(filesystem.after_crash("lost"), points)
        assert values_of(log) == values_of_copy(log) == VALUES, step


def test_interrupted_repair_keeps_the_log_closed() -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem)
    filesystem.rename(PRIMARY, f"{PRIMARY}.repaired")
    with pytest.raises(StateDamaged, match="repair that was interrupted"):
        open_log(filesystem, known)


def test_copy_that_cannot_be_replaced_for_want_of_space_is_left_behind() -> None:
    filesystem = FakeFilesystem()
    known = stopped(filesystem)
    filesystem.flip(f"{COPY}/{RECORDS}", 70, 3)
    filesystem.space_bytes = filesystem.used_bytes + 100
    log = open_log(filesystem, known)
    assert values_of(log) == VALUES
    assert "space" in log.report.copy_failure
    assert filesystem.sizes(f"{COPY}.tmp") == {}
    filesystem.space_bytes = None
    assert append(log, batch_of(b"more")) == [len(VALUES)]
    sync(log)
    log.close()
    again = open_log(filesystem, checkpoints_of(log))
    assert values_of(again) == values_of_copy(again) == [*VALUES, b"more"]
