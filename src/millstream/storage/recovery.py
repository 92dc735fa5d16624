"""Brings one log's directory from whatever a stop left behind to a state that can be served.

After a clean stop the checkpoint tells where the log ends, and nothing is read. After a crash:

1. A compaction that had reached its commit point is finished; all other leftovers are removed.
2. Segments that end before the recovery point were known to be on disk and are taken as they are.
   The checkpoint tells that point, or the newest snapshot of producers, if it is further on.
3. The rest is scanned. Up to the recovery point damage is reported and kept; after it, the log
   ends before the first batch that is not sound, since a crash tears only what was not synced.
4. What remains is synced, and the indexes of what was scanned are written anew. What tells of
   aborted transactions is so later (see `producer_replay`), from the newest snapshot on; a segment
   that ends before it had its file synced first.

Nothing that may be somebody's data is thrown away in silence: where sound batches lie behind the
place where the log is cut, the bytes are set aside in a `.cut` file, and the report says so.
"""

from __future__ import annotations

import itertools
import os
import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from millstream.errors import InvalidRequest
from millstream.settings.log import LogSettings
from millstream.storage.batch_walk import Place, checked_batch, next_good_batch
from millstream.storage.cleaning_state import read_cleaning_state
from millstream.storage.filesystem import (
    File,
    Filesystem,
    map_whole,
    replace_content,
    write_atomically,
)
from millstream.storage.log_start import read_log_start
from millstream.storage.producer_snapshots import ProducerSnapshots
from millstream.storage.recovery_report import RecoveryReport, SetAside
from millstream.storage.segment import (
    ABORTED_SUFFIX,
    CUT_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    SegmentState,
    base_offset_of,
    segment_stem,
)
from millstream.storage.segment_scan import (
    EVERYTHING,
    Damage,
    ScanRange,
    SegmentScan,
    scan_segment,
)

CLEANED_MARK = ".cleaned"
# A file of this name says that a sync failed in a process before, so that pages which the kernel
# calls clean may not be on disk. It need not be durable: neither are those pages.
SYNC_FAILED = "sync-failed"
TEMPORARY_SUFFIX = ".tmp"

_SWAP_NAME = re.compile(r"(\d{20})-(\d{20})" + re.escape(SWAP_SUFFIX))
_WINDOW_BYTES = 1 << 20
_SECTOR_BYTES = 512


class LogCheckpoint(NamedTuple):
    """What was written down about a log before the last stop."""

    recovery_point: int
    # Where a clean stop left the log; -1 when it did not stop cleanly.
    end_offset: int = -1
    active_size: int = 0
    # Where the active segment began then; -1 where that is not known.
    active_base: int = -1
    # Where the first segment began.
    first_base: int = 0


@dataclass(slots=True)
class RecoveredLog:
    """A directory that is ready to be served."""

    segments: list[Segment]
    # Bytes of the active segment from here on have just been proved by their checksums.
    trusted_from: int
    report: RecoveryReport
    # Compaction may have left gaps between offsets below this one.
    gaps_below: int


def recover_log(
    filesystem: Filesystem,
    directory: str,
    *,
    name: str,
    settings: LogSettings,
    checkpoint: LogCheckpoint | None,
    now_ms: int,
) -> RecoveredLog:
    """Make a log's directory ready. Raises OSError when the disk fails."""
    return _Recovery(filesystem, directory, name, settings, checkpoint, now_ms).run()


def mark_sync_failed(filesystem: Filesystem, directory: str) -> None:
    """Say so to the next start; if not even this can be written, then there is none to be had."""
    with suppress(OSError):
        replace_content(filesystem, os.path.join(directory, SYNC_FAILED), b"")


def directories_of(directory: str, name: str) -> list[str]:
    """A log's directory, and those above it that hold the parts of its name."""
    directories = [directory]
    for _ in name.split("/"):
        directories.append(os.path.dirname(directories[-1]))
    return directories


def rebuild_indexes(
    filesystem: Filesystem, segment: Segment, *, index_interval_bytes: int
) -> SegmentScan:
    """Write a segment's indexes anew from its record file."""
    scan = scan_segment(
        map_whole(filesystem, segment.log_path)[: segment.size],
        ScanRange(
            path=segment.log_path,
            base_offset=segment.base_offset,
            limit_offset=segment.next_offset,
            index_interval_bytes=index_interval_bytes,
        ),
    )
    _write_indexes(filesystem, segment, scan)
    return scan


