"""The local engine after a stop: what it scans, what it restores, what it throws away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest

from millstream.errors import CorruptData, OutOfOrderSequence
from millstream.settings.log import LogSettings
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment import LOG_SUFFIX, SNAPSHOT_SUFFIX, SegmentState
from tests.fakes.log_steps import append, fill, refusal
from tests.fakes.sample_batches import (
    batch_of,
    commit_marker,
    idempotent_batch,
    read_all,
    transactional_batch,
    values_of,
)
from tests.unit.storage.log_directory import (
    LogDirectory,
    RecordingFilesystem,
    bases_of,
    flip,
    states_of,
)

SETTINGS = LogSettings(segment_bytes=600, index_interval_bytes=100)


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory(tmp_path / "log", SETTINGS)


@pytest.fixture
def log(directory: LogDirectory) -> Iterator[LocalLog]:
    log = directory.open()
    yield log
    log.close()


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    return tmp_path / "crashed"


# --- segments that are missing


def test_missing_first_segments_are_reported(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 60)
    log.close()
    first, second = bases_of(log)[:2]
    directory.file(first, LOG_SUFFIX).unlink()
    for known in (log.checkpoint(), None):
        again = directory.open(known)
        [damage] = again.report.damage
        assert (damage.offset, damage.end_offset) == (first, second)
        assert "segments before" in damage.reason
        again.close()


def test_segments_past_their_retention_are_not_missed(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 60)
    log.sync()
    log.reconfigure(replace(SETTINGS, retention_bytes=1))
    for path in log.expire():
        Path(path).unlink()
    log.close()
    assert log.start_offset > 0
    for known in (log.checkpoint(), None):
        again = directory.open(known)
        assert again.report.damage == []
        again.close()


def test_missing_last_segment_is_reported_where_the_one_before_has_its_size(
    directory: LogDirectory,
) -> None:
    log = directory.open()
    while len(log.segments()) < 4 or log.segments()[-1].size != log.segments()[-2].size:
        append(log, batch_of(b"%04d" % log.end_offset))
    log.close()
    last = log.segments()[-1]
    directory.file(last.base_offset, LOG_SUFFIX).unlink()
    again = directory.open(log.checkpoint())
    assert again.end_offset == log.end_offset
    [damage] = again.report.damage
    assert (damage.offset, damage.end_offset) == (last.base_offset, log.end_offset)
    again.close()


def test_transaction_whose_marker_is_damaged_is_in_doubt(directory: LogDirectory) -> None:
    log = directory.open()
    append(log, transactional_batch(0, producer=7))
    before = log.segments()[-1].size
    append(log, commit_marker(producer=7))
    append(log, batch_of(b"behind"))
    log.sync()
    checkpoint = log.checkpoint()
    log.discard()
    flip(directory.file(0, LOG_SUFFIX), before + 40, 0)
    for _ in range(2):
        again = directory.open(checkpoint)
        [opened] = again.producers.open_transactions()
        assert opened.is_doubtful
        assert [each.position for each in again.report.damage] == [before]
        # A clean stop keeps the doubt.
        again.close()
        checkpoint = again.checkpoint()


# --- after a clean stop


def test_clean_reopening_reads_no_records_and_no_index(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 60)
    log.close()
    filesystem = RecordingFilesystem()
    again = directory.open(log.checkpoint(), filesystem)
    assert again.report.clean
    assert again.report.scanned_bytes == 0
    assert again.report.lines() == []
    assert {Path(path).suffix for path in filesystem.opened} <= {SNAPSHOT_SUFFIX, ""}
    assert again.end_offset == log.end_offset
    assert values_of(again) == [b"%d" % number for number in range(log.end_offset)]
    again.close()


def test_reopening_without_changes_writes_nothing(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 60)
    log.close()
    content = directory.content()
    again = directory.open(log.checkpoint())
    read_all(again)
    again.close()
    assert again.checkpoint() == log.checkpoint()
    assert directory.content() == content


def test_log_that_was_never_written_leaves_no_files(directory: LogDirectory) -> None:
    log = directory.open()
    log.close()
    assert directory.names() == []
    again = directory.open(log.checkpoint())
    assert (again.start_offset, again.end_offset) == (0, 0)
    again.close()


def test_record_file_that_differs_from_the_clean_stop_is_scanned(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 30)
    active = log.segments()[-1]
    log.close()
    with Path(active.log_path).open("ab") as file:
        file.write(b"more")
    again = directory.open(log.checkpoint())
    assert not again.report.clean
    assert any(active.log_path in line for line in again.report.lines())
    assert again.end_offset == log.end_offset
    assert len(values_of(again)) == log.end_offset
    again.close()


def test_log_whose_segments_are_all_gone_goes_on_at_its_end(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 30)
    log.close()
    for path in directory.path.iterdir():
        path.unlink()
    again = directory.open(log.checkpoint())
    assert (again.start_offset, again.end_offset) == (log.end_offset, log.end_offset)
    assert any("missing" in line for line in again.report.lines())
    again.close()


def test_damaged_log_start_is_reported_and_not_guessed(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 5)
    log.delete_records(3)
    log.close()
    flip(directory.path / "log-start-offset", 7, 0)
    with pytest.raises(CorruptData):
        directory.open(log.checkpoint())


# --- after a crash


def test_killed_process_loses_nothing_that_was_written(
    log: LocalLog, directory: LogDirectory, crashed: Path
) -> None:
    fill(log, 40)
    again = directory.after_kill(crashed).open(LogCheckpoint(0))
    assert again.end_offset == log.end_offset
    assert values_of(again) == values_of(log)
    assert not again.report.clean
    assert not again.report.torn
    assert not again.report.damage
    again.close()


def test_only_what_was_not_synced_is_scanned(
    log: LocalLog, directory: LogDirectory, crashed: Path
) -> None:
    fill(log, 40)
    log.sync()
    checkpoint = log.checkpoint()
    fill(log, 2)
    filesystem = RecordingFilesystem()
    again = directory.after_kill(crashed).open(checkpoint, filesystem)
    assert 0 < again.report.scanned_bytes < 3 * 100
    scanned = {Path(path).name for path in filesystem.opened if path.endswith(LOG_SUFFIX)}
    assert scanned <= {f"{base:020d}.log" for base in bases_of(log)[-2:]}
    assert values_of(again) == values_of(log)
    again.close()


def test_hole_ahead_of_the_writer_is_cut_off(
    log: LocalLog, directory: LogDirectory, crashed: Path
) -> None:
    append(log, batch_of(b"x"))
    copy = directory.after_kill(crashed)
    assert copy.file(0, LOG_SUFFIX).stat().st_size == 600
    again = copy.open()
    assert copy.file(0, LOG_SUFFIX).stat().st_size == len(batch_of(b"x"))
    assert again.report.torn == []
    again.close()


def test_crash_after_a_crash_finds_the_same(
    log: LocalLog, directory: LogDirectory, crashed: Path
) -> None:
    fill(log, 40)
    first = directory.after_kill(crashed)
    opened = first.open()
    second = first.after_kill(crashed.with_name("again"))
    again = second.open()
    assert values_of(again) == values_of(opened) == values_of(log)
    opened.close()
    again.close()


def test_leftovers_of_unfinished_work_are_removed(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 5)
    log.close()
    names = directory.names()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000000.cleaned.log",
        "00000000000000000000.cleaned.index",
        "log-start-offset.tmp",
        "00000000000000000777.index",
        "00000000000000000777.timeindex",
    ):
        (directory.path / name).write_bytes(b"left over")
    directory.open(log.checkpoint()).close()
    assert directory.names() == names


def test_files_of_others_are_left_alone(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 5)
    log.close()
    for name in ("notes.txt", "7.log", "00000000000000000000.log.cut", "x.index"):
        (directory.path / name).write_bytes(b"mine")
    again = directory.open(log.checkpoint())
    assert bases_of(again) == [0]
    again.close()
    assert (directory.path / "notes.txt").read_bytes() == b"mine"
    assert (directory.path / "7.log").exists()
    assert (directory.path / "00000000000000000000.log.cut").exists()


def test_what_is_set_aside_twice_is_kept_twice(directory: LogDirectory) -> None:
    """A second torn tail in the same segment must not take the place of the first."""
    for value in (b"first", b"second"):
        log = directory.open()
        append(log, batch_of(b"torn"), batch_of(value))
        size = log.segments()[-1].size
        start = size - len(batch_of(b"torn")) - len(batch_of(value))
        log.close()
        for name in directory.names(SNAPSHOT_SUFFIX):
            # It would vouch for what is torn.
            (directory.path / name).unlink()
        flip(directory.file(0, LOG_SUFFIX), start + 61, 0)
        again = directory.open(LogCheckpoint(0))
        assert len(again.report.set_aside) == 1
        again.close()
    aside = [path.read_bytes() for path in directory.path.iterdir() if ".cut" in path.name]
    assert any(b"first" in content for content in aside)
    assert any(b"second" in content for content in aside)


# --- producers


def snapshots_in(directory: LogDirectory) -> list[int]:
    return [int(name.removesuffix(SNAPSHOT_SUFFIX)) for name in directory.names(SNAPSHOT_SUFFIX)]


def append_sequences(log: LocalLog, sequences: range) -> None:
    for sequence in sequences:
        append(log, idempotent_batch(sequence))


def assert_knows_producer(log: LocalLog, last_sequence: int) -> None:
    """Repeats of the last five are known, a gap is refused, and the next one is taken."""
    end_offset = log.end_offset
    for back in range(5):
        assert append(log, idempotent_batch(last_sequence - back)) == [end_offset - 1 - back]
    assert isinstance(refusal(log, idempotent_batch(last_sequence + 2)), OutOfOrderSequence)
    assert append(log, idempotent_batch(last_sequence + 1)) == [end_offset]


def test_snapshot_is_written_when_a_segment_is_closed_and_two_are_kept(
    log: LocalLog, directory: LogDirectory
) -> None:
    for number in range(60):
        append_sequences(log, range(number, number + 1))
        log.sync()
        assert snapshots_in(directory) == bases_of(log)[1:][-2:]


def test_snapshot_is_written_by_a_clean_stop(directory: LogDirectory) -> None:
    log = directory.open()
    append_sequences(log, range(30))
    log.close()
    assert snapshots_in(directory)[-1] == 30
    assert len(snapshots_in(directory)) == 2


def test_producers_are_known_after_a_clean_stop_without_reading_records(
    directory: LogDirectory,
) -> None:
    log = directory.open()
    append_sequences(log, range(30))
    log.close()
    filesystem = RecordingFilesystem()
    again = directory.open(log.checkpoint(), filesystem)
    assert not [path for path in filesystem.opened if path.endswith(LOG_SUFFIX)]
    assert_knows_producer(again, 29)
    again.close()


@pytest.mark.parametrize("recovery_point", [0, 15, 30])
def test_producers_are_known_after_a_crash(
    log: LocalLog, directory: LogDirectory, crashed: Path, recovery_point: int
) -> None:
    append_sequences(log, range(30))
    log.sync()
    again = directory.after_kill(crashed).open(LogCheckpoint(recovery_point))
    assert_knows_producer(again, 29)
    again.close()


@pytest.mark.parametrize("damaged", [1, 2])
def test_damaged_snapshots_are_passed_over_and_reported(
    directory: LogDirectory, damaged: int
) -> None:
    log = directory.open()
    append_sequences(log, range(30))
    log.close()
    for name in directory.names(SNAPSHOT_SUFFIX)[-damaged:]:
        flip(directory.path / name, 30, 3)
    again = directory.open(log.checkpoint())
    assert len(again.report.notes) == damaged
    assert_knows_producer(again, 29)
    again.close()


def test_snapshot_vouches_for_the_records_below_it(directory: LogDirectory) -> None:
    """It is written after they were synced, so what is unsound among them was not torn."""
    log = directory.open()
    append_sequences(log, range(30))
    log.close()
    active = log.segments()[-1]
    flip(directory.file(active.base_offset, LOG_SUFFIX), 61, 0)
    again = directory.open(LogCheckpoint(0))
    assert not again.report.torn
    assert again.end_offset == 30
    with pytest.raises(CorruptData):
        again.read(active.base_offset, 1)
    assert_knows_producer(again, 29)
    again.close()


def test_producers_of_deleted_records_are_known_after_a_restart(directory: LogDirectory) -> None:
    log = directory.open()
    append_sequences(log, range(30))
    log.delete_records(30)
    log.expire()
    again = directory.reopen(log)
    assert_knows_producer(again, 29)
    again.close()


# --- truncation across segments


@pytest.mark.parametrize("end_offset", range(0, 60, 3))
def test_truncation_leaves_a_log_that_reopens(directory: LogDirectory, end_offset: int) -> None:
    log = directory.open()
    fill(log, 30)
    log.sync()
    ends = [0, *accumulate(number % 3 + 1 for number in range(30))]
    expected = max(end for end in ends if end <= end_offset)
    log.truncate(end_offset)
    assert log.end_offset == expected
    assert states_of(log)[-1] is SegmentState.ACTIVE
    assert all(base <= expected for base in bases_of(log))
    assert [int(name[:20]) for name in directory.names(LOG_SUFFIX)] == bases_of(log)
    fill(log, 10)
    records = read_all(log)
    again = directory.reopen(log)
    assert again.report.clean
    assert read_all(again) == records
    again.close()


def test_truncation_leaves_views_of_what_it_drops(log: LocalLog) -> None:
    fill(log, 30)
    views = [log.read(offset, 10_000) for offset in range(log.end_offset)]
    contents = [bytes(view) for view in views]
    log.truncate(7)
    fill(log, 30)
    assert [bytes(view) for view in views] == contents


def test_truncation_below_the_start_moves_the_start(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 30)
    log.delete_records(20)
    log.truncate(10)
    assert (log.start_offset, log.end_offset) == (10, 10)
    append(log, batch_of(b"next"))
    again = directory.reopen(log)
    assert (again.start_offset, again.end_offset) == (10, 11)
    assert values_of(again) == [b"next"]
    again.close()
