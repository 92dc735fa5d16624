"""What leaves the local engine's logs: by age, by size, by command; and who still reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.errors import OffsetOutOfRange
from millstream.settings.log import LogSettings
from millstream.storage.local_log import LocalLog
from millstream.storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    SegmentState,
)
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import batch_of, read_all, records_in, values_of
from tests.unit.storage.log_directory import LogDirectory, bases_of, states_of

HOUR_MS = 3_600_000
SIZE = len(batch_of(b"x"))
SETTINGS = LogSettings(segment_bytes=2 * SIZE, segment_ms=100 * HOUR_MS, retention_ms=24 * HOUR_MS)


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory(tmp_path / "log", SETTINGS)


@pytest.fixture
def log(directory: LogDirectory) -> Iterator[LocalLog]:
    """Four segments: three closed ones of two records each, and one record in the active one."""
    log = directory.open()
    append_now(log, directory, 7)
    log.sync()
    assert bases_of(log) == [0, 2, 4, 6]
    yield log
    log.close()


def append_now(log: LocalLog, directory: LogDirectory, count: int) -> None:
    for _ in range(count):
        append(log, batch_of(b"x", timestamps_ms=[directory.clock.now_ms()]))


def values_in(view: memoryview) -> list[bytes | None]:
    return [record.value for record in records_in(view)]


def reopened(directory: LogDirectory, log: LocalLog, settings: LogSettings) -> LocalLog:
    """The same log under other settings."""
    log.close()
    directory.settings = settings
    return directory.open(log.checkpoint())


# --- by age


def test_nothing_expires_before_its_time(log: LocalLog, directory: LogDirectory) -> None:
    directory.clock.advance_ms(24 * HOUR_MS)
    assert log.expire() == []
    assert log.start_offset == 0


def test_segments_expire_when_their_newest_record_is_too_old(
    log: LocalLog, directory: LogDirectory
) -> None:
    directory.clock.advance_ms(23 * HOUR_MS)
    append_now(log, directory, 2)
    log.sync()
    directory.clock.advance_ms(HOUR_MS + 1)
    assert len(log.expire()) == 9
    # The segment at offset 6 was old, and got one young record.
    assert bases_of(log) == [6, 8]
    assert log.start_offset == 6
    with pytest.raises(OffsetOutOfRange):
        log.read(5, 1000)


def test_expired_files_are_renamed_and_named(log: LocalLog, directory: LogDirectory) -> None:
    log.delete_records(2)
    paths = log.expire()
    assert sorted(paths) == sorted(
        str(directory.file(0, suffix)) + DELETED_SUFFIX
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    )
    assert all(Path(path).exists() for path in paths)
    assert not directory.file(0, LOG_SUFFIX).exists()


def test_segment_with_an_old_and_a_young_record_stays(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path / "log", SETTINGS)
    log = directory.open()
    now_ms = directory.clock.now_ms()
    for timestamp_ms in (now_ms, 0, 0, 0, now_ms):
        append(log, batch_of(b"x", timestamps_ms=[timestamp_ms]))
    log.sync()
    assert log.expire() == []
    directory.clock.advance_ms(24 * HOUR_MS + 1)
    log.expire()
    assert bases_of(log) == [4]
    log.close()


def test_records_without_a_time_age_from_when_their_segment_was_closed(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path / "log", SETTINGS)
    log = directory.open()
    for _ in range(3):
        append(log, batch_of(b"x", timestamps_ms=[-1]))
    log.sync()
    assert log.expire() == []
    directory.clock.advance_ms(24 * HOUR_MS + 1)
    assert len(log.expire()) == 3
    log.close()


def test_active_segment_is_never_deleted_but_closed_first(
    log: LocalLog, directory: LogDirectory
) -> None:
    directory.clock.advance_ms(25 * HOUR_MS)
    log.expire()
    assert bases_of(log) == [6]
    assert values_of(log) == [b"x"]
    log.roll_if_due()
    assert states_of(log) == [SegmentState.FULL, SegmentState.ACTIVE]
    assert log.expire() == []
    log.sync()
    log.expire()
    assert bases_of(log) == [7]
    assert (log.start_offset, log.end_offset) == (7, 7)
    append_now(log, directory, 1)
    assert values_of(log) == [b"x"]


def test_emptied_log_remembers_its_end(log: LocalLog, directory: LogDirectory) -> None:
    directory.clock.advance_ms(25 * HOUR_MS)
    log.roll_if_due()
    log.sync()
    for path in log.expire():
        Path(path).unlink()
    again = directory.reopen(log)
    assert (again.start_offset, again.end_offset) == (7, 7)
    crashed = directory.after_kill(directory.path.with_name("crashed")).open()
    assert (crashed.start_offset, crashed.end_offset) == (7, 7)
    crashed.close()
    again.close()


def test_segment_that_is_not_on_disk_does_not_expire(directory: LogDirectory) -> None:
    log = directory.open()
    append_now(log, directory, 7)
    directory.clock.advance_ms(25 * HOUR_MS)
    assert log.expire() == []
    log.sync()
    assert len(log.expire()) == 9
    log.close()


# --- by size


@pytest.mark.parametrize(
    ("retention_bytes", "bases"),
    [(0, [6]), (SIZE, [6]), (SIZE + 1, [4, 6]), (5 * SIZE, [2, 4, 6]), (6 * SIZE, [0, 2, 4, 6])],
)
def test_oldest_segments_go_while_the_log_stays_large_enough(
    log: LocalLog, directory: LogDirectory, retention_bytes: int, bases: list[int]
) -> None:
    again = reopened(directory, log, replace(SETTINGS, retention_bytes=retention_bytes))
    again.expire()
    assert bases_of(again) == bases
    assert again.start_offset == bases[0]
    assert [record.offset for record in read_all(again)] == list(range(bases[0], 7))
    again.close()


# --- by command


def test_deleted_records_leave_the_disk_by_whole_segments(
    log: LocalLog, directory: LogDirectory
) -> None:
    log.delete_records(5)
    log.expire()
    assert bases_of(log) == [4, 6]
    assert log.start_offset == 5
    assert directory.names(LOG_SUFFIX) == [f"{4:020d}.log", f"{6:020d}.log"]


def test_deletion_of_everything_leaves_the_active_segment(log: LocalLog) -> None:
    log.delete_records(7)
    log.expire()
    assert bases_of(log) == [6]
    assert values_of(log) == []


def test_deleted_records_stay_deleted_after_a_restart(
    log: LocalLog, directory: LogDirectory
) -> None:
    log.delete_records(5)
    again = directory.reopen(log)
    assert again.start_offset == 5
    again.expire()
    third = directory.reopen(again)
    assert third.start_offset == 5
    assert len(values_of(third)) == 2
    third.close()


def test_deleted_files_that_nobody_removed_are_gone_after_a_restart(
    log: LocalLog, directory: LogDirectory
) -> None:
    log.delete_records(5)
    assert len(log.expire()) == 6
    assert len(directory.names(DELETED_SUFFIX)) == 6
    directory.reopen(log).close()
    assert directory.names(DELETED_SUFFIX) == []


# --- readers of what is gone


def test_read_in_flight_survives_expiry_and_the_removal_of_files(
    log: LocalLog, directory: LogDirectory
) -> None:
    views = [log.read(offset, 1) for offset in range(7)]
    contents = [bytes(view) for view in views]
    log.delete_records(7)
    for path in log.expire():
        Path(path).unlink()
    log.close()
    assert [bytes(view) for view in views] == contents


def test_read_in_flight_survives_eviction(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path / "log", SETTINGS, cached_segments=1)
    log = directory.open()
    for number in range(20):
        append(log, batch_of(b"%d" % number))
    views = [log.read(offset, 1) for offset in range(20)]
    assert [values_in(view) for view in views] == [[b"%d" % number] for number in range(20)]
    log.close()


def test_segment_deleted_while_it_is_read_is_read_to_its_end(
    log: LocalLog, directory: LogDirectory
) -> None:
    view = log.read(0, 10_000)
    log.delete_records(6)
    log.expire()
    assert values_in(view) == [b"x", b"x"]


def test_expiry_goes_on_where_an_index_is_missing(log: LocalLog, directory: LogDirectory) -> None:
    directory.file(0, INDEX_SUFFIX).unlink()
    directory.file(2, TIME_INDEX_SUFFIX).unlink()
    log.delete_records(6)
    log.expire()
    assert log.failure is None
    assert bases_of(log) == [6]