def _write_indexes(filesystem: Filesystem, segment: Segment, scan: SegmentScan) -> None:
    indexes = scan.indexes
    closed = segment.state is not SegmentState.ACTIVE
    if closed:
        indexes.seal(segment.next_offset, segment.size, is_transactional=scan.is_transactional)
    else:
        indexes.seal_times(segment.next_offset)
    segment.max_timestamp_ms = indexes.max_timestamp_ms
    for path, entries in (
        (segment.index_path, bytes(indexes.offset_entries)),
        (segment.time_index_path, bytes(indexes.time_entries)),
    ):
        if closed:
            write_atomically(filesystem, path, entries)
        else:
            # Not synced: after a crash it is written anew in any case.
            replace_content(filesystem, path, entries)


class _Recovery:
    """The steps of one recovery, and what they share."""

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        name: str,
        settings: LogSettings,
        checkpoint: LogCheckpoint | None,
        now_ms: int,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._settings = settings
        self._checkpoint = checkpoint
        self._snapshot_offset = (
            ProducerSnapshots(filesystem, directory).newest(EVERYTHING).snapshot_offset
        )
        # Compaction leaves gaps, only below an offset that it wrote down first.
        self._gaps_below = read_cleaning_state(filesystem, directory).planned_offset
        self._recovery_point = max(
            checkpoint.recovery_point if checkpoint else 0,
            self._gaps_below,
            # A snapshot is written only after all that it speaks of was synced.
            self._snapshot_offset,
        )
        self._now_ms = now_ms
        self._report = RecoveryReport(name)
        self._trusted_from = 0
        self._sync_failed = False
        self._has_expired = False
        self._is_torn = True

    def run(self) -> RecoveredLog:
        self._finish_swaps()
        sizes = self._remove_leftovers()
        self._sync_failed = SYNC_FAILED in sizes
        bases = sorted(base for n in sizes if (base := base_offset_of(n, LOG_SUFFIX)) is not None)
        if not bases:
            segments = [self._first_segment()]
        else:
            segments = self._segments(bases, sizes)
            self._check_first(segments[0])
            if self._is_clean(segments[-1]):
                self._open_clean(segments)
            else:
                segments = self._scan_from_recovery_point(segments)
            self._rebuild_missing_indexes(segments, sizes)
        return RecoveredLog(segments, self._trusted_from, self._report, self._gaps_below)

    def _first_segment(self) -> Segment:
        """A log without segments begins where it is known to have reached, never before."""
        if self._recovery_point:
            self._report.damage.append(
                Damage(
                    path=self._directory,
                    position=0,
                    end_position=0,
                    offset=0,
                    end_offset=self._recovery_point,
                    reason="all segments are missing",
                )
            )
            # That they are must last, if their removal was not synced.
            self._filesystem.sync_directory(self._directory)
        self._report.clean = True
        return self._segment(self._recovery_point, self._recovery_point, 0, SegmentState.ACTIVE)

    def _check_first(self, first: Segment) -> None:
        """Report segments that are missing before the first one, and were not deleted by us."""
        known = self._checkpoint.first_base if self._checkpoint else 0
        begin = max(known, read_log_start(self._filesystem, self._directory))
        if begin < first.base_offset and not self._has_expired:
            self._report.damage.append(
                Damage(
                    path=self._directory,
                    position=0,
                    end_position=0,
                    offset=begin,
                    end_offset=first.base_offset,
                    reason=f"the segments before offset {first.base_offset} are missing",
                )
            )

    def _segments(self, bases: list[int], sizes: dict[str, int]) -> list[Segment]:
        nexts = [*bases[1:], EVERYTHING]
        segments = [
            self._segment(base, following, sizes[f"{base:020d}{LOG_SUFFIX}"], SegmentState.ARCHIVED)
            for base, following in zip(bases, nexts, strict=True)
        ]
        segments[-1].state = SegmentState.ACTIVE
        return segments

    def _segment(self, base: int, following: int, size: int, state: SegmentState) -> Segment:
        return Segment(
            stem=segment_stem(self._directory, base),
            base_offset=base,
            next_offset=following,
            size=size,
            state=state,
            closed_ms=self._now_ms,
        )

    # Clean stop

    def _is_clean(self, active: Segment) -> bool:
        known = self._checkpoint
        if known is None or known.end_offset < 0:
            return False
        is_active = known.active_base in (-1, active.base_offset)
        is_whole = known.end_offset >= active.base_offset and known.active_size == active.size
        if is_active and is_whole:
            return True
        left = f"a clean stop left {known.active_size}"
        if known.active_base >= 0:
            left += f" in the segment of offset {known.active_base}"
        self._report.notes.append(f"{active.log_path} has {active.size} bytes where {left}")
        return False

    def _open_clean(self, segments: list[Segment]) -> None:
        assert self._checkpoint is not None
        self._report.clean = True
        segments[-1].next_offset = self._checkpoint.end_offset
        self._trusted_from = segments[-1].size

    def _rebuild_missing_indexes(self, segments: list[Segment], sizes: dict[str, int]) -> None:
        for segment in segments:
            name = os.path.basename(segment.stem)
            scanned = segment.max_timestamp_ms is not None
            present = name + INDEX_SUFFIX in sizes and name + TIME_INDEX_SUFFIX in sizes
            if segment.size and not scanned and not present:
                scan = rebuild_indexes(
                    self._filesystem,
                    segment,
                    index_interval_bytes=self._settings.index_interval_bytes,
                )
                self._report.damage += scan.damage
                self._report.rebuilt_indexes.append(segment.index_path)

    # Crash

    def _scan_from_recovery_point(self, segments: list[Segment]) -> list[Segment]:
        # The segment that ends at the recovery point comes too: its records were synced while it
        # was active, but its indexes may not have been.
        first = bisect_left(segments, self._recovery_point, key=lambda s: s.base_offset) - 1
        first = max(first, 0)
        kept = segments[:first]
        for number in range(first, len(segments)):
            segment = segments[number]
            whole = self._scan(segment, last=number == len(segments) - 1)
            kept.append(segment)
            if not whole:
                self._drop(segments[number + 1 :])
                break
        active = kept[-1]
        if active.state is not SegmentState.ACTIVE:
            end = active.next_offset
            kept.append(self._segment(end, end, 0, SegmentState.ACTIVE))
            self._trusted_from = 0
        # Also when no name changed: the process before may have left names unsynced.
        for directory in directories_of(self._directory, self._report.log):
            self._filesystem.sync_directory(directory)
        if self._sync_failed:
            self._remove(SYNC_FAILED)
        return kept

    def _scan(self, segment: Segment, *, last: bool) -> bool:
        """Scan and repair one segment; whether the one after it continues it."""
        file = self._filesystem.open(segment.log_path)
        try:
            log = file.map()
            scan = scan_segment(
                log,
                ScanRange(
                    path=segment.log_path,
                    base_offset=segment.base_offset,
                    limit_offset=segment.next_offset,
                    synced_offset=self._recovery_point,
                    check_from_offset=self._recovery_point,
                    index_interval_bytes=self._settings.index_interval_bytes,
                ),
            )
            whole = not last and (
                scan.end.offset == segment.next_offset
                or scan.end.offset < segment.next_offset <= self._recovery_point
            )
            # Most of an active segment is room that nobody wrote to.
            self._cut(segment, log[: max(file.written_end(), scan.end.position)], scan)
            # A closed segment's size may be unsynced even where its records are not.
            if not last or scan.end.position < len(log) or scan.end.offset > self._recovery_point:
                file.resize(scan.end.position)
                if self._sync_failed:
                    _write_again(file, scan.checked_from, scan.end.position)
                file.sync()
        finally:
            file.close()
        segment.size = scan.end.position
        if not whole:
            # Appends must follow on sound batches, so a damaged segment takes none.
            segment.state = SegmentState.ARCHIVED if scan.damage else SegmentState.ACTIVE
            segment.next_offset = scan.end.offset
            self._trusted_from = scan.checked_from
        if not whole or segment.next_offset > self._snapshot_offset:
            # To be written anew once the producers' state is known, or when the segment is closed.
            self._filesystem.remove(segment.aborted_path)
        _write_indexes(self._filesystem, segment, scan)
        self._report.scanned_bytes += scan.end.position - scan.checked_from
        self._report.batches += scan.batches
        self._report.damage += scan.damage
        return whole

    def _cut(self, segment: Segment, log: memoryview, scan: SegmentScan) -> None:
        """Tell what lies behind the end of the log, and set it aside if it may be data."""
        position, offset = scan.end
        end = _end_of_content(log, position)
        if end == position:
            return
        self._report.torn.append(
            f"{end - position} bytes of {segment.log_path} "
            f"from byte {position} (offset {offset}): {scan.torn}"
        )
        self._is_torn = _has_hole(log, scan.end)
        last_sound = max(_ends_of_sound_batches(log, scan.end), default=0)
        if last_sound:
            # A sound batch may well end in zeros.
            content = bytes(log[position : max(end, last_sound)])
            self._set_aside(segment, content, position, offset, scan.torn)

    def _drop(self, segments: list[Segment]) -> None:
        """Take segments out of the log that no longer continue it."""
        for segment in reversed(segments):
            log = map_whole(self._filesystem, segment.log_path)
            end = _end_of_content(log, 0)
            if end:
                first = Place(0, segment.base_offset)
                last_sound = max(_ends_of_sound_batches(log, first), default=0)
                content = bytes(log[: max(end, last_sound)])
                reason = "the segment before it was cut"
                self._set_aside(segment, content, 0, segment.base_offset, reason)
            for suffix in SEGMENT_SUFFIXES:
                self._remove(os.path.basename(segment.stem) + suffix)

    def _set_aside(
        self, segment: Segment, content: bytes, position: int, offset: int, reason: str
    ) -> None:
        taken = self._filesystem.sizes(self._directory)
        names = (f"{segment.log_path}{CUT_SUFFIX}{number or ''}" for number in itertools.count())
        path = next(name for name in names if os.path.basename(name) not in taken)
        write_atomically(self._filesystem, path, content)
        cut = SetAside(
            segment.log_path, position, offset, reason, len(content), path, is_torn=self._is_torn
        )
        self._report.set_aside.append(cut)

    # Leftovers

    def _finish_swaps(self) -> None:
        """A swap file is the commit point of a compaction: put it in place of what it replaces."""
        names = self._filesystem.sizes(self._directory)
        for name in names:
            match = _SWAP_NAME.fullmatch(name)
            if match is None:
                continue
            first, end = int(match[1]), int(match[2])
            for other in names:
                for suffix in SEGMENT_SUFFIXES:
                    base = base_offset_of(other, suffix)
                    if base is not None and first <= base < end:
                        self._remove(other)
            self._filesystem.rename(
                os.path.join(self._directory, name),
                segment_stem(self._directory, first) + LOG_SUFFIX,
            )
            self._filesystem.sync_directory(self._directory)
            self._report.notes.append(f"finished the compaction of offsets {first} to {end - 1}")

    def _remove_leftovers(self) -> dict[str, int]:
        sizes = self._filesystem.sizes(self._directory)
        self._has_expired = any(name.endswith(DELETED_SUFFIX) for name in sizes)
        for name in list(sizes):
            if _is_leftover(name, sizes):
                self._remove(name)
                del sizes[name]
        return sizes

    def _remove(self, name: str) -> None:
        self._filesystem.remove(os.path.join(self._directory, name))


