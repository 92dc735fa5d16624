"""The broker's upkeep of its logs: flushing, checkpoints, retention, compaction, removal.

Decisions are made on the event loop, which owns the logs; whatever blocks runs in a thread. A log
that fails to be kept up is reported and passed over; the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from millstream.broker.retention import Retention
from millstream.clock import Clock, ticks_ns
from millstream.errors import MillstreamError
from millstream.settings.domain import LONG_MAX
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.compaction import abandon, install, plan_compaction
from millstream.storage.compaction_plan import (
    CompactionCancelled,
    CompactionPlan,
    CompactionResult,
)
from millstream.storage.data_directory import DataDirectory
from millstream.storage.file_remover import FileRemover
from millstream.storage.filesystem import Filesystem, remove_tree
from millstream.storage.flusher import Flusher
from millstream.storage.local_log import LocalLog
from millstream.storage.segment import SegmentState
from millstream.telemetry.histogram import Histogram

_log = logging.getLogger(__name__)

_LONGEST_FLUSH_TICK_MS = 250
# However soon a topic wants its data flushed: each look costs a little for every log.
_SHORTEST_FLUSH_TICK_MS = 5
_DELETION_TICK_MS = 1000
_COMPACTION_TICK_MS = 1000


class _Compaction(NamedTuple):
    """A pass that a thread is at work on."""

    log: LocalLog
    plan: CompactionPlan
    work: asyncio.Task[CompactionResult]


class CleanerWork:
    """Counters: what compaction has done since the start."""

    def __init__(self) -> None:
        self.passes = 0
        self.failures = 0
        self.read_bytes = 0
        self.saved_bytes = 0
        self.times = Histogram()

    def note(self, plan: CompactionPlan, result: CompactionResult, elapsed_ns: int) -> None:
        """A pass was completed; to be called before its result is put in place."""
        cleaned = [(each.base_offset, each.next_offset) for each in result.cleaned]
        replaced_bytes = sum(
            segment.size
            for segment in plan.segments
            if any(base <= segment.base_offset < following for base, following in cleaned)
        )
        self.passes += 1
        self.read_bytes += sum(segment.size for segment in plan.segments)
        self.saved_bytes += replaced_bytes - sum(each.size for each in result.cleaned)
        self.times.observe(elapsed_ns)


class Housekeeping:
    """Runs the upkeep until it is cancelled."""

    def __init__(
        self,
        directory: DataDirectory,
        flusher: Flusher,
        filesystem: Filesystem,
        *,
        storage: StorageSettings,
        defaults: LogSettings,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._flusher = flusher
        self._filesystem = filesystem
        self._storage = storage
        self._clock = clock
        self._remover = FileRemover()
        self.flush_tick_ms = _flush_tick_ms(defaults.flush_ms)
        """How often to look for what is to be flushed."""
        self._compaction: _Compaction | None = None
        self._cleaning = asyncio.Lock()
        self._seen: WeakKeyDictionary[LocalLog, int] = WeakKeyDictionary()
        """How far each compacted log was archived when it was last looked at."""
        self.retention = Retention()
        self.work = CleanerWork()

    def reconfigure(self, storage: StorageSettings) -> None:
        """Work with other settings. What is being waited for is waited for to its end."""
        self._storage = storage

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(lambda: self.flush_tick_ms, self.flush_due))
            tasks.create_task(self._every(lambda: self._storage.checkpoint_ms, self.checkpoint))
            tasks.create_task(self._every(lambda: self._storage.retention_check_ms, self.clean))
            tasks.create_task(self._every(lambda: _COMPACTION_TICK_MS, self.compact_due))
            tasks.create_task(self._every(lambda: _DELETION_TICK_MS, self.remove_deleted))

    @property
    def is_compacting(self) -> bool:
        return self._compaction is not None

    async def release(self, logs: Sequence[LocalLog]) -> None:
        """Return when no thread is at work on logs that are about to go."""
        # A pass that had no room for all keys is followed by another one.
        while (compaction := self._compaction) is not None and compaction.log in logs:
            compaction.plan.cancel()
            await asyncio.wait([compaction.work])

    async def _every(
        self, interval_ms: Callable[[], int], work: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await asyncio.sleep(interval_ms() / 1000)
            await work()

    async def flush_due(self) -> None:
        """Begin to sync what has waited for `flush.ms`, or will have before the next pass."""
        horizon_ms = self._clock.now_ms() + self.flush_tick_ms
        shortest_ms = _LONGEST_FLUSH_TICK_MS * 2
        for log in self._directory.logs():
            since_ms, flush_ms = log.dirty_since_ms, log.settings.flush_ms
            if flush_ms < shortest_ms:
                shortest_ms = flush_ms
            if since_ms is None:
                continue
            flush_messages = log.settings.flush_messages
            if flush_messages != LONG_MAX:
                shortest_ms = 0
                if log.end_offset - log.synced_offset >= flush_messages:
                    self._flusher.flush(log)
                    continue
            if since_ms + flush_ms <= horizon_ms:
                self._flusher.flush(log)
        # Often enough for the topic that is in the greatest hurry.
        self.flush_tick_ms = _flush_tick_ms(shortest_ms)

    async def checkpoint(self) -> None:
        """Write down how far each log is synced, if that has changed."""
        write = self._directory.prepare_checkpoint()
        if write is not None:
            try:
                await asyncio.to_thread(write.run)
            except OSError as error:
                _log.error("the checkpoint could not be written: %(error)s", {"error": error})

    async def compact_due(self) -> None:
        """Compact logs for which it may have become due since the last look.

        That is when a segment was archived, or by time where a lag is set. Whatever else time
        brings, tombstones that are to go, waits for `clean`.
        """
        if self._cleaning.locked():
            return
        async with self._cleaning:
            for log in list(self._directory.logs()):
                if not log.is_closed and _is_worth_a_look(log, self._seen):
                    await self._keep_up(log, self._roll_and_compact)

    async def clean(self) -> None:
        """Apply retention, compact what is due, and remove files whose delay is over."""
        async with self._cleaning:
            await self._clean()

    async def _clean(self) -> None:
        for log in list(self._directory.logs()):
            if log.is_closed:
                # Its topic was deleted since.
                continue
            await self._keep_up(log, self._expire_and_compact)
            # Other work comes first, however many logs there are.
            await asyncio.sleep(0)
        due = self._remover.take_due(self._clock.now_ms())
        await _to_its_end(asyncio.create_task(asyncio.to_thread(self._remove, due)))

    async def _keep_up(self, log: LocalLog, work: Callable[[LocalLog], Awaitable[None]]) -> None:
        try:
            await work(log)
        except (MillstreamError, OSError) as error:
            _log.error("%(log)s: upkeep failed: %(error)s", {"log": log.name, "error": error})
        except Exception:  # Outer edge: what is wrong with one log is no matter for the others.
            _log.exception("%(log)s: upkeep failed", {"log": log.name})

    async def _expire_and_compact(self, log: LocalLog) -> None:
        await self._expire(log)
        for each in (log, *log.copies()):
            if not each.is_closed:
                await self._compact(each)

    async def _roll_and_compact(self, log: LocalLog) -> None:
        if log.failure is None:
            log.roll_if_due()
        for each in (log, *log.copies()):
            await self._compact(each)

    async def remove_deleted(self) -> None:
        """Remove the files of deleted topics."""
        if leftovers := self._directory.take_leftovers():
            work = asyncio.to_thread(self._remove_trees, leftovers)
            await _to_its_end(asyncio.create_task(work))

    async def _expire(self, log: LocalLog) -> None:
        self._remove_later(log, await self.retention.expire(log))
        if not log.is_closed:
            log.rest()

    async def _compact(self, log: LocalLog) -> None:
        """Pass after pass, as long as one that is due had no room for all keys."""
        while not await self._is_compacted(log):
            pass

    async def _is_compacted(self, log: LocalLog) -> bool:
        """Make one pass, if it is due; whether nothing is left to do."""
        plan = plan_compaction(
            log,
            now_ms=self._clock.now_ms(),
            buffer_bytes=self._storage.compaction_buffer_bytes,
            max_decompressed_bytes=self._storage.max_decompressed_bytes,
        )
        if plan is None:
            return True
        began_ns = ticks_ns()
        work = asyncio.create_task(asyncio.to_thread(plan.run))
        self._compaction = _Compaction(log, plan, work)
        try:
            await _to_its_end(work, plan.cancel)
        except asyncio.CancelledError:
            with suppress(MillstreamError, OSError, CompactionCancelled):
                self._settle(log, plan, work, began_ns)
            raise
        finally:
            self._compaction = None
        try:
            return self._settle(log, plan, work, began_ns).is_finished
        except CompactionCancelled:
            # Its topic is being deleted.
            return True

    def _settle(
        self,
        log: LocalLog,
        plan: CompactionPlan,
        work: asyncio.Task[CompactionResult],
        began_ns: int,
    ) -> CompactionResult:
        """Put what a plan made in its place, or take note that it came to nothing."""
        if log.is_closed:
            # Its files are no longer where they were: there may be another log's by now.
            raise CompactionCancelled
        if (error := work.exception()) is not None:
            self.work.failures += not isinstance(error, CompactionCancelled)
            abandon(log, plan)
            raise error
        self.work.note(plan, work.result(), ticks_ns() - began_ns)
        self._remove_later(log, install(log, plan, work.result()))
        return work.result()

    def _remove_later(self, log: LocalLog, paths: list[str]) -> None:
        delay_ms = log.settings.file_delete_delay_ms
        self._remover.add(paths, due_ms=self._clock.now_ms() + delay_ms)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            try:
                self._filesystem.remove(path)
            except OSError as error:
                # It is tried again when the log is next opened.
                _log.error(
                    "%(path)s could not be removed: %(error)s", {"path": path, "error": error}
                )

    def _remove_trees(self, paths: list[str]) -> None:
        for path in paths:
            try:
                remove_tree(self._filesystem, path)
            except OSError as error:
                # It is tried again at the next start.
                _log.error(
                    "%(path)s could not be removed: %(error)s", {"path": path, "error": error}
                )


def _is_worth_a_look(log: LocalLog, seen: MutableMapping[LocalLog, int]) -> bool:
    settings = log.settings
    if "compact" not in settings.cleanup_policy:
        return False
    archived = sum(each.state is SegmentState.ARCHIVED for each in log.segments())
    has_lag = settings.min_compaction_lag_ms > 0 or settings.max_compaction_lag_ms != LONG_MAX
    is_new = seen.get(log) != archived
    seen[log] = archived
    return is_new or has_lag


def _flush_tick_ms(flush_ms: int) -> int:
    """How often to look for what is to be flushed, if that is to happen within a time."""
    return max(min(_LONGEST_FLUSH_TICK_MS, flush_ms // 2), _SHORTEST_FLUSH_TICK_MS)


async def _to_its_end(
    work: asyncio.Task[Any], on_cancel: Callable[[], None] = lambda: None
) -> None:
    """Wait for a thread, also when told to stop: it must not outlive the data directory."""
    try:
        await asyncio.wait([work])
    except asyncio.CancelledError:
        on_cancel()
        await asyncio.wait([work])
        raise
