"""A disk that fails to sync, at every sync in turn.

As on Linux, the failed sync gives up what it could not write, and says so only once: the next
sync succeeds and proves nothing.
"""

from __future__ import annotations

import pytest

from millstream.errors import StorageFailure
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.local_log import LocalLog
from tests.crash.ledger import Ledger
from tests.crash.scripted_run import DIRECTORY, SETTINGS, LogOwner, run
from tests.crash.witnessed_log import WitnessedLog
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.sample_batches import batch_of, values_of

IN_LOG = f"{DIRECTORY}*"


def syncs_of(owner: LogOwner) -> list[str]:
    return [operation for operation in owner.disk.operations if operation.startswith("sync")]


def sync_count() -> int:
    owner = LogOwner(FakeFilesystem(), Ledger())
    run(owner)
    return len(syncs_of(owner))


def run_until_sync_fails(number: int) -> LogOwner:
    """The scripted run, ended by the failure of one of its syncs."""
    owner = LogOwner(FakeFilesystem(), Ledger())
    owner.disk.fail_sync("*", spared=number)
    with pytest.raises((StorageFailure, OSError)):
        run(owner)
    return owner


def assert_stopped(log: LocalLog) -> None:
    """Nothing more is promised, however healthy the disk looks now."""
    synced_offset, end_offset = log.synced_offset, log.end_offset
    (outcome,) = log.append([batch_of(b"more")])
    assert isinstance(outcome, StorageFailure)
    for step in (
        log.begin_sync,
        log.sync,
        log.roll_if_due,
        lambda: log.delete_records(end_offset),
        lambda: log.truncate(log.start_offset),
    ):
        with pytest.raises(StorageFailure):
            step()
    log.close()
    assert (log.synced_offset, log.end_offset) == (synced_offset, end_offset)
    assert log.checkpoint().end_offset == -1, "not a clean stop"


@pytest.mark.parametrize("part", range(4))
def test_failed_sync_stops_the_log_and_keeps_what_was_acknowledged(part: int) -> None:
    failures = 0
    for number in range(part, sync_count(), 4):
        owner = run_until_sync_fails(number)
        if hasattr(owner, "log") and owner.log.failure is not None:
            failures += 1
            assert_stopped(owner.log)
        for mode in ("kept", "lost", "torn"):
            again = LogOwner(owner.disk.after_crash(mode, number), owner.ledger.copy())
            again.checkpoints = owner.checkpoints[-1:]
            found = again.open().ledger.take_over(again.log)
            if syncs_of(owner)[number].startswith("sync_directory"):
                # Names cannot be written again; there a real filesystem goes read-only.
                continue
            # What the dead process could not sync must not be taken for durable because it can
            # still be read.
            later = LogOwner(again.disk.after_crash("lost"), again.ledger.copy())
            later.checkpoints = [again.log.checkpoint()]
            assert later.open().ledger.take_over(later.log) == found
    assert failures


def opened_with_two_syncs_under_way(disk: FakeFilesystem) -> tuple[WitnessedLog, LogOwner]:
    owner = LogOwner(disk, Ledger())
    log = owner.open()
    log.append_plain(10, now_ms=owner.clock.now_ms())
    log.sync()
    log.append_plain(20, now_ms=owner.clock.now_ms())
    return log, owner


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_sync_that_succeeds_beside_one_that_failed_vouches_for_nothing(first_to_end: int) -> None:
    disk = FakeFilesystem()
    log, _ = opened_with_two_syncs_under_way(disk)
    tasks = [log.begin_sync(), log.begin_sync()]
    disk.fail_sync(IN_LOG)
    errors: list[OSError | None] = []
    for task in tasks:
        try:
            task.run()
            errors.append(None)
        except OSError as error:
            errors.append(error)
    for number in (first_to_end, 1 - first_to_end):
        log.log.finish_sync(tasks[number], errors[number])
    assert log.log.synced_offset == log.ledger.synced_offset
    assert_stopped(log.log)


def test_failure_that_the_owner_has_not_heard_of_yet_stops_its_own_sync() -> None:
    disk = FakeFilesystem()
    log, _ = opened_with_two_syncs_under_way(disk)
    task = log.begin_sync()
    disk.fail_sync(IN_LOG)
    with pytest.raises(OSError, match="Input/output error") as failure:
        task.run()
    # A thread has failed. Before its owner hears of it, deleting records syncs on its own.
    with pytest.raises(StorageFailure):
        log.log.delete_records(3)
    log.log.finish_sync(task, failure.value)
    assert log.log.synced_offset == log.ledger.synced_offset


def test_other_logs_go_on_when_one_has_stopped() -> None:
    disk = FakeFilesystem()
    directory = open_directory(disk)
    broken, sound = directory.create("broken", 0), directory.create("sound", 0)
    for log in (broken, sound):
        log.append([batch_of(b"first")])
        log.sync()
    disk.fail_sync("*/broken/0/*.log")
    broken.append([batch_of(b"second")])
    with pytest.raises(StorageFailure):
        broken.sync()
    sound.append([batch_of(b"second")])
    sound.sync()
    assert (broken.synced_offset, sound.synced_offset) == (1, 2)
    write = directory.prepare_checkpoint()
    assert write is not None
    write.run()
    directory.close()
    (note,) = directory.take_notes()
    assert "broken/0 was not closed cleanly" in note
    again = open_directory(disk.after_crash("lost"))
    assert values_of(again.log("broken", 0)) == [b"first"]
    assert not again.log("broken", 0).report.clean
    assert values_of(again.log("sound", 0)) == [b"first", b"second"]
    assert again.log("sound", 0).report.clean


@pytest.mark.parametrize("mode", ["kept", "lost", "torn"])
def test_failed_sync_of_the_checkpoint_costs_only_a_longer_scan(mode: CrashMode) -> None:
    disk = FakeFilesystem()
    directory = open_directory(disk)
    log = directory.create("orders", 0)
    log.append([batch_of(b"first")])
    log.sync()
    disk.fail_sync("*/checkpoint.tmp")
    write = directory.prepare_checkpoint()
    assert write is not None
    with pytest.raises(OSError, match="Input/output error"):
        write.run()
    retried = directory.prepare_checkpoint()
    assert retried is not None, "what was not written down is written later"
    retried.run()
    again = open_directory(disk.after_crash(mode))
    assert again.take_notes() == []
    assert values_of(again.log("orders", 0)) == [b"first"]
    assert again.log("orders", 0).report.scanned_bytes < 100, "one batch at most"


def open_directory(disk: FakeFilesystem) -> DataDirectory:
    owner = LogOwner(disk, Ledger())
    return DataDirectory(
        disk,
        "/data",
        storage=StorageSettings(closing_threads=1),
        defaults=SETTINGS,
        clock=owner.clock,
    )


def test_failure_that_is_met_again_and_again_keeps_nothing_of_who_met_it() -> None:
    disk = FakeFilesystem()
    log, _ = opened_with_two_syncs_under_way(disk)
    disk.fail_sync(IN_LOG)
    with pytest.raises(StorageFailure):
        log.sync()
    depths = set()
    for _ in range(5):
        with pytest.raises(StorageFailure) as caught:
            log.begin_sync()
        depths.add(len(caught.traceback))
    assert len(depths) == 1
