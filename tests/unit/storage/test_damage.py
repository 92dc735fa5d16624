"""What a disk may do to stored bytes: each byte flipped, each file cut, in real files.

A damaged batch is reported with its file and position, is never served and never passed over in
silence; every other batch stays readable. A damaged index costs nothing but a rebuild.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from millstream.errors import CorruptData
from millstream.settings.log import LogSettings
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from tests.fakes.log_steps import append, first_at
from tests.fakes.sample_batches import START_MS, batch_of, read_all
from tests.fakes.tiers import sampled
from tests.unit.storage.laid_batches import lay_some, store_segment
from tests.unit.storage.log_directory import (
    LogDirectory,
    UnsyncedFilesystem,
    batches_in,
    cut,
    flip,
    survey,
)

SETTINGS = LogSettings(segment_bytes=520, index_interval_bytes=150)
BITS = pytest.mark.parametrize("bit", sampled(range(8), 2, 2))
INDEXES = pytest.mark.parametrize("suffix", [INDEX_SUFFIX, TIME_INDEX_SUFFIX])
# The closed segment that is damaged has neighbours on both sides.
CLOSED, ACTIVE = 1, 3
SEGMENTS = pytest.mark.parametrize("segment", [CLOSED, ACTIVE], ids=["closed", "active"])


class Stored(NamedTuple):
    """A log that was closed cleanly, and all that is true about it."""

    directory: LogDirectory
    content: dict[Path, bytes]
    checkpoint: LogCheckpoint
    batches: dict[int, bytes]
    bases: list[int]

    @property
    def end_offset(self) -> int:
        return self.checkpoint.end_offset

    def file(self, segment: int, suffix: str = LOG_SUFFIX) -> Path:
        return self.directory.file(self.bases[segment], suffix)

    def open(self) -> LocalLog:
        return self.directory.open(self.checkpoint)

    def open_after_crash(self, recovery_point: int) -> LocalLog:
        """As if nothing from the recovery point on was known to be on disk."""
        for path in self.directory.path.glob(f"*{SNAPSHOT_SUFFIX}"):
            if int(path.stem) > recovery_point:
                # It is written only when all below it has been synced.
                path.unlink()
        return self.directory.open(LogCheckpoint(recovery_point))

    def places(self, segment: int) -> list[tuple[range, int]]:
        """Which bytes of a record file belong to the batch of which base offset."""
        places, position = [], 0
        for base, batch in batches_in(self.content[self.file(segment)]).items():
            places.append((range(position, position + len(batch)), base))
            position += len(batch)
        return places

    def flips(self, segment: int, bit: int) -> Iterator[tuple[range, int]]:
        """Flip a bit of each byte in turn, and say which batch it hit.

        Bytes under the checksum are all alike, so one bit of each of them will do.
        """
        path = self.file(segment)
        for place, base in self.places(segment):
            for position in place:
                if position - place.start < 27 or position % 8 == bit:
                    flip(path, position, bit)
                    yield place, base
                    self.directory.restore(self.content)


def stored_log(path: Path, batch_bytes: int = 0) -> Stored:
    """Four segments of batches of one to three records, and of one size if that is given."""
    directory = LogDirectory(path, SETTINGS, filesystem=UnsyncedFilesystem())
    log = directory.open()
    number = 0
    while len(log.segments()) < 4 or log.segments()[-1].size < 350:
        first = log.end_offset
        values = [b"%d" % (first + n) for n in range(number % 3 + 1)]
        times = [START_MS + 100 * number - 30 * (number % 4) + n for n in range(len(values))]
        batch = batch_of(*values, timestamps_ms=times)
        while len(batch) < batch_bytes:
            values[0] += b"."
            batch = batch_of(*values, timestamps_ms=times)
        append(log, batch)
        number += 1
    return closed(directory, log)


def stored_log_with_gaps(path: Path) -> Stored:
    """Four segments as compaction leaves them, the last of them empty."""
    path.mkdir()
    base_offset = 0
    for gaps in ((2,), (1, 2, 4), (3,)):
        laid = lay_some(6, base_offset=base_offset, gaps=gaps)
        base_offset = store_segment(path, laid, index_interval_bytes=150).next_offset
    directory = LogDirectory(path, SETTINGS, filesystem=UnsyncedFilesystem())
    directory.file(base_offset, LOG_SUFFIX).touch()
    return closed(directory, directory.open(LogCheckpoint(base_offset, base_offset, 0)))


def closed(directory: LogDirectory, log: LocalLog) -> Stored:
    batches, damage = survey(log)
    assert not damage
    bases = [segment.base_offset for segment in log.segments()]
    log.close()
    return Stored(directory, directory.content(), log.checkpoint(), batches, bases)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return stored_log(tmp_path / "log")


@pytest.fixture(params=[0, 128], ids=["many sizes", "128 bytes"])
def stored_in_sizes(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    """A flipped bit in the length of a batch of 128 bytes may lead to another batch exactly."""
    return stored_log(tmp_path / "log", request.param)


@pytest.fixture
def stored_with_gaps(tmp_path: Path) -> Stored:
    return stored_log_with_gaps(tmp_path / "log")


def assert_only_lost(log: LocalLog, stored: Stored, place: range, base: int) -> None:
    """One batch is reported as damaged, and all others are read exactly."""
    found, damage = survey(log)
    others = {b: batch for b, batch in stored.batches.items() if b != base}
    assert found == others
    assert len(damage) == 1
    [reported] = log.report.damage
    assert Path(reported.path).name == f"{segment_of(stored, base):020d}.log"
    assert reported.position in place
    assert reported.path not in str(damage[0])
    assert damage[0].next_offset == min((b for b in others if b > base), default=stored.end_offset)
    for other, batch in others.items():
        assert bytes(log.read(other, 1)) == batch


def segment_of(stored: Stored, base: int) -> int:
    return max(b for b in stored.bases if b <= base)


# --- records


@BITS
def test_flipped_byte_in_a_closed_segment_costs_one_batch(
    stored_in_sizes: Stored, bit: int
) -> None:
    for place, base in stored_in_sizes.flips(CLOSED, bit):
        log = stored_in_sizes.open()
        assert log.report.clean
        assert_only_lost(log, stored_in_sizes, place, base)
        log.close()


@BITS
def test_flipped_byte_in_a_compacted_segment_costs_one_batch(
    stored_with_gaps: Stored, bit: int
) -> None:
    for place, base in stored_with_gaps.flips(CLOSED, bit):
        log = stored_with_gaps.open()
        assert_only_lost(log, stored_with_gaps, place, base)
        log.close()


@BITS
def test_flipped_byte_in_a_closed_segment_without_an_index_costs_one_batch(
    stored_in_sizes: Stored, bit: int
) -> None:
    for place, base in stored_in_sizes.flips(CLOSED, bit):
        stored_in_sizes.file(CLOSED, INDEX_SUFFIX).unlink()
        log = stored_in_sizes.open()
        assert_only_lost(log, stored_in_sizes, place, base)
        assert [damage.offset for damage in log.report.damage] == [base]
        log.close()


@BITS
def test_flipped_byte_in_synced_records_costs_one_batch_after_a_crash(
    stored_in_sizes: Stored, bit: int
) -> None:
    end_offset = stored_in_sizes.end_offset
    for place, base in stored_in_sizes.flips(ACTIVE, bit):
        log = stored_in_sizes.open_after_crash(recovery_point=end_offset)
        assert log.end_offset == end_offset
        assert_only_lost(log, stored_in_sizes, place, base)
        assert append(log, batch_of(b"next")) == [end_offset]
        log.close()


@BITS
def test_flipped_byte_in_unsynced_records_ends_the_log_before_it(stored: Stored, bit: int) -> None:
    """What a crash may have torn is cut, as nobody was promised it."""
    for _, base in stored.flips(ACTIVE, bit):
        log = stored.open_after_crash(recovery_point=base)
        assert log.end_offset == base
        kept = {b: batch for b, batch in stored.batches.items() if b < base}
        assert survey(log) == (kept, [])
        assert len(log.report.torn) == 1
        log.close()


def test_sound_batches_behind_a_torn_one_are_set_aside(stored: Stored) -> None:
    for number, (place, base) in enumerate(stored.places(ACTIVE)[:-1]):
        flip(stored.file(ACTIVE), place.start + 61, 0)
        log = stored.open_after_crash(recovery_point=base)
        assert log.end_offset == base
        path = log.report.set_aside[0].kept
        behind = b"".join(stored.batches[b] for _, b in stored.places(ACTIVE)[number + 1 :])
        assert Path(path).read_bytes()[len(place) :] == behind
        # They were written, so a crash does not explain it.
        [told] = log.report.unresolved
        assert f"{stored.file(ACTIVE)}: the log was cut at byte {place.start} " in told
        log.close()
        stored.directory.restore(stored.content)


def test_cut_in_the_last_batch_ends_the_log_before_it(stored: Stored) -> None:
    path = stored.file(ACTIVE)
    place, base = stored.places(ACTIVE)[-1]
    for size in place:
        cut(path, size)
        log = stored.open_after_crash(recovery_point=base)
        assert log.end_offset == base
        # A few zeros behind the last whole batch are what a hole looks like.
        assert len(log.report.torn) == any(stored.content[path][place.start : size])
        assert append(log, batch_of(b"next")) == [base]
        found, damage = survey(log)
        assert list(found) == list(stored.batches)
        assert not damage
        log.close()
        stored.directory.restore(stored.content)


def test_zeros_in_place_of_the_end_of_the_last_batch_end_the_log_before_it(stored: Stored) -> None:
    path = stored.file(ACTIVE)
    place, base = stored.places(ACTIVE)[-1]
    content = stored.content[path]
    for size in place:
        path.write_bytes(content[:size] + bytes(len(content) - size + 1000))
        log = stored.open_after_crash(recovery_point=base)
        lost = log.end_offset == base
        # A batch whose own last bytes are zeros is whole.
        assert lost or not any(content[size:])
        assert path.stat().st_size == (place.start if lost else len(content))
        log.close()
        stored.directory.restore(stored.content)


def test_cut_in_synced_records_is_reported_after_a_crash(stored: Stored) -> None:
    """At every byte, also between batches: what is missing was once on disk."""
    place, base = stored.places(ACTIVE)[-1]
    for size in place:
        cut(stored.file(ACTIVE), size)
        log = stored.open_after_crash(recovery_point=stored.end_offset)
        assert log.end_offset == stored.end_offset
        assert [(d.offset, d.end_offset) for d in log.report.damage] == [(base, log.end_offset)]
        found, _ = survey(log)
        assert list(found) == [b for b in stored.batches if b != base]
        assert append(log, batch_of(b"next")) == [stored.end_offset]
        log.close()
        stored.directory.restore(stored.content)


def test_cut_closed_segment_is_reported_at_every_size(stored: Stored) -> None:
    path = stored.file(CLOSED)
    for size in range(len(stored.content[path])):
        cut(path, size)
        log = stored.open()
        found, damage = survey(log)
        lost = [base for place, base in stored.places(CLOSED) if place.stop > size]
        assert found == {b: batch for b, batch in stored.batches.items() if b not in lost}
        assert [d.next_offset for d in damage] == [stored.bases[CLOSED + 1]]
        with pytest.raises(CorruptData):
            log.read(lost[-1], 1)
        log.close()
        stored.directory.restore(stored.content)


def test_missing_closed_segment_is_reported(stored: Stored) -> None:
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        stored.file(CLOSED, suffix).unlink()
    log = stored.open()
    found, damage = survey(log)
    first, end = stored.bases[CLOSED : CLOSED + 2]
    assert found == {b: batch for b, batch in stored.batches.items() if not first <= b < end}
    assert [d.next_offset for d in damage] == [end]
    log.close()


def test_closed_segment_cut_while_it_is_served_is_reported(stored: Stored) -> None:
    log = stored.open()
    cut(stored.file(CLOSED), 60)
    with pytest.raises(CorruptData) as damage:
        log.read(stored.bases[CLOSED], 1000)
    assert log.report.damage[0].path == str(stored.file(CLOSED))
    assert damage.value.next_offset == stored.bases[CLOSED + 1]
    log.close()


# --- indexes


def assert_served_exactly(log: LocalLog, stored: Stored) -> None:
    """All batches from each offset, and the first record at each time."""
    for base, end in pairwise([*stored.batches, stored.end_offset]):
        for offset in range(base, end):
            assert bytes(log.read(offset, 1)) == stored.batches[base]
    assert survey(log) == (stored.batches, [])
    records = read_all(log)
    for record in records:
        for timestamp_ms in (record.timestamp_ms, record.timestamp_ms + 1):
            assert log.offset_for_time(timestamp_ms) == first_at(records, timestamp_ms)
    newest_ms = max(record.timestamp_ms for record in records)
    assert log.offset_of_max_timestamp() == first_at(records, newest_ms)


def assert_changes_no_answer(stored: Stored, path: Path, contents: Iterable[bytes | None]) -> None:
    """Each content of an index in turn; None for a file that is missing."""
    for content in contents:
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        log = stored.open()
        assert log.report.clean
        assert_served_exactly(log, stored)
        # Appending goes on with the indexes of the active segment.
        append(log, batch_of(b"next", timestamps_ms=[START_MS]))
        again = stored.directory.reopen(log)
        newest = again.offset_of_max_timestamp()
        assert newest is not None
        assert newest.timestamp_ms > START_MS
        assert len(read_all(again)) == stored.end_offset + 1
        again.close()
        stored.directory.restore(stored.content)


@INDEXES
@SEGMENTS
def test_flipped_byte_in_an_index_changes_no_answer(
    stored: Stored, suffix: str, segment: int
) -> None:
    path = stored.file(segment, suffix)
    contents = []
    for position in range(len(stored.content[path])):
        damaged = bytearray(stored.content[path])
        damaged[position] ^= 1 << position % 8
        contents.append(bytes(damaged))
    assert_changes_no_answer(stored, path, contents)


@INDEXES
@SEGMENTS
def test_cut_index_changes_no_answer(stored: Stored, suffix: str, segment: int) -> None:
    path = stored.file(segment, suffix)
    content = stored.content[path]
    assert_changes_no_answer(stored, path, [content[:size] for size in range(len(content))])


@INDEXES
@SEGMENTS
def test_lost_index_changes_no_answer(stored: Stored, suffix: str, segment: int) -> None:
    path = stored.file(segment, suffix)
    zeros = bytes(len(stored.content[path]))
    garbage = b"\xa5" * 4096
    assert_changes_no_answer(stored, path, [None, zeros, stored.content[path] + zeros, garbage])


@INDEXES
def test_index_of_another_segment_changes_no_answer(stored_in_sizes: Stored, suffix: str) -> None:
    """Whole, with good checksums, and of the same size where all batches are."""
    stored = stored_in_sizes
    others = [stored.content[stored.file(number, suffix)] for number in (0, 2, ACTIVE)]
    assert_changes_no_answer(stored, stored.file(CLOSED, suffix), others)


@INDEXES
def test_rebuilt_index_is_what_the_writer_had_written(stored: Stored, suffix: str) -> None:
    path = stored.file(CLOSED, suffix)
    path.unlink()
    stored.open().close()
    assert path.read_bytes() == stored.content[path]
