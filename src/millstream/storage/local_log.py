"""One partition's log in a directory of segment files: the `local` engine.

Invariant: segments follow each other without overlap, and only the last one takes appends.
Offsets in memory run ahead of the disk: what lies below `synced_offset` survives a crash.
After a crash: see `recovery`. Producer state is loaded from the newest snapshot that the log
still reaches and brought up to date from the batches behind it. A disk that breaks a promise stops
the log for good; see `log_health`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from millstream.clock import Clock
from millstream.errors import (
    Conflict,
    CorruptData,
    MillstreamError,
    OffsetOutOfRange,
    RecordsDamaged,
    StorageFailure,
    Unavailable,
)
from millstream.settings.log import LogSettings
from millstream.storage.aborted_history import AbortedHistory
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.active_segment import ActiveSegment
from millstream.storage.batch_admission import Outcome, Run, admit, fail_run
from millstream.storage.closed_segments import ClosedSegments
from millstream.storage.filesystem import NO_SPACE, TOO_MANY_FILES, Filesystem
from millstream.storage.log_health import LogHealth
from millstream.storage.log_start import settled_log_start, write_log_start
from millstream.storage.log_sync import LogSync, SyncState
from millstream.storage.log_walk import damage_in
from millstream.storage.partition_log import SyncTask, TimedOffset
from millstream.storage.producer_replay import restore_producers
from millstream.storage.recovery import (
    LogCheckpoint,
    directories_of,
    recover_log,
)
from millstream.storage.recovery_report import RecoveryReport
from millstream.storage.retention import is_too_old, past_retention
from millstream.storage.segment import Segment, SegmentState, new_segment, rename_deleted
from millstream.storage.segment_age import segment_max_ms
from millstream.storage.segment_cache import SegmentCache
from millstream.storage.segment_chain import SegmentChain
from millstream.storage.segment_scan import Damage
from millstream.storage.time_search import first_in_chain, first_of_largest
from millstream.storage.truncation import Cut, drop_from, find_cut

_log = logging.getLogger(__name__)

# A full segment holds three open files until it is synced. Past this many, appends wait for it.
_MAX_FULL_SEGMENTS = 8


class LocalLog:
    """A partition log on the local filesystem."""

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        *,
        name: str,
        settings: LogSettings,
        clock: Clock,
        cache: SegmentCache,
        checkpoint: LogCheckpoint | None = None,
        max_decompressed_bytes: int = 128 << 20,
        before_truncate: Callable[[], None] = lambda: None,
    ) -> None:
        """Open a log, and create its directory if there is none.

        `before_truncate` must make a lower `checkpoint()` durable before records are dropped.
        Raises OSError when the disk fails, CorruptData when it cannot tell where the log begins.
        """
        self._filesystem = filesystem
        self._directory = directory
        self._name = name
        self._settings = settings
        self._segment_max_ms = segment_max_ms(settings, name, 0)
        self._clock = clock
        self._max_decompressed_bytes = max_decompressed_bytes
        self._before_truncate = before_truncate
        self._closed_segments = ClosedSegments(
            filesystem, cache, name=name, index_interval_bytes=settings.index_interval_bytes
        )
        self._health = LogHealth(filesystem, directory, name=name, on_stop=self._distrust)
        self.appended_bytes = 0  # by this process
        filesystem.make_directory(directories_of(directory, name)[-1])
        # Its name becomes durable with the first sync, which covers the directories that hold it.
        filesystem.make_directory(directory, durable=False)
        self._load(checkpoint)

    def _load(self, checkpoint: LogCheckpoint | None) -> None:
        recovered = recover_log(
            self._filesystem,
            self._directory,
            name=self._name,
            settings=self._settings,
            checkpoint=checkpoint,
            now_ms=self._clock.now_ms(),
        )
        self._closed_segments.report = recovered.report
        self._end_offset = recovered.segments[-1].next_offset
        self._durable = SyncState(
            self._filesystem, directories_of(self._directory, self._name), self._end_offset
        )
        active = self._activate(recovered.segments[-1], trusted_from=recovered.trusted_from)
        self._chain = SegmentChain(
            recovered.segments, self._closed_segments, active, gaps_below=recovered.gaps_below
        )
        snapshots = self._durable.snapshots
        self._aborted = AbortedHistory(self._filesystem, self._chain, snapshots, self.report)
        snapshots.drop_past(self._end_offset)
        # Producers are remembered by their batches, also by those that were deleted since.
        restored = restore_producers(
            self._filesystem,
            self._chain,
            snapshots,
            now_ms=self._clock.now_ms(),
            on_damage=self.report.add,
        )
        self.producers = restored.states
        self.producers.max_count = self._settings.producer_ids_max_count
        self._snapshot_offset = restored.snapshot_offset
        self.report.notes += restored.faults
        self._start_offset = settled_log_start(
            self._filesystem,
            self._directory,
            base_offset=self._chain.base_offset,
            end_offset=self._end_offset,
        )

    # What there is

    @property
    def name(self) -> str:
        return self._name

    @property
    def start_offset(self) -> int:
        return self._start_offset

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def synced_offset(self) -> int:
        return self._durable.synced_offset

    @property
    def last_stable_offset(self) -> int:
        return self.producers.transactions.stable_offset(self._end_offset, self._start_offset)

    @property
    def settings(self) -> LogSettings:
        return self._settings

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def filesystem(self) -> Filesystem:
        return self._filesystem

    @property
    def failure(self) -> StorageFailure | None:
        """Why the log has stopped, if it has."""
        return self._health.failure

    @property
    def dirty_since_ms(self) -> int | None:
        """Since when something waits to be synced; None when nothing does."""
        return self._durable.dirty_since_ms

    @property
    def report(self) -> RecoveryReport:
        """What opening the log found, and what had to be mended since."""
        return self._closed_segments.report

    def copies(self) -> tuple[LocalLog, ...]:
        """Further logs that hold the same records; see `mirrored_log`."""
        return ()

    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first."""
        return tuple(self._chain.segments)

    def checkpoint(self) -> LogCheckpoint:
        """What to write down, so that the next opening need not find it out."""
        known = LogCheckpoint(self.synced_offset, first_base=self._chain.base_offset)
        if not self._health.is_closed or self.failure is not None:
            return known
        active = self._chain.active
        return known._replace(
            end_offset=self._end_offset,
            active_size=active.size,
            active_base=active.segment.base_offset,
        )

    # Appending

    def append(self, batches: Sequence[bytearray | memoryview]) -> list[Outcome]:
        """See PartitionLog. Cost: benchmarks/append.py."""
        outcomes: list[Outcome] = []
        now_ms = self._clock.now_ms()
        while len(outcomes) < len(batches):
            try:
                self._health.raise_if_stopped()
                self._roll_if_old(now_ms)
                self._append_run(batches, outcomes, now_ms)
                if len(outcomes) < len(batches):
                    self._roll(now_ms)
            except (OSError, MillstreamError) as error:
                failure = self._health.failed(error, "append")
                outcomes += [failure] * (len(batches) - len(outcomes))
        return outcomes

    def _append_run(
        self, batches: Sequence[bytearray | memoryview], outcomes: list[Outcome], now_ms: int
    ) -> None:
        if self._chain.active.open_writer() is None and not self._chain.active.size:
            # The files of a new log are created by its first append.
            self._durable.note_names()
        writer = self._chain.active.writer()
        run = Run(self._end_offset, writer.size)
        first = len(outcomes)
        self.producers.mark()
        admit(batches, outcomes, self.producers, run, settings=self._settings, now_ms=now_ms)
        if not run.parts:
            return
        try:
            writer.append(run.parts, run.end_position - writer.size, run.placed)
        except OSError as error:
            self.producers.rollback()
            failure = self._health.failed(error, "append")
            fail_run(outcomes, first, run, failure)
            # Nor is what comes after it: it would leave a gap in its producer's sequence.
            outcomes += [failure] * (len(batches) - len(outcomes))
            return
        if run.base_offset == writer.segment.base_offset:
            self._chain.active.set_begun(now_ms)
        self._end_offset = writer.segment.next_offset = run.end_offset
        self.appended_bytes += run.end_position - run.base_position
        self._durable.note_append(now_ms)

    def roll_if_due(self) -> None:
        """Close the active segment if it is old enough, or all of it is past its retention."""
        now_ms = self._clock.now_ms()
        try:
            self._health.raise_if_stopped()
            self._roll_if_old(now_ms)
            active = self._chain.active
            if active.size and is_too_old(self.age_ms(active.segment), self._settings):
                self._roll(now_ms)
        except OSError as error:
            raise self._health.failed(error, "roll") from error

    def _roll_if_old(self, now_ms: int) -> None:
        active = self._chain.active
        if active.size and now_ms - active.begun_ms(now_ms) >= self._segment_max_ms:
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> None:
        """Close the active segment and begin the next. Raises OSError and then changes nothing."""
        base = self._end_offset
        fresh = self._activate(new_segment(self._directory, base))
        full = self._chain.active.writer()
        try:
            fresh.writer()
            full.seal(self.producers.transactions.index(base))
        except OSError:
            fresh.discard()
            raise
        full.segment.state = SegmentState.FULL
        full.segment.closed_ms = now_ms
        self.producers.transactions.begin_segment(base)
        self._durable.note_full(full, base, self.producers.copy())
        self._durable.note_names()
        self._chain.add(fresh)
        self._segment_max_ms = segment_max_ms(self._settings, self._name, base)
        if len(self._durable.full) > _MAX_FULL_SEGMENTS:
            self.sync()

    def _activate(self, segment: Segment, *, trusted_from: int = 0) -> ActiveSegment:
        return ActiveSegment(
            self._filesystem,
            segment,
            self._settings,
            self._closed_segments,
            self._durable.retire,
            trusted_from=trusted_from,
        )

    # Reading

    def read(self, offset: int, max_bytes: int, *, below: int | None = None) -> memoryview:
        """See PartitionLog. Cost: benchmarks/read.py."""
        if self._health.is_closed:
            self._health.raise_if_stopped()
        if not self._start_offset <= offset <= self._end_offset:
            raise self._out_of_range(offset, self._end_offset)
        try:
            return self._chain.read(offset, max_bytes, below=below)
        except CorruptData as damage:
            if (found := self.report.add(damage)) is not None:
                _log.error("%(log)s: DAMAGE: %(damage)s", {"log": self._name, "damage": found})
            # Clients are told where to go on, and nothing of the broker's files.
            raise RecordsDamaged(
                log=self._name, offset=offset, next_offset=damage.next_offset, reason=damage.reason
            ) from damage

    def recheck(self, offset: int) -> None:
        """Prove a batch once more that was found to be damaged when it was decoded.

        Raises RecordsDamaged, after it has been reported.
        """
        self._chain.distrust(offset)
        if self._start_offset <= offset < self._end_offset:
            self.read(offset, 1)

    def prove(self) -> list[Damage]:
        """Read every batch; returns all that is damaged, which the report then tells."""
        for damage in damage_in(self._chain, self._start_offset):
            self.report.add(damage)
        return self.report.damage

    def count_messages(self, view: memoryview | bytes) -> int:
        """How many messages there are in what was read just now; markers are none."""
        return self._chain.count_messages(view, self.producers.transactions)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """See PartitionLog."""
        if self._health.is_closed:
            self._health.raise_if_stopped()
        return self._aborted.find(from_offset, to_offset, self.producers.transactions)

    @property
    def has_aborted_transactions(self) -> bool:
        return self.producers.transactions.has_aborted

    def _out_of_range(self, offset: int, end_offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            offset=offset, start_offset=self._start_offset, end_offset=end_offset
        )

    def offset_for_time(self, timestamp_ms: int) -> TimedOffset | None:
        """See PartitionLog."""
        return first_in_chain(
            self, self._chain, timestamp_ms, limit_bytes=self._max_decompressed_bytes
        )

    def offset_of_max_timestamp(self) -> TimedOffset | None:
        """See PartitionLog."""
        # What is newest may have been deleted, from the front of the first segment.
        return self.offset_for_time(self._chain.newest_timestamp_ms) or first_of_largest(
            self, limit_bytes=self._max_decompressed_bytes
        )

    def max_timestamp(self, segment: Segment) -> int:
        """The largest timestamp in a segment; -1 when its records carry none."""
        return self._chain.max_timestamp(segment)

    # Making durable

    def begin_sync(self) -> LogSync:
        """See PartitionLog. Raises StorageFailure when the log has stopped."""
        self._health.raise_if_stopped()
        return self._durable.begin(self._chain.active.open_writer(), self._end_offset)

    def finish_sync(self, task: SyncTask, error: OSError | None) -> None:
        """See PartitionLog."""
        assert isinstance(task, LogSync)
        if error is not None and error.errno in TOO_MANY_FILES and not self.failure:
            self._durable.take_back(task)
            return
        if error is not None and not self.is_closed:
            self.stop(error, "sync")
        self._durable.finish(task, succeeded=error is None and self.failure is None)

    def sync(self) -> None:
        """Make all appended so far durable, here and now. Raises StorageFailure, TooManyFiles."""
        task = self.begin_sync()
        error: OSError | None = None
        try:
            task.run()
        except OSError as caught:
            error = caught
        self.finish_sync(task, error)
        self._health.raise_if_stopped()
        if error is not None:
            raise self._health.failed(error, "sync")

    def close(self) -> None:
        """See PartitionLog. Raises StorageFailure when what is left cannot be made durable."""
        if self.is_closed:
            return
        try:
            if self.failure is None:
                self._pause()
        finally:
            self._health.is_closed = True
            self._close_files()

    def discard(self) -> None:
        """Let go of the files of a log that is no longer wanted; nothing is made durable."""
        self._health.is_closed = True
        self._close_files()

    def end_syncs(self) -> None:
        """Return when no sync is under way, and let none begin. Any thread."""
        self._durable.end()

    def reconfigure(self, settings: LogSettings) -> None:
        """Go on with other settings, from now."""
        self._settings = self._chain.active.settings = settings
        self._segment_max_ms = segment_max_ms(settings, self._name, self._end_offset)
        self._closed_segments.index_interval_bytes = settings.index_interval_bytes

    @property
    def is_closed(self) -> bool:
        return self._health.is_closed

    def _pause(self) -> None:
        try:
            active = self._chain.active
            writer = active.writer() if active.is_unsynced else active.open_writer()
            if writer is not None:
                writer.pause()
            self.sync()
            if writer is not None:
                writer.sync()
            is_sure = not self.producers.transactions.doubtful
            if self._snapshot_offset != self._end_offset and is_sure:
                state = self.producers.snapshot(self._end_offset)
                self._durable.snapshots.write(self._end_offset, state)
                self._filesystem.sync_directory(self._directory)
        except (OSError, Unavailable) as error:
            raise self.stop(error, "close") from error

    def rest(self) -> None:
        """Let go of the files of an idle log; the next append or read opens them again."""
        if self.failure or self._durable.is_under_way or self.dirty_since_ms is not None:
            return
        try:
            self._chain.active.rest()
        except OSError as error:
            raise self._health.failed(error, "close") from error

    def _close_files(self) -> None:
        self._chain.close()
        self._durable.close()

    def stop(self, error: OSError | Unavailable, operation: str) -> StorageFailure:
        """Take no more writes, for good; returns what to raise."""
        return self._health.stop(error, operation)

    def _distrust(self) -> None:
        if writer := self._chain.active.open_writer():
            writer.distrust()

    # Taking out

    def expire(self, *, held_from: int | None = None) -> list[str]:
        """Forget what is past its retention: segments, and producers that fell silent.

        Segments before the start of the log go too. Their files are renamed; the answer names
        them, to be removed when no reader can be late. What a group has still to read begins at
        `held_from`; it stays as long as the settings allow.
        """
        now_ms = self._clock.now_ms()
        self.producers.expire(now_ms=now_ms, expiration_ms=self._settings.producer_id_expiration_ms)
        return self._take_out(past_retention(self, self._settings, held_from=held_from).doomed)

    def age_ms(self, segment: Segment) -> int:
        """How old the newest record of a segment is."""
        return self._chain.age_ms(segment, self._clock.now_ms())

    def _take_out(self, doomed: Sequence[Segment]) -> list[str]:
        """Rename the files of segments that leave the log; returns their new paths."""
        paths: list[str] = []
        if doomed and doomed[-1].next_offset > self._start_offset:
            # Otherwise the next start reports them as missing. A full disk must not stop deletion.
            try:
                write_log_start(self._filesystem, self._directory, doomed[-1].next_offset)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise self.stop(error, "delete") from error
        try:
            for segment in doomed:
                paths += rename_deleted(self._filesystem, segment)
        except OSError as error:
            raise self.stop(error, "delete") from error
        finally:
            self._durable.note_names()
            self._chain.drop_deleted()
            self._start_offset = max(self._start_offset, self._chain.base_offset)
        return paths

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put one closed segment in the place of several, whose files it took over."""
        self._chain.replace(old, new)
        self._durable.note_names()

    def delete_records(self, before_offset: int) -> int:
        """See PartitionLog."""
        if not 0 <= before_offset <= self.last_stable_offset:
            raise self._out_of_range(before_offset, self.last_stable_offset)
        self._health.raise_if_stopped()
        if before_offset > self._start_offset:
            # Deleted must stay deleted, so what is deleted must not be lost to a crash first.
            if before_offset > self.synced_offset:
                self.sync()
            try:
                write_log_start(self._filesystem, self._directory, before_offset)
            except OSError as error:
                raise self._health.failed(error, "delete records") from error
            self._start_offset = before_offset
        return self._start_offset

    def truncate(self, end_offset: int) -> None:
        """See PartitionLog."""
        end_offset = max(end_offset, 0)
        if end_offset >= self._end_offset:
            return
        self._health.raise_if_stopped()
        if self._durable.is_under_way or any(s.compacting for s in self._chain.segments):
            raise Conflict(f"{self._name} is being synced or compacted: truncate it after that")
        if end_offset <= self._start_offset:
            cut = Cut(0, 0, end_offset)
        else:
            cut = find_cut(self._chain.segments, end_offset, self._chain.read_segment)
        self._durable.synced_offset = min(self._durable.synced_offset, cut.end_offset)
        try:
            self._before_truncate()
        except OSError as error:
            raise self._health.failed(error, "truncate") from error
        self._close_files()
        try:
            # First, because a snapshot vouches for the records below it.
            self._durable.snapshots.drop_past(cut.end_offset)
            drop_from(self._filesystem, self._chain.segments, cut)
            if cut.end_offset < self._start_offset:
                write_log_start(self._filesystem, self._directory, cut.end_offset)
            # What is left and was not synced is scanned and synced now.
            self._load(LogCheckpoint(self._durable.synced_offset))
        except OSError as error:
            raise self.stop(error, "truncate") from error