def _write_again(file: File, position: int, end: int) -> None:
    """Make bytes dirty that the kernel takes to be on disk since it failed to write them."""
    while position < end:
        content = file.read(position, min(_WINDOW_BYTES, end - position))
        file.write([content], position)
        position += len(content)


def _is_leftover(name: str, sizes: dict[str, int]) -> bool:
    if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)) or CLEANED_MARK in name:
        return True
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX):
        base = base_offset_of(name, suffix)
        if base is not None:
            return f"{base:020d}{LOG_SUFFIX}" not in sizes
    return False


def _ends_of_sound_batches(log: memoryview, place: Place) -> Iterator[int]:
    """Where each sound batch ends that lies at a place or behind it, whatever is in between."""
    position, offset = place
    while True:
        try:
            position += checked_batch(log, position, len(log)).size_bytes
            yield position
        except InvalidRequest:
            torn = Place(position, offset)
            found = next_good_batch(log, torn, end=len(log), limit_offset=EVERYTHING)
            if found is None:
                return
            position = found.position


def _has_hole(log: memoryview, place: Place) -> bool:
    """Whether bytes that no disk has written lie between a place and the next sound batch.

    A crash leaves such holes, in whole sectors of a write, where unsynced writes reached the disk
    in another order. Without one, the bytes were written, and have changed since.
    """
    found = next_good_batch(log, place, end=len(log), limit_offset=EVERYTHING)
    end = found.position if found is not None else len(log)
    sector = -(-place.position // _SECTOR_BYTES) * _SECTOR_BYTES
    first = bytes(log[place.position : min(sector, end)])
    # A batch begins with its offset, and its first bytes may be zeros.
    is_written = first == place.offset.to_bytes(8, "big")[: len(first)]
    if not is_written and not any(first):
        return True
    sectors = range(sector, end, _SECTOR_BYTES)
    return any(not any(log[start : min(start + _SECTOR_BYTES, end)]) for start in sectors)


def _end_of_content(log: memoryview, position: int) -> int:
    """The position behind the last byte that is not zero."""
    for end in range(len(log), position, -_WINDOW_BYTES):
        start = max(position, end - _WINDOW_BYTES)
        content = bytes(log[start:end]).rstrip(b"\0")
        if content:
            return start + len(content)
    return position
