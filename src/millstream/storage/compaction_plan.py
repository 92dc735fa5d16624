"""The part of a compaction that blocks: read the segments, write new ones, commit.

Runs in a worker thread, on facts that its owner gave it; it touches no state of the log.

The commit is the renaming of each new record file, which is on disk by then, to
`<base offset>-<next offset>.swap`: it stands for all that lay between the two offsets.
After a crash: recovery puts every swap file in its place and removes what was not committed. What
`cleaning_state` says of the pass is written after the commit, so that a crash in between costs a
second pass; only that gaps are to be expected is written before.

Names change front first, and are taken back last first. So the records of a transaction, which lie
before its marker, are gone where the marker is, whatever part of a pass a crash leaves.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from millstream.errors import InvalidRequest
from millstream.settings.log import LogSettings
from millstream.storage.aborted_records import AbortedRecords
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.cleaned_segments import Cleaned, CleanedSegments
from millstream.storage.cleaning_source import (
    Source,
    UnreadableSegment,
    batches_of,
    unreadable_records,
)
from millstream.storage.cleaning_state import (
    CleaningState,
    Horizon,
    add_horizon,
    write_cleaning_state,
)
from millstream.storage.filesystem import NO_SPACE, TOO_MANY_FILES, Filesystem
from millstream.storage.marker_filter import MarkerFilter, awaited_markers
from millstream.storage.record_filter import RecordFilter
from millstream.storage.recovery import CLEANED_MARK
from millstream.storage.segment import LOG_SUFFIX, SWAP_SUFFIX, Segment, segment_stem
from millstream.storage.segment_scan import EVERYTHING, Damage

_log = logging.getLogger(__name__)


class CompactionCancelled(Exception):
    """The owner of the log no longer wants the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What a plan did."""

    cleaned: tuple[Cleaned, ...]
    # Whether the keys of all dirty segments found room. If not, plan again.
    is_finished: bool
    # What could not be read; the segments that hold it were left alone.
    damage: tuple[Damage, ...]
    key_count: int


class CompactionPlan:
    """One pass over the archived segments of a log."""

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        settings: LogSettings,
        *,
        segments: Sequence[Segment],
        log_end_offset: int,
        state: CleaningState,
        damage: Mapping[str, Damage],
        aborted: Sequence[AbortedTransaction],
        unsynced_paths: Sequence[str],
        now_ms: int,
        buffer_bytes: int,
        max_decompressed_bytes: int,
    ) -> None:
        """`damage` is what is known already, by the stem of its segment.

        `aborted` are the aborted transactions with records in the segments, all of which lie below
        the last stable offset; `unsynced_paths` name the files whose markers may not be on disk.
        """
        self._filesystem = filesystem
        self._directory = directory
        self._settings = settings
        self._sources = [Source.of(segment) for segment in segments]
        self._end_offset = self._sources[-1].next_offset
        self._log_end_offset = log_end_offset
        self._state = state
        self._damage = dict(damage)
        self._aborted = tuple(aborted)
        self._unsynced_paths = tuple(unsynced_paths)
        self._now_ms = now_ms
        self._buffer_bytes = buffer_bytes
        self._max_decompressed_bytes = max_decompressed_bytes
        self._is_cancelled = False
        # The owner's, marked until the plan is installed or abandoned.
        self.segments = tuple(segments)
        # Set when the disk broke a promise, so that the log must stop.
        self.fault: OSError | None = None

    def cancel(self) -> None:
        """Let `run` end soon with CompactionCancelled, unless it is about to succeed."""
        self._is_cancelled = True

    def run(self) -> CompactionResult:
        """Compact and commit. Raises OSError, and then the log is as it was."""
        try:
            records, cleaned = self._clean()
            if records.awaits_markers:
                self._sync_markers()
        except BaseException:
            # Nothing of the log was touched, and what cannot be removed is so at the next start.
            with suppress(OSError):
                self._discard()
            raise
        try:
            self._commit(records, cleaned)
        except OSError as error:
            self._undo(error)
            raise
        return CompactionResult(
            cleaned=tuple(cleaned),
            is_finished=records.end_offset >= self._end_offset,
            damage=tuple(self._damage.values()),
            key_count=records.key_count,
        )

    # Reading and writing

    def _clean(self) -> tuple[RecordFilter, list[Cleaned]]:
        while True:
            output = CleanedSegments(
                self._filesystem, self._directory, self._settings, aborted=self._aborted
            )
            try:
                records = self._filter()
                self._learn(records)
                records.end_learning(self._end_offset)
                self._rewrite(records, output)
                return records, output.written
            except UnreadableSegment as fault:
                # Begin again without it: what it holds must neither be copied nor counted on.
                _log.warning("left out of compaction: %(fault)s", {"fault": fault})
                self._damage[fault.source.stem] = fault.damage
                self._discard()
            finally:
                output.close()

    def _filter(self) -> RecordFilter:
        expired_offset = self._expired_offset()
        awaited = awaited_markers(self._filesystem, self._directory) if expired_offset else {}
        return RecordFilter(
            clean_offset=self._state.clean_offset,
            log_end_offset=self._log_end_offset,
            tombstones_below=min(expired_offset, self._first_damaged_offset()),
            aborted=AbortedRecords(self._aborted),
            markers=MarkerFilter(expired_below=expired_offset, awaited=awaited),
            buffer_bytes=self._buffer_bytes,
            max_decompressed_bytes=self._max_decompressed_bytes,
        )

    def _learn(self, records: RecordFilter) -> None:
        """Read the dirty part, for as many keys as there is room."""
        for source in self._readable():
            if source.next_offset <= self._state.clean_offset:
                continue
            for header, batch, position in batches_of(self._filesystem, source):
                self._stop_if_cancelled()
                try:
                    has_room = records.learn(header, batch)
                except InvalidRequest as fault:
                    raise unreadable_records(source, header, position, fault) from fault
                if not has_room:
                    return

    def _rewrite(self, records: RecordFilter, output: CleanedSegments) -> None:
        readable = set(self._readable())
        for source in self._sources:
            if source.base_offset >= records.end_offset:
                break
            if source not in readable:
                output.end_group()
                records.skip()
                continue
            output.begin(source)
            for header, batch, position in batches_of(self._filesystem, source):
                self._stop_if_cancelled()
                try:
                    kept = records.retain(header, batch)
                except InvalidRequest as fault:
                    raise unreadable_records(source, header, position, fault) from fault
                output.add(header, batch, kept, position=position)
        output.end_group()

    def _readable(self) -> list[Source]:
        return [source for source in self._sources if source.stem not in self._damage]

    def _first_damaged_offset(self) -> int:
        """Where old records of a key may linger, so that tombstones above must stay."""
        damaged = (s.base_offset for s in self._sources if s.stem in self._damage)
        return min(damaged, default=EVERYTHING)

    def _expired_offset(self) -> int:
        return self._state.expired_below(self._now_ms, self._settings.delete_retention_ms)

    def _stop_if_cancelled(self) -> None:
        if self._is_cancelled:
            raise CompactionCancelled

    # Committing

    def _sync_markers(self) -> None:
        """Have the ends of transactions on disk that the pass counts on. Raises OSError."""
        try:
            for path in self._unsynced_paths:
                file = self._filesystem.open(path)
                try:
                    file.sync()
                finally:
                    file.close()
            if self._unsynced_paths:
                self._filesystem.sync_directory(self._directory)
        except OSError as error:
            if error.errno not in TOO_MANY_FILES:
                self.fault = error
            raise

    def _commit(self, records: RecordFilter, cleaned: list[Cleaned]) -> None:
        planned = max(self._state.planned_offset, self._end_offset)
        state = replace(self._state, planned_offset=planned)
        if cleaned and state != self._state:
            write_cleaning_state(self._filesystem, self._directory, state)
        for segment in cleaned:
            stem = segment_stem(self._directory, segment.base_offset) + CLEANED_MARK
            self._filesystem.rename(stem + LOG_SUFFIX, swap_path(self._directory, segment))
        if cleaned:
            # Durable: from here on a crash ends with all new segments in place.
            self._filesystem.sync_directory(self._directory)
        write_cleaning_state(self._filesystem, self._directory, self._state_after(records, state))

    def _state_after(self, records: RecordFilter, state: CleaningState) -> CleaningState:
        expired_offset = self._expired_offset()
        horizons = tuple(h for h in state.horizons if h.end_offset > expired_offset)
        if records.saw_mortals:
            horizons = add_horizon(horizons, Horizon(records.end_offset, self._now_ms))
        return replace(
            state,
            clean_offset=max(state.clean_offset, records.end_offset),
            expired_offset=expired_offset,
            horizons=horizons,
        )

    def _undo(self, error: OSError) -> None:
        """Take a commit back. If that fails, or a sync may have, the log can promise nothing."""
        if error.errno not in NO_SPACE:
            self.fault = error
        try:
            self._discard()
            self._filesystem.sync_directory(self._directory)
        except OSError as second:
            self.fault = self.fault or second

    def _discard(self) -> None:
        for name in sorted(self._filesystem.sizes(self._directory), reverse=True):
            if CLEANED_MARK in name or name.endswith(SWAP_SUFFIX):
                self._filesystem.remove(os.path.join(self._directory, name))


def swap_path(directory: str, segment: Cleaned) -> str:
    """The name of a new record file that is committed and not in its place yet."""
    name = f"{segment.base_offset:020d}-{segment.next_offset:020d}{SWAP_SUFFIX}"
    return os.path.join(directory, name)
