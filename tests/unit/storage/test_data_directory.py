"""The data directory: one process at a time, all its logs, and what it remembers of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    AlreadyExists,
    CorruptData,
    DirectoryLocked,
    InvalidName,
    InvalidSetting,
    NotFound,
    StorageFailure,
)
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import Filesystem, LocalFilesystem
from millstream.storage.local_log import LocalLog
from tests.fakes.child_process import ChildProcess
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.log_steps import SMALL_SEGMENTS, append, fill
from tests.fakes.sample_batches import batch_of, idempotent_batch, values_of

FAKE_PATH = "/data"


def open_directory(
    path: str,
    filesystem: Filesystem | None = None,
    *,
    settings: LogSettings = SMALL_SEGMENTS,
    threads: int = 1,
    cached_segments: int = 8,
) -> DataDirectory:
    return DataDirectory(
        filesystem or LocalFilesystem(),
        path,
        storage=StorageSettings(
            recovery_threads=threads, closing_threads=threads, cached_segments=cached_segments
        ),
        defaults=settings,
        clock=ManualClock(),
    )


def filled_log(directory: DataDirectory, topic: str, batches: int = 20) -> LocalLog:
    log = directory.create(topic, 0)
    fill(log, batches)
    return log


def write_checkpoint(directory: DataDirectory) -> None:
    write = directory.prepare_checkpoint()
    assert write is not None
    write.run()


# --- one process at a time


def test_second_opening_is_refused_and_names_the_process(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    with pytest.raises(DirectoryLocked) as refusal:
        open_directory(str(tmp_path))
    assert refusal.value.holder == f"process {os.getpid()}"
    assert str(tmp_path) in str(refusal.value)
    directory.close()
    open_directory(str(tmp_path)).close()


HOLD_DIRECTORY = """
import sys
from millstream.clock import SystemClock
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import LocalFilesystem
directory = DataDirectory(
    LocalFilesystem(), sys.argv[1], storage=StorageSettings(), defaults=LogSettings(),
    clock=SystemClock(),
)
directory.create("orders", 0)
print("open", flush=True)
sys.stdin.read()
"""


def test_lock_of_another_process_names_it_and_ends_when_that_is_killed(tmp_path: Path) -> None:
    with ChildProcess.python("-c", HOLD_DIRECTORY, str(tmp_path)) as holder:
        assert holder.next_line() == "open"
        with pytest.raises(DirectoryLocked) as refusal:
            open_directory(str(tmp_path))
        assert refusal.value.holder == f"process {holder.pid}"
        holder.kill()
    directory = open_directory(str(tmp_path))
    assert [log.name for log in directory.logs()] == ["orders/0"]
    directory.close()


def test_lock_is_given_back_when_the_directory_cannot_be_opened() -> None:
    disk = FakeFilesystem()
    open_directory(FAKE_PATH, disk).close()
    disk.space_bytes = disk.used_bytes
    with pytest.raises(OSError, match="No space left"):
        open_directory(FAKE_PATH, disk)
    disk.space_bytes = None
    open_directory(FAKE_PATH, disk).close()


def test_lock_is_given_back_when_the_directory_cannot_be_closed_cleanly() -> None:
    disk = FakeFilesystem()
    directory = open_directory(FAKE_PATH, disk)
    filled_log(directory, "orders")
    disk.space_bytes = disk.used_bytes
    directory.close()
    assert directory.take_notes()
    disk.space_bytes = None
    again = open_directory(FAKE_PATH, disk)
    assert len(values_of(again.log("orders", 0))) == again.log("orders", 0).end_offset
    again.close()


# --- stopping and starting


def test_directory_that_was_closed_is_opened_without_a_scan(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    expected = {topic: values_of(filled_log(directory, topic)) for topic in ("orders", "payments")}
    directory.close()
    assert directory.take_notes() == []
    again = open_directory(str(tmp_path))
    assert [(report.log, report.clean) for report in again.reports] == [
        ("orders/0", True),
        ("payments/0", True),
    ]
    assert all(report.lines() == [] for report in again.reports)
    for topic, values in expected.items():
        assert values_of(again.log(topic, 0)) == values
    again.close()


def test_directory_that_was_not_closed_is_scanned_from_its_checkpoint(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    log = filled_log(directory, "orders")
    log.sync()
    write_checkpoint(directory)
    synced_offset = log.synced_offset
    append(log, batch_of(b"after the checkpoint"))
    directory._lock.release()
    again = open_directory(str(tmp_path))
    found = again.log("orders", 0)
    (report,) = again.reports
    assert not report.clean
    assert 0 < report.scanned_bytes < 300
    assert values_of(found)[synced_offset:] == [b"after the checkpoint"]
    again.close()


def test_directory_opened_and_killed_at_once_no_longer_counts_as_closed() -> None:
    disk = FakeFilesystem()
    directory = open_directory(FAKE_PATH, disk)
    filled_log(directory, "orders")
    directory.close()
    open_directory(FAKE_PATH, disk)
    for mode in ("kept", "lost", "torn"):
        again = open_directory(FAKE_PATH, disk.after_crash(mode))
        assert [report.clean for report in again.reports] == [False]


def test_damaged_checkpoint_is_reported_and_every_log_is_scanned(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    expected = {topic: values_of(filled_log(directory, topic)) for topic in ("orders", "payments")}
    directory.close()
    (tmp_path / "checkpoint").write_bytes(b"nonsense")
    again = open_directory(str(tmp_path))
    (note,) = again.take_notes()
    assert "checkpoint" in note
    assert "scanned" in note
    assert again.take_notes() == []
    for report in again.reports:
        assert not report.clean
        assert report.scanned_bytes > 0
        assert report.damage == []
    for topic, values in expected.items():
        assert values_of(again.log(topic, 0)) == values
    again.close()


def test_missing_checkpoint_costs_a_scan_and_no_data(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    values = values_of(filled_log(directory, "orders"))
    directory.close()
    (tmp_path / "checkpoint").unlink()
    again = open_directory(str(tmp_path))
    assert values_of(again.log("orders", 0)) == values
    again.close()


def test_checkpoint_of_an_older_time_costs_a_longer_scan_and_no_data(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    log = filled_log(directory, "orders")
    log.sync()
    write_checkpoint(directory)
    old = (tmp_path / "checkpoint").read_bytes()
    fill(log, 20)
    log.sync()
    write_checkpoint(directory)
    values = values_of(log)
    directory._lock.release()
    (tmp_path / "checkpoint").write_bytes(old)
    again = open_directory(str(tmp_path))
    assert values_of(again.log("orders", 0)) == values
    again.close()


def test_checkpoint_says_no_more_than_what_is_durable() -> None:
    disk = FakeFilesystem()
    directory = open_directory(FAKE_PATH, disk)
    log = filled_log(directory, "orders", 5)
    log.sync()
    synced_offset = log.synced_offset
    fill(log, 20)
    # A sync that has run is not durable knowledge before its owner hears of it.
    task = log.begin_sync()
    write_checkpoint(directory)
    found = open_directory(FAKE_PATH, disk.after_crash("lost"))
    assert found.log("orders", 0).report.damage == []
    assert found.log("orders", 0).end_offset >= synced_offset
    task.run()
    log.finish_sync(task, None)
    write_checkpoint(directory)
    found = open_directory(FAKE_PATH, disk.after_crash("lost"))
    assert found.log("orders", 0).end_offset == log.end_offset
    assert found.log("orders", 0).report.scanned_bytes < 100, "one batch at most"


def test_late_checkpoint_does_not_undo_that_of_a_truncation() -> None:
    disk = FakeFilesystem()
    directory = open_directory(FAKE_PATH, disk)
    log = filled_log(directory, "orders")
    log.sync()
    late = directory.prepare_checkpoint()
    assert late is not None
    log.truncate(5)
    late.run()
    for mode in ("kept", "lost", "torn"):
        found = open_directory(FAKE_PATH, disk.after_crash(mode)).log("orders", 0)
        assert found.end_offset == log.end_offset
        assert found.report.damage == []


# --- logs


def test_log_is_created_once(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    log = directory.create("orders", 3)
    assert directory.log("orders", 3) is log
    with pytest.raises(AlreadyExists):
        directory.create("orders", 3)
    with pytest.raises(NotFound):
        directory.log("orders", 4)
    directory.close()


def test_created_log_is_there_after_a_power_cut() -> None:
    disk = FakeFilesystem()
    open_directory(FAKE_PATH, disk).create("orders", 0)
    again = open_directory(FAKE_PATH, disk.after_crash("lost"))
    assert [log.name for log in again.logs()] == ["orders/0"]


@pytest.mark.parametrize(
    "topic",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc",
        "a\\b",
        "a\0b",
        "a b",
        "a\n",
        "tópico",
        "\N{FULLWIDTH FULL STOP}\N{FULLWIDTH FULL STOP}",
        "a" * 250,
    ],
)
def test_topic_that_is_no_name_is_refused(tmp_path: Path, topic: str) -> None:
    directory = open_directory(str(tmp_path / "data"))
    with pytest.raises(InvalidName):
        directory.create(topic, 0)
    directory.close()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert list((tmp_path / "data" / "topics").iterdir()) == []


def test_partition_below_zero_is_refused(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    with pytest.raises(InvalidSetting):
        directory.create("orders", -1)
    directory.close()


@pytest.mark.parametrize("topic", ["a" * 249, "__consumer_offsets", "A.b-c_9", "...", "-"])
def test_topic_with_an_odd_name_is_found_again(tmp_path: Path, topic: str) -> None:
    directory = open_directory(str(tmp_path))
    append(directory.create(topic, 0), batch_of(b"a"))
    directory.close()
    again = open_directory(str(tmp_path))
    assert values_of(again.log(topic, 0)) == [b"a"]
    again.close()


def test_files_of_strangers_are_let_alone(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    directory.create("orders", 0)
    directory.close()
    (tmp_path / "topics" / "notes.txt").write_text("mine")
    (tmp_path / "topics" / "orders" / "backup").mkdir()
    again = open_directory(str(tmp_path))
    assert [log.name for log in again.logs()] == ["orders/0"]
    again.close()
    assert (tmp_path / "topics" / "notes.txt").read_text() == "mine"


def test_log_that_cannot_be_opened_does_not_keep_others_from_it(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    for topic in ("broken", "sound"):
        filled_log(directory, topic).delete_records(7)
    values = values_of(directory.log("sound", 0))
    directory.close()
    start = tmp_path / "topics" / "broken" / "0" / "log-start-offset"
    content = start.read_bytes()
    start.write_bytes(b"nonsense")
    again = open_directory(str(tmp_path))
    (note,) = again.take_notes()
    assert note.startswith("broken/0 cannot be opened: ")
    assert values_of(again.log("sound", 0)) == values
    with pytest.raises(CorruptData):
        again.log("broken", 0)
    with pytest.raises(AlreadyExists):
        again.create("broken", 0)
    again.close()
    # Once it is mended, all is there.
    start.write_bytes(content)
    mended = open_directory(str(tmp_path))
    assert values_of(mended.log("broken", 0)) == values
    mended.close()


def test_log_that_the_disk_cannot_read_does_not_keep_others_from_opening() -> None:
    disk = FakeFilesystem()
    directory = open_directory(FAKE_PATH, disk)
    for topic in ("broken", "sound"):
        filled_log(directory, topic)
    crashed = disk.after_crash("kept")
    crashed.fail_sync("*/broken/0/*")
    again = open_directory(FAKE_PATH, crashed)
    assert len(again.take_notes()) == 1
    with pytest.raises(StorageFailure):
        again.log("broken", 0)
    assert len(values_of(again.log("sound", 0))) == directory.log("sound", 0).end_offset


def test_many_logs_are_opened_by_many_threads_through_a_small_cache(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    for number in range(24):
        log = directory.create("orders", number)
        for sequence in range(40):
            append(log, idempotent_batch(sequence, producer=number))
    directory._lock.release()
    for snapshot in tmp_path.glob("topics/orders/*/*.snapshot"):
        snapshot.unlink()
    again = open_directory(str(tmp_path), threads=16, cached_segments=1)
    assert again.take_notes() == []
    for number in range(24):
        log = again.log("orders", number)
        assert log.end_offset == 40
        assert append(log, idempotent_batch(39, producer=number)) == [39]
        assert append(log, idempotent_batch(40, producer=number)) == [40]
    again.close()
