"""The local engine's segments: when they are closed, how they age, what they hold open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import StorageFailure
from millstream.settings.log import LogSettings
from millstream.storage.local_log import LocalLog
from millstream.storage.offset_index import ENTRY_BYTES, IndexEntry, OffsetIndex
from millstream.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    SegmentState,
)
from tests.fakes.log_steps import append, fill
from tests.fakes.sample_batches import batch_of, read_all, values_of
from tests.unit.storage.log_directory import LogDirectory, bases_of, batches_in, cut, states_of

FULL, ARCHIVED, ACTIVE = SegmentState.FULL, SegmentState.ARCHIVED, SegmentState.ACTIVE
HOUR_MS = 3_600_000
SIZE = len(batch_of(b"x"))
SETTINGS = LogSettings(
    segment_bytes=3 * SIZE, segment_ms=HOUR_MS, index_interval_bytes=2 * SIZE, retention_ms=-1
)


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory(tmp_path / "log", SETTINGS)


@pytest.fixture
def log(directory: LogDirectory) -> Iterator[LocalLog]:
    log = directory.open()
    yield log
    log.close()


def append_some(log: LocalLog, count: int) -> None:
    for _ in range(count):
        append(log, batch_of(b"x"))


def open_files(directory: LogDirectory) -> list[str]:
    """Names of the files in a log's directory that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        path = Path(f"/proc/self/fd/{name}")
        if path.is_symlink() and path.readlink().parent == directory.path:
            found.append(path.readlink().name)
    return sorted(found)


# --- rolling


def test_segment_is_closed_by_the_batch_that_no_longer_fits(log: LocalLog) -> None:
    append_some(log, 3)
    assert bases_of(log) == [0]
    append_some(log, 1)
    assert bases_of(log) == [0, 3]
    append_some(log, 3)
    assert bases_of(log) == [0, 3, 6]
    assert [segment.next_offset for segment in log.segments()] == [3, 6, 7]
    assert [segment.size for segment in log.segments()] == [3 * SIZE, 3 * SIZE, SIZE]


def test_many_batches_at_once_fill_segments_to_the_same_bounds(log: LocalLog) -> None:
    append(log, *(batch_of(b"x") for _ in range(8)))
    assert bases_of(log) == [0, 3, 6]


def test_batch_larger_than_a_segment_gets_one_of_its_own(log: LocalLog) -> None:
    append(log, batch_of(b"x"), batch_of(b"y" * 5 * SIZE), batch_of(b"z"))
    assert bases_of(log) == [0, 1, 2]
    assert values_of(log) == [b"x", b"y" * 5 * SIZE, b"z"]


def test_old_segment_is_closed_by_the_next_append(log: LocalLog, directory: LogDirectory) -> None:
    append_some(log, 1)
    directory.clock.advance_ms(HOUR_MS - 1)
    append_some(log, 1)
    assert bases_of(log) == [0]
    directory.clock.advance_ms(1)
    append_some(log, 1)
    assert bases_of(log) == [0, 2]


def test_old_segment_is_closed_by_upkeep(log: LocalLog, directory: LogDirectory) -> None:
    append_some(log, 1)
    log.roll_if_due()
    assert bases_of(log) == [0]
    directory.clock.advance_ms(HOUR_MS)
    log.roll_if_due()
    assert bases_of(log) == [0, 1]
    assert states_of(log) == [FULL, ACTIVE]


def test_empty_segment_does_not_age(log: LocalLog, directory: LogDirectory) -> None:
    directory.clock.advance_ms(10 * HOUR_MS)
    log.roll_if_due()
    append_some(log, 1)
    assert bases_of(log) == [0]
    directory.clock.advance_ms(HOUR_MS - 1)
    log.roll_if_due()
    assert bases_of(log) == [0]


def test_age_of_a_segment_survives_a_restart(directory: LogDirectory) -> None:
    log = directory.open()
    append(log, batch_of(b"x", timestamps_ms=[directory.clock.now_ms()]))
    directory.clock.advance_ms(HOUR_MS - 1)
    again = directory.reopen(log)
    append_some(again, 1)
    assert bases_of(again) == [0]
    directory.clock.advance_ms(1)
    append_some(again, 1)
    assert bases_of(again) == [0, 2]
    again.close()


