"""The log of one of the broker's own topics: two copies, in two directories.

These logs hold the broker's state: topics and their settings, committed offsets, transactions,
queues. A batch that cannot be read would silently change that state, so every batch is stored in
the primary directory (`topics/<topic>/<n>`) and in a copy (`copies/<topic>/<n>`), and counts as
durable when both are synced.

Opening proves every batch of both. A copy that is damaged or shorter is replaced by the other one,
if that is whole; a damaged directory is kept under `damaged/`. Where neither is whole the log does
not open: StateDamaged names each place, and `millstream segment repair` decides what remains.

Invariant: each copy holds a prefix of one history of appends, and the same newest record for every
key of that prefix; compaction cleans them independently.
After a crash: the longer copy is the one that counts. A replacement is complete once it has its
name; before that the next start makes it again.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from millstream.clock import Clock
from millstream.errors import MillstreamError, StateDamaged
from millstream.settings.log import LogSettings
from millstream.storage.batch_admission import Outcome
from millstream.storage.filesystem import (
    Filesystem,
    map_whole,
    remove_tree,
    replace_content,
)
from millstream.storage.local_log import LocalLog
from millstream.storage.log_sync import LogSync
from millstream.storage.partition_log import SyncTask
from millstream.storage.recovery import (
    SYNC_FAILED,
    TEMPORARY_SUFFIX,
    LogCheckpoint,
    directories_of,
)
from millstream.storage.segment import CUT_SUFFIX
from millstream.storage.segment_cache import SegmentCache

_log = logging.getLogger(__name__)

REPAIRED_SUFFIX = ".repaired"
_COPY_PREFIX = "copy:"  # No topic name has a colon.


def copy_name(name: str) -> str:
    """What reports and the checkpoint call the copy of a log."""
    return _COPY_PREFIX + name


@dataclass(slots=True)
class MirroredSync:
    """Syncs both copies. A copy that fails does not fail the primary: redundancy is lost."""

    primary: LogSync
    copy: LogSync | None
    copy_error: OSError | None = None

    @property
    def target_offset(self) -> int:
        return self.primary.target_offset

    def run(self) -> None:
        self.primary.run()
        if self.copy is not None:
            try:
                self.copy.run()
            except OSError as error:
                self.copy_error = error


class MirroredLog(LocalLog):
    """A partition log that is stored twice."""

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        *,
        copy_directory: str,
        damaged_directory: str,
        name: str,
        settings: LogSettings,
        clock: Clock,
        cache: SegmentCache,
        checkpoint: LogCheckpoint | None = None,
        copy_checkpoint: LogCheckpoint | None = None,
        max_decompressed_bytes: int = 128 << 20,
        before_truncate: Callable[[], None] = lambda: None,
    ) -> None:
        """Open both copies and make them equal.

        Raises OSError, or StateDamaged when neither copy is whole.
        """

        def open_copy(known: LogCheckpoint | None) -> LocalLog:
            return LocalLog(
                filesystem,
                copy_directory,
                name=copy_name(name),
                settings=settings,
                clock=clock,
                cache=cache,
                checkpoint=known,
                max_decompressed_bytes=max_decompressed_bytes,
                before_truncate=before_truncate,
            )

        if filesystem.sizes(directory + REPAIRED_SUFFIX):
            place = f"{directory}{REPAIRED_SUFFIX} is left of a repair that was interrupted"
            raise StateDamaged(log=name, places=(place,))
        super().__init__(
            filesystem,
            directory,
            name=name,
            settings=settings,
            clock=clock,
            cache=cache,
            checkpoint=checkpoint,
            max_decompressed_bytes=max_decompressed_bytes,
            before_truncate=before_truncate,
        )
        self._open_copy = open_copy
        self._damaged_directory = damaged_directory
        self._copy = open_copy(copy_checkpoint)
        try:
            self._make_equal()
        except BaseException:
            self.discard()
            raise

    def copies(self) -> tuple[LocalLog, ...]:
        return (self._copy,)

    # Opening

    def _make_equal(self) -> None:
        own, others = faults_of(self), faults_of(self._copy)
        if not own and self.end_offset >= self._copy.end_offset:
            if others or self._copy.end_offset < self.end_offset:
                self._replace_copy(others)
        elif not others and self._copy.end_offset >= self.end_offset:
            self._replace_primary(own)
        else:
            ends = f"the copies end at offsets {self.end_offset} and {self._copy.end_offset}"
            raise StateDamaged(log=self.name, places=(*own, *others, ends))

    def _replace_copy(self, faults: Sequence[str]) -> None:
        before = self._copy.report
        faults = [*faults, *(str(each) for each in before.set_aside if not each.is_torn)]
        try:
            self._prepare(self, self._copy)
        except OSError as error:
            # The primary is whole, and health says that it is alone.
            with suppress(OSError):
                remove_tree(self.filesystem, self._copy.directory + TEMPORARY_SUFFIX)
            self._leave_copy(self._health.failed(error, "replace the copy of"))
            return
        self._copy.discard()
        kept = self._swap(self._copy, keep=bool(faults or before.set_aside))
        self._copy = self._open_copy(_as_clean(self))
        self._copy.report.take_over(before)
        self._copy.report.repaired += _repairs(faults, kept)

    def _replace_primary(self, faults: Sequence[str]) -> None:
        before = self.report
        faults = [*faults, *(str(each) for each in before.set_aside if not each.is_torn)]
        self._prepare(self._copy, self)
        self._close_files()
        kept = self._swap(self, keep=bool(faults or before.set_aside))
        self._load(_as_clean(self._copy))
        self.report.take_over(before)
        self.report.repaired += _repairs(faults, kept)

    def _prepare(self, source: LocalLog, target: LocalLog) -> None:
        """Copy the files of one log, durably, beside those that they are to replace."""
        filesystem = self.filesystem
        fresh = target.directory + TEMPORARY_SUFFIX
        # Closes its files in the state that a clean stop leaves.
        source.rest()
        remove_tree(filesystem, fresh)
        filesystem.make_directory(fresh)
        for name in filesystem.sizes(source.directory):
            if name != SYNC_FAILED and CUT_SUFFIX not in name:
                content = map_whole(filesystem, os.path.join(source.directory, name))
                replace_content(filesystem, os.path.join(fresh, name), content, sync=True)
        filesystem.sync_directory(fresh)

    def _swap(self, target: LocalLog, *, keep: bool) -> str:
        """Replace the files of a log by the copied ones; returns where the old ones are kept."""
        filesystem, kept = self.filesystem, ""
        if keep:
            kept = set_aside(filesystem, target.directory, self._damaged_directory, target.name)
        else:
            remove_tree(filesystem, target.directory)
        filesystem.rename(target.directory + TEMPORARY_SUFFIX, target.directory)
        for directory in directories_of(target.directory, target.name):
            filesystem.sync_directory(directory)
        return kept

    # Appending and syncing

    def append(self, batches: Sequence[bytearray | memoryview]) -> list[Outcome]:
        """See PartitionLog. A copy that cannot be written is left behind, and health says so."""
        outcomes = super().append(batches)
        if not self.report.copy_failure:
            pairs = zip(batches, outcomes, strict=True)
            stored = [batch for batch, outcome in pairs if not isinstance(outcome, MillstreamError)]
            failures = [o for o in self._copy.append(stored) if isinstance(o, MillstreamError)]
            if failures:
                self._leave_copy(failures[0])
        return outcomes

    def _leave_copy(self, failure: MillstreamError) -> None:
        self.report.copy_failure = str(failure)
        _log.error(
            "%(log)s: the copy takes no more records, and is replaced at the next start: %(error)s",
            {"log": self.name, "error": failure},
        )

    @property
    def dirty_since_ms(self) -> int | None:
        since = super().dirty_since_ms, self._copy.dirty_since_ms
        return min((each for each in since if each is not None), default=None)

    def begin_sync(self) -> MirroredSync:  # type: ignore[override]
        """See PartitionLog. Raises StorageFailure when the log has stopped."""
        primary = super().begin_sync()
        return MirroredSync(primary, None if self._copy.failure else self._copy.begin_sync())

    def finish_sync(self, task: SyncTask, error: OSError | None) -> None:
        """See PartitionLog."""
        assert isinstance(task, MirroredSync)
        if task.copy is not None:
            self._copy.finish_sync(task.copy, error or task.copy_error)
            if self._copy.failure is not None and not self.report.copy_failure:
                self._leave_copy(self._copy.failure)
        super().finish_sync(task.primary, error)

    # Life

    def close(self) -> None:
        """See PartitionLog. Raises StorageFailure when what is left cannot be made durable."""
        try:
            super().close()
        finally:
            self._copy.close()

    def discard(self) -> None:
        super().discard()
        self._copy.discard()

    def end_syncs(self) -> None:
        super().end_syncs()
        self._copy.end_syncs()

    def reconfigure(self, settings: LogSettings) -> None:
        super().reconfigure(settings)
        self._copy.reconfigure(settings)

    def rest(self) -> None:
        super().rest()
        self._copy.rest()

    def roll_if_due(self) -> None:
        super().roll_if_due()
        if not self.report.copy_failure:
            self._copy.roll_if_due()

    def expire(self, *, held_from: int | None = None) -> list[str]:
        return [*super().expire(held_from=held_from), *self._copy.expire(held_from=held_from)]


def set_aside(filesystem: Filesystem, directory: str, parent: str, name: str) -> str:
    """Keep a log's directory under a name of its own; returns its path. Raises OSError."""
    kept = free_directory(filesystem, parent, name)
    filesystem.make_directory(parent)
    filesystem.rename(directory, kept)
    filesystem.sync_directory(parent)
    return kept


def free_directory(filesystem: Filesystem, parent: str, name: str) -> str:
    """A path for what was found in a log's directory, which nothing has yet."""
    stem = name.replace(_COPY_PREFIX, "copy-").replace("/", "-")
    taken = filesystem.directories(parent)
    free = next(each for n in itertools.count(1) if (each := f"{stem}.{n}") not in taken)
    return os.path.join(parent, free)


def faults_of(log: LocalLog) -> list[str]:
    """What keeps a copy from being whole up to its end."""
    return [str(damage) for damage in log.prove()]


def _as_clean(log: LocalLog) -> LogCheckpoint:
    """What a clean stop would write down of a log that was just opened and proved."""
    first, active = log.segments()[0], log.segments()[-1]
    return LogCheckpoint(
        log.end_offset, log.end_offset, active.size, active.base_offset, first.base_offset
    )


def _repairs(faults: Sequence[str], kept: str) -> list[str]:
    return [f"{fault}; replaced by the other copy, old files in {kept}" for fault in faults]
