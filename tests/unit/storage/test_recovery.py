"""What recovery makes of a directory that a crash left behind, and what it says of it.

Damage to what had been synced is the matter of test_damage.py; crashes at every step of a log's
life that of tests/crash.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from millstream.settings.log import LogSettings
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment import CUT_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from tests.fakes.log_steps import append, fill
from tests.fakes.sample_batches import batch_of, idempotent_batch, values_of
from tests.unit.storage.log_directory import (
    BarelyWrittenFilesystem,
    LogDirectory,
    UnsyncedFilesystem,
    bases_of,
    batches_in,
    cut,
)

INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)


class Killed(NamedTuple):
    """The directory of a process that was killed, and the batches that were in its log."""

    directory: LogDirectory
    content: dict[Path, bytes]
    batches: list[bytes]
    bases: list[int]
    end_offset: int

    @property
    def last_base(self) -> int:
        return self.bases[-1]

    @property
    def last_file(self) -> Path:
        return self.directory.file(self.last_base, LOG_SUFFIX)

    def batches_of(self, segment: int) -> list[bytes]:
        ends = [*self.bases[1:], self.end_offset]
        first, end = self.bases[segment], ends[segment]
        return [batch for base, batch in self.batches_by_base().items() if first <= base < end]

    def batches_by_base(self) -> dict[int, bytes]:
        return {int.from_bytes(batch[:8], "big"): batch for batch in self.batches}

    def opened(self, recovery_point: int = 0) -> LocalLog:
        return self.directory.open(LogCheckpoint(recovery_point))

    def restore(self) -> None:
        self.directory.restore(self.content)


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    """Four segments, none of them ever synced; the last batch holds three records."""
    living = LogDirectory(tmp_path / "living", filesystem=UnsyncedFilesystem())
    log = living.open()
    while len(log.segments()) < 4:
        fill(log, 1)
    append(log, batch_of(b"x"), batch_of(b"y", b"z"), batch_of(b"last", b"of", b"all"))
    view = b"".join(bytes(log.read(base, 1 << 20)) for base in bases_of(log))
    directory = living.after_kill(tmp_path / "killed")
    directory.filesystem = UnsyncedFilesystem()
    bases = bases_of(log)
    batches = list(batches_in(view).values())
    yield Killed(directory, directory.content(), batches, bases, log.end_offset)
    log.close()


def stored(log: LocalLog) -> list[bytes]:
    return [
        batch
        for base in bases_of(log)
        for batch in batches_in(log.read(max(base, log.start_offset), 1 << 20)).values()
        if base < log.end_offset
    ]


def assert_lives_on(log: LocalLog, expected: list[bytes], directory: LogDirectory) -> None:
    """The log holds these batches, takes more, and is the same after the next start."""
    assert stored(log) == expected
    end_offset = log.end_offset
    assert append(log, batch_of(b"more")) == [end_offset]
    values = values_of(log)
    assert values[-1] == b"more"
    again = directory.reopen(log)
    assert again.report.clean
    assert values_of(again) == values
    again.close()


# --- the end of the log


def test_killed_log_is_whole(killed: Killed) -> None:
    log = killed.opened()
    assert (log.report.clean, log.report.torn, log.report.set_aside) == (False, [], [])
    assert log.report.batches == len(killed.batches)
    assert_lives_on(log, killed.batches, killed.directory)


def test_last_batch_cut_at_any_byte_is_dropped_whole(killed: Killed) -> None:
    whole = len(b"".join(killed.batches_of(-1)))
    start = whole - len(killed.batches[-1])
    for size in range(start, whole):
        killed.restore()
        cut(killed.last_file, size)
        log = killed.opened()
        # Zeros are what a file has where nothing was written.
        assert len(log.report.torn) == any(killed.batches[-1][: size - start])
        assert log.report.set_aside == []
        assert killed.last_file.stat().st_size == start
        assert_lives_on(log, killed.batches[:-1], killed.directory)


def test_last_batch_with_zeros_from_any_byte_is_dropped_whole(killed: Killed) -> None:
    whole = len(b"".join(killed.batches_of(-1)))
    start = whole - len(killed.batches[-1])
    # The very last byte is a record's count of headers, and zero as it is.
    for size in range(start, whole - 1):
        killed.restore()
        killed.last_file.write_bytes(killed.content[killed.last_file][:size] + bytes(5000))
        log = killed.opened()
        assert log.report.set_aside == []
        assert_lives_on(log, killed.batches[:-1], killed.directory)


def test_zeros_behind_the_last_batch_are_no_tear(killed: Killed) -> None:
    killed.last_file.write_bytes(b"".join(killed.batches_of(-1)) + bytes(100_000))
    log = killed.opened()
    assert log.report.torn == []
    assert_lives_on(log, killed.batches, killed.directory)


@pytest.mark.parametrize("size", [1, 11, 12, 60, 61, 62, 200, 5000])
def test_garbage_behind_the_last_batch_is_cut(killed: Killed, size: int) -> None:
    whole = b"".join(killed.batches_of(-1))
    for seed in range(20):
        killed.restore()
        garbage = Random(seed).randbytes(size - 1) + b"!"
        killed.last_file.write_bytes(whole + garbage)
        log = killed.opened()
        (torn,) = log.report.torn
        assert f"{size} bytes of {killed.last_file}" in torn
        assert killed.last_file.stat().st_size == len(whole)
        assert_lives_on(log, killed.batches, killed.directory)


def test_old_batch_behind_the_last_is_not_taken_for_a_new_one(killed: Killed) -> None:
    """A sector of an earlier life of the disk may turn up there, sound in itself."""
    whole = b"".join(killed.batches_of(-1))
    for old in (killed.batches[0], killed.batches[-1], killed.batches_of(1)[0]):
        killed.restore()
        killed.last_file.write_bytes(whole + old)
        log = killed.opened()
        assert len(log.report.torn) == 1
        assert_lives_on(log, killed.batches, killed.directory)


def test_batch_of_a_later_offset_behind_the_last_is_not_taken(killed: Killed) -> None:
    whole = b"".join(killed.batches_of(-1))
    later = bytearray(batch_of(b"too late"))
    later[:8] = (1000).to_bytes(8, "big")
    killed.last_file.write_bytes(whole + later)
    log = killed.opened()
    path = log.report.set_aside[0].kept
    assert Path(path).read_bytes() == later
    assert_lives_on(log, killed.batches, killed.directory)


# --- the middle of the log


def test_sound_batches_behind_a_torn_one_are_set_aside(killed: Killed) -> None:
    batches = killed.batches_of(-1)
    assert len(batches) >= 3
    torn_at = len(b"".join(batches[:-3]))
    content = bytearray(b"".join(batches))
    content[torn_at + 65] ^= 1
    killed.last_file.write_bytes(content)
    log = killed.opened()
    assert [each.kept for each in log.report.set_aside] == [f"{killed.last_file}{CUT_SUFFIX}"]
    assert Path(log.report.set_aside[0].kept).read_bytes() == content[torn_at:]
    lines = log.report.lines()
    assert any("cut a torn tail" in line and str(killed.last_file) in line for line in lines)
    assert any("although sound records follow" in line for line in lines)
    assert_lives_on(log, killed.batches[:-3], killed.directory)
    # What was set aside stays for people to look at.
    assert Path(log.report.set_aside[0].kept).exists()


@pytest.mark.parametrize("segment", [0, 1, 2])
def test_segments_behind_a_torn_one_are_set_aside(killed: Killed, segment: int) -> None:
    path = killed.directory.file(killed.bases[segment], LOG_SUFFIX)
    kept = killed.batches_of(segment)[:-1]
    content = bytearray(killed.content[path])
    content[len(b"".join(kept)) + 65] ^= 1
    path.write_bytes(content)
    log = killed.opened()
    later = [killed.directory.file(base, LOG_SUFFIX) for base in killed.bases[segment + 1 :]]
    found = sorted(each.kept for each in log.report.set_aside)
    assert found == [f"{file}{CUT_SUFFIX}" for file in later]
    # The bytes were written, and have changed since.
    assert len(log.report.unresolved) == len(later)
    for number, file in enumerate(later, start=segment + 1):
        assert Path(f"{file}{CUT_SUFFIX}").read_bytes() == b"".join(killed.batches_of(number))
    assert killed.directory.names(LOG_SUFFIX) == [
        killed.directory.file(base, LOG_SUFFIX).name for base in killed.bases[: segment + 1]
    ]
    before = [batch for number in range(segment) for batch in killed.batches_of(number)]
    assert_lives_on(log, before + kept, killed.directory)


def test_missing_segment_ends_an_unsynced_log_before_it(killed: Killed) -> None:
    for suffix in (LOG_SUFFIX, *INDEXES):
        killed.directory.file(killed.bases[1], suffix).unlink()
    log = killed.opened()
    assert len(log.report.set_aside) == 2
    assert_lives_on(log, killed.batches_of(0), killed.directory)


# --- how much is scanned


def test_only_what_lies_past_the_recovery_point_is_scanned(killed: Killed) -> None:
    *_, before, first, last = killed.batches_of(-1)
    log = killed.opened(recovery_point=int.from_bytes(first[:8], "big"))
    # The batch before it tells where that is.
    assert log.report.scanned_bytes == len(before + first + last)
    assert_lives_on(log, killed.batches, killed.directory)


def test_second_recovery_finds_nothing_to_mend(killed: Killed) -> None:
    killed.last_file.write_bytes(b"".join(killed.batches_of(-1))[:-3])
    assert len(killed.opened().report.torn) == 1
    again = killed.opened()
    assert (again.report.torn, again.report.set_aside, again.report.damage) == ([], [], [])
    assert_lives_on(again, killed.batches[:-1], killed.directory)


@pytest.mark.parametrize("suffix", INDEXES)
@pytest.mark.parametrize(
    "spoil", [lambda content: b"", lambda content: content[:-1], lambda content: content[::-1]]
)
def test_indexes_are_written_anew(
    killed: Killed, suffix: str, spoil: Callable[[bytes], bytes]
) -> None:
    for base in killed.bases:
        path = killed.directory.file(base, suffix)
        path.write_bytes(spoil(path.read_bytes()))
    log = killed.opened()
    assert_lives_on(log, killed.batches, killed.directory)
    # Nobody had to find out later.
    assert log.report.rebuilt_indexes == []


# --- leftovers


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "log-start-offset.tmp",
        "00000000000000000000.index.tmp",
        "00000000000000000777.index",
        "00000000000000000777.timeindex",
    ],
)
def test_leftover_is_removed(killed: Killed, name: str) -> None:
    (killed.directory.path / name).write_bytes(b"left over")
    log = killed.opened()
    assert name not in killed.directory.names()
    assert_lives_on(log, killed.batches, killed.directory)


@pytest.mark.parametrize("name", ["notes.txt", "123.log", f"{0:020d}.log{CUT_SUFFIX}"])
def test_file_of_a_stranger_is_let_alone(killed: Killed, name: str) -> None:
    (killed.directory.path / name).write_bytes(b"mine")
    log = killed.opened()
    assert (killed.directory.path / name).read_bytes() == b"mine"
    assert_lives_on(log, killed.batches, killed.directory)


def test_log_whose_segments_are_all_gone_goes_on_where_it_was(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    log = directory.open(LogCheckpoint(41))
    assert (log.start_offset, log.end_offset) == (41, 41)
    [damage] = log.report.damage
    assert damage.reason == "all segments are missing"
    assert append(log, batch_of(b"a")) == [41]
    log.close()


# --- producers


def producing_directory(path: Path) -> LogDirectory:
    """A log of one idempotent producer, with a snapshot for each of its segments."""
    directory = LogDirectory(path, filesystem=UnsyncedFilesystem())
    log = directory.open()
    for sequence in range(40):
        append(log, idempotent_batch(sequence))
        log.sync()
    assert len(directory.names(".snapshot")) == 2
    return directory


def assert_producer_is_known(log: LocalLog) -> None:
    assert append(log, *(idempotent_batch(sequence) for sequence in range(35, 41))) == [
        *range(35, 40),
        40,
    ]


@pytest.mark.parametrize("spoilt", [0, 1, 2])
@pytest.mark.parametrize(
    "spoil", [lambda content: b"", lambda content: content[:-1], lambda content: content[::-1]]
)
def test_damaged_snapshots_are_reported_and_made_up_for(
    tmp_path: Path, spoilt: int, spoil: Callable[[bytes], bytes]
) -> None:
    directory = producing_directory(tmp_path)
    for name in sorted(directory.names(".snapshot"), reverse=True)[:spoilt]:
        path = directory.path / name
        path.write_bytes(spoil(path.read_bytes()))
    log = directory.open()
    assert len(log.report.notes) == spoilt
    assert_producer_is_known(log)
    log.close()


def test_snapshot_past_the_end_of_the_files_keeps_offsets_from_being_given_again(
    tmp_path: Path,
) -> None:
    directory = producing_directory(tmp_path)
    last_base = int(directory.names(".snapshot")[-1].removesuffix(".snapshot"))
    # The log loses its last two segments, of whose records the snapshot speaks.
    for base in bases_of(directory.open())[-2:]:
        directory.file(base, LOG_SUFFIX).unlink()
    log = directory.open()
    assert log.end_offset == last_base
    (damage,) = log.report.damage
    assert damage.end_offset == last_base
    assert append(log, idempotent_batch(last_base)) == [last_base]
    log.close()


def test_room_that_was_set_aside_is_not_read_after_a_kill(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path, LogSettings())
    append(directory.open(), batch_of(b"a"))
    with directory.file(0, LOG_SUFFIX).open("r+b") as file:
        assert file.seek(0, os.SEEK_END) > 10 << 20
        file.seek(5 << 20)
        file.write(b"found only by reading")
    again = directory.open(filesystem=BarelyWrittenFilesystem())
    assert values_of(again) == [b"a"]
    assert not again.report.torn
    again.close()