def test_segment_of_records_from_the_future_is_as_old_as_the_process(
    directory: LogDirectory,
) -> None:
    log = directory.open()
    append(log, batch_of(b"x", timestamps_ms=[directory.clock.now_ms() + 1000 * HOUR_MS]))
    again = directory.reopen(log)
    again.roll_if_due()
    assert bases_of(again) == [0]
    directory.clock.advance_ms(HOUR_MS)
    again.roll_if_due()
    assert bases_of(again) == [0, 1]
    again.close()


# --- stages of life


def test_segment_is_active_then_full_then_archived(log: LocalLog) -> None:
    assert states_of(log) == [ACTIVE]
    append_some(log, 4)
    assert states_of(log) == [FULL, ACTIVE]
    task = log.begin_sync()
    append_some(log, 3)
    assert states_of(log) == [FULL, FULL, ACTIVE]
    task.run()
    log.finish_sync(task, None)
    assert states_of(log) == [ARCHIVED, FULL, ACTIVE]
    log.sync()
    assert states_of(log) == [ARCHIVED, ARCHIVED, ACTIVE]


def test_segment_whose_sync_failed_is_never_archived(log: LocalLog) -> None:
    append_some(log, 4)
    log.finish_sync(log.begin_sync(), OSError(5, "Input/output error"))
    assert states_of(log) == [FULL, ACTIVE]
    with pytest.raises(StorageFailure):
        log.sync()
    assert states_of(log) == [FULL, ACTIVE]


def test_deleted_segment_says_so(log: LocalLog) -> None:
    append_some(log, 4)
    log.sync()
    first = log.segments()[0]
    log.delete_records(3)
    log.expire()
    assert first.state is SegmentState.DELETED
    assert states_of(log) == [ACTIVE]


def test_reopened_segments_are_archived_but_for_the_last(directory: LogDirectory) -> None:
    log = directory.open()
    append_some(log, 8)
    again = directory.reopen(log)
    assert states_of(again) == [ARCHIVED, ARCHIVED, ACTIVE]
    again.close()


# --- files


def test_files_are_named_by_the_segment_s_first_offset(
    log: LocalLog, directory: LogDirectory
) -> None:
    append(log, batch_of(b"a", b"b", b"c" * SIZE), batch_of(b"d" * 2 * SIZE))
    assert directory.names() == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.index",
        "00000000000000000003.log",
        "00000000000000000003.timeindex",
    ]


def test_closed_record_file_holds_its_batches_and_nothing_else(
    log: LocalLog, directory: LogDirectory
) -> None:
    append_some(log, 7)
    for base in (0, 3):
        content = directory.file(base, LOG_SUFFIX).read_bytes()
        assert list(batches_in(content)) == [base, base + 1, base + 2]


