"""The data directory as a catalog uses it: surveyed first, each topic with its own settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from millstream.clock import ManualClock
from millstream.errors import CorruptData, DirectoryLocked, InvalidName, NotFound
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.checkpoint import CheckpointFile
from millstream.storage.data_directory import DataDirectory, TopicLogs
from millstream.storage.filesystem import Filesystem, LocalFilesystem, remove_tree
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import batch_of, values_of

PATH = "/data"
ID = bytes(range(16))
SMALL = LogSettings(segment_bytes=300)


def open_directory(
    filesystem: Filesystem, path: str = PATH, *, expected: Mapping[str, TopicLogs] | None = None
) -> DataDirectory:
    return DataDirectory(
        filesystem,
        path,
        storage=StorageSettings(closing_threads=1),
        defaults=LogSettings(),
        clock=ManualClock(),
        survey=lambda _: expected or {},
    )


def test_each_log_is_opened_with_the_settings_of_its_topic() -> None:
    disk = FakeFilesystem()
    expected = {"small": TopicLogs(2, SMALL), "plain": TopicLogs(1, LogSettings())}
    directory = open_directory(disk, expected=expected)
    directory.create("stranger", 0)
    directory.close()
    again = open_directory(disk, expected=expected)
    assert {log.name: log.settings for log in again.logs()} == {
        "small/0": SMALL,
        "small/1": SMALL,
        "plain/0": LogSettings(),
        "stranger/0": LogSettings(),
    }
    assert again.partitions() == {"small": 2, "plain": 1, "stranger": 1}


def test_survey_reads_a_log_before_all_others_are_open() -> None:
    disk = FakeFilesystem()
    directory = open_directory(disk)
    append(directory.create("first", 0), batch_of(b"a"))
    append(directory.create("second", 0), batch_of(b"b"))
    directory.close()

    def survey(directory: DataDirectory) -> dict[str, TopicLogs]:
        log = directory.open_first("first", SMALL)
        assert values_of(log) == [b"a"]
        assert log.report.clean
        with pytest.raises(NotFound):
            directory.log("second", 0)
        return {}

    again = DataDirectory(
        disk,
        PATH,
        storage=StorageSettings(closing_threads=1),
        defaults=LogSettings(),
        clock=ManualClock(),
        survey=survey,
    )
    assert again.log("first", 0).settings == SMALL
    assert values_of(again.log("second", 0)) == [b"b"]
    assert again.log("second", 0).report.clean


def test_survey_that_fails_lets_go_of_the_directory(tmp_path: Path) -> None:
    def survey(_: DataDirectory) -> dict[str, TopicLogs]:
        raise CorruptData(path="x", position=0, reason="y")

    with pytest.raises(CorruptData):
        DataDirectory(
            LocalFilesystem(),
            str(tmp_path),
            storage=StorageSettings(),
            defaults=LogSettings(),
            clock=ManualClock(),
            survey=survey,
        )
    directory = open_directory(LocalFilesystem(), str(tmp_path))
    with pytest.raises(DirectoryLocked):
        open_directory(LocalFilesystem(), str(tmp_path))
    directory.close()


def test_topic_forgotten_in_a_survey_keeps_what_is_known_of_the_others() -> None:
    disk = FakeFilesystem()
    directory = open_directory(disk)
    for topic in ("gone", "kept"):
        log = directory.create(topic, 0)
        append(log, batch_of(b"a"), batch_of(b"b"))
        log.sync()
    write = directory.prepare_checkpoint()
    assert write is not None
    write.run()

    def survey(directory: DataDirectory) -> dict[str, TopicLogs]:
        directory.forget("gone", ID).run()
        on_disk = CheckpointFile(disk, f"{PATH}/checkpoint").load()
        assert {name: known.recovery_point for name, known in on_disk.items()} == {"kept/0": 2}
        return {}

    directory._lock.release()
    again = DataDirectory(
        disk,
        PATH,
        storage=StorageSettings(closing_threads=1),
        defaults=LogSettings(),
        clock=ManualClock(),
        survey=survey,
    )
    assert again.partitions() == {"kept": 1}
    assert again.take_leftovers() == [f"{PATH}/deleted/{ID.hex()}"]


def test_room_of_deleted_topics_is_given_back_before_anything_is_written() -> None:
    disk = FakeFilesystem()
    directory = open_directory(disk)
    append(directory.create("gone", 0), batch_of(b"a"))
    directory.forget("gone", ID).run()
    directory.close()
    assert disk.directories(f"{PATH}/deleted") == [ID.hex()]

    class Watched(FakeFilesystem):
        def rename(self, source: str, target: str) -> None:
            assert not disk.directories(f"{PATH}/deleted"), "a checkpoint comes first"
            super().rename(source, target)

    disk.__class__ = Watched
    again = open_directory(disk)
    assert again.take_leftovers() == []
    assert disk.directories(f"{PATH}/deleted") == []


def test_new_logs_are_made_without_a_sync_and_are_durable_with_their_first() -> None:
    disk = FakeFilesystem()
    directory = open_directory(disk)
    before = disk.operation_count
    logs = directory.open_new("orders", range(3), SMALL)
    assert not [step for step in disk.operations[before:] if "sync" in step]
    directory.add(logs)
    append(logs[1], batch_of(b"a"))
    logs[1].sync()
    found = open_directory(disk.after_crash("lost"))
    assert values_of(found.log("orders", 1)) == [b"a"]


def test_new_logs_of_a_topic_that_is_no_name_are_refused() -> None:
    with pytest.raises(InvalidName):
        open_directory(FakeFilesystem()).open_new("../x", [0], SMALL)


def test_forgotten_topic_is_moved_out_of_the_way(tmp_path: Path) -> None:
    directory = open_directory(LocalFilesystem(), str(tmp_path))
    # A name of which the other is the beginning.
    for topic in ("orders", "orders-eu"):
        append(directory.create(topic, 0), batch_of(b"a"))
    directory.forget("orders", ID).run()
    assert [log.name for log in directory.logs()] == ["orders-eu/0"]
    assert not (tmp_path / "topics" / "orders").exists()
    [leftover] = directory.take_leftovers()
    assert leftover == str(tmp_path / "deleted" / ID.hex())
    assert directory.take_leftovers() == []
    remove_tree(LocalFilesystem(), leftover)
    assert list((tmp_path / "deleted").iterdir()) == []
    assert values_of(directory.log("orders-eu", 0)) == [b"a"]
    directory.close()


def test_topic_that_has_no_directory_is_forgotten_all_the_same() -> None:
    directory = open_directory(FakeFilesystem())
    directory.forget("orders", ID).run()
    assert directory.take_leftovers() == []


def test_checkpoint_that_was_under_way_does_not_bring_a_deleted_topic_back() -> None:
    disk = FakeFilesystem()
    directory = open_directory(disk)
    log = directory.create("orders", 0)
    append(log, batch_of(b"a"))
    log.sync()
    late = directory.prepare_checkpoint()
    assert late is not None
    directory.forget("orders", ID).run()
    late.run()
    assert CheckpointFile(disk, f"{PATH}/checkpoint").load() == {}


def test_one_checkpoint_serves_all_topics_that_go_at_once() -> None:
    disk = FakeFilesystem()
    directory = open_directory(disk)
    for number in range(5):
        directory.create(f"t{number}", 0)
    removals = [directory.forget(f"t{n}", n.to_bytes(16, "big")) for n in range(5)]
    before = disk.operation_count
    for removal in removals:
        removal.run()
    renamed = [s for s in disk.operations[before:] if s.startswith("rename") and "checkpoint" in s]
    assert len(renamed) == 1