def test_closed_index_ends_with_a_seal(log: LocalLog, directory: LogDirectory) -> None:
    append_some(log, 4)
    content = directory.file(0, INDEX_SUFFIX).read_bytes()
    index = OffsetIndex("x", memoryview(content), len(content) // ENTRY_BYTES)
    assert [index.entry(number) for number in range(index.count)] == [
        IndexEntry(0, 0, SIZE),
        IndexEntry(2, 2 * SIZE, SIZE),
        IndexEntry(3, 3 * SIZE, 0),
    ]


def test_idle_log_has_no_file_open(directory: LogDirectory) -> None:
    log = directory.open()
    assert open_files(directory) == []
    append_some(log, 8)
    again = directory.reopen(log)
    assert open_files(directory) == []
    again.close()


def test_log_at_rest_has_no_file_open_and_goes_on(log: LocalLog, directory: LogDirectory) -> None:
    append_some(log, 2)
    log.sync()
    log.rest()
    assert open_files(directory) == []
    assert len(values_of(log)) == 2
    append_some(log, 3)
    log.sync()
    log.rest()
    assert len(values_of(log)) == 5


def test_closed_log_has_no_file_open(directory: LogDirectory) -> None:
    log = directory.open()
    append_some(log, 20)
    read_all(log)
    log.close()
    assert open_files(directory) == []


def test_synced_segments_hold_no_file_until_they_are_read(
    log: LocalLog, directory: LogDirectory
) -> None:
    append_some(log, 19)
    log.sync()
    assert {Path(name).stem for name in open_files(directory)} == {f"{18:020d}"}


def test_appends_do_not_outrun_the_disk_by_more_than_a_few_segments(log: LocalLog) -> None:
    append_some(log, 90)
    assert states_of(log).count(FULL) <= 9


# --- indexes that are lost while the log is open


@pytest.mark.parametrize("suffix", [INDEX_SUFFIX, TIME_INDEX_SUFFIX])
@pytest.mark.parametrize("base", [3, 18])
def test_index_removed_under_an_open_log_is_written_anew(
    log: LocalLog, directory: LogDirectory, suffix: str, base: int
) -> None:
    append_some(log, 20)
    log.sync()
    log.rest()
    directory.file(base, suffix).unlink()
    assert values_of(log) == [b"x"] * 20
    newest = log.offset_of_max_timestamp()
    assert newest is not None
    assert newest.offset == 0
    append_some(log, 1)
    assert log.end_offset == 21
    again = directory.reopen(log)
    assert values_of(again) == [b"x"] * 21
    again.close()


@pytest.mark.parametrize("suffix", [INDEX_SUFFIX, TIME_INDEX_SUFFIX])
def test_index_removed_under_the_writer_does_not_disturb_appends(
    tmp_path: Path, suffix: str
) -> None:
    directory = LogDirectory(tmp_path / "log", LogSettings(index_interval_bytes=0))
    log = directory.open()
    append_some(log, 1)
    directory.file(0, suffix).unlink()
    # More entries than wait in memory.
    for number in range(400):
        append(log, batch_of(b"x", timestamps_ms=[number]))
    assert [record.offset for record in read_all(log)] == list(range(401))
    log.close()
    again = directory.open(log.checkpoint())
    assert again.end_offset == 401
    assert [record.offset for record in read_all(again)] == list(range(401))
    again.close()


def test_rebuilt_index_is_reported(directory: LogDirectory) -> None:
    log = directory.open()
    append_some(log, 8)
    log.close()
    path = directory.file(3, INDEX_SUFFIX)
    cut(path, 30)
    again = directory.open(log.checkpoint())
    assert again.report.rebuilt_indexes == []
    again.read(4, 1)
    assert again.report.rebuilt_indexes == [str(path)]
    assert any(str(path) in line for line in again.report.lines())
    again.close()


def test_stale_index_is_rebuilt(directory: LogDirectory) -> None:
    """One from when the segment was still growing: sound entries, but no seal."""
    log = directory.open()
    append_some(log, 2)
    middle = directory.reopen(log)
    stale = directory.file(0, INDEX_SUFFIX)
    content = stale.read_bytes()
    append_some(middle, 6)
    middle.close()
    sealed = stale.read_bytes()
    stale.write_bytes(content)
    again = directory.open(middle.checkpoint())
    assert len(values_of(again)) == 8
    assert stale.read_bytes() == sealed
    again.close()


# --- appends and reads side by side


def test_reader_at_the_end_sees_each_append(log: LocalLog) -> None:
    for offset in range(12):
        assert len(log.read(offset, 1000)) == 0
        append_some(log, 1)
        assert bytes(log.read(offset, 1000)) == batches_in(log.read(offset, 1000))[offset]


def test_read_ends_with_its_segment_and_the_next_goes_on(log: LocalLog) -> None:
    append_some(log, 8)
    assert [len(log.read(offset, 10_000)) // SIZE for offset in range(8)] == [
        3, 2, 1, 3, 2, 1, 2, 1,
    ]  # fmt: skip


def test_reads_larger_than_the_log_are_served(log: LocalLog) -> None:
    fill(log, 2)
    assert list(batches_in(log.read(0, 2**31 - 1))) == [0, 1]
