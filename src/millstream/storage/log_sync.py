"""How one log becomes durable: what waits for the disk, and the task that takes it there.

`SyncState` belongs to the owner of the log. A `LogSync` that it hands out is run by any thread and
handed back; it holds the files it syncs, so that appending, rolling and expiring go on meanwhile.

Invariant: everything below `synced_offset` has been synced, with the names of its files. A file is
closed only when no task that may hold it is under way.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from millstream.storage.filesystem import TOO_MANY_FILES, Filesystem
from millstream.storage.producer_snapshots import ProducerSnapshots
from millstream.storage.producer_state import ProducerStates
from millstream.storage.segment import SegmentState
from millstream.storage.segment_writer import SegmentWriter


class SyncTurns:
    """Lets one task at a time sync, and none after one that failed.

    The kernel tells of a write that failed only once, to whoever asks first: another task that
    syncs the same file at that moment, or later, hears that all is well.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed = False

    @contextmanager
    def take(self) -> Iterator[None]:
        with self._lock:
            if self._failed:
                raise OSError(errno.EIO, "a sync before this one failed")
            try:
                yield
            except BaseException as error:
                # To open a file too many fails before anything is synced, and may go well later.
                is_passing = isinstance(error, OSError) and error.errno in TOO_MANY_FILES
                self._failed = not is_passing
                raise

    def end(self) -> None:
        """Let nobody have a turn any more, and return when nobody has one."""
        with self._lock:
            self._failed = True


@dataclass(slots=True, frozen=True)
class LogSync:
    """What must reach the disk for everything below `target_offset` to be durable."""

    turns: SyncTurns
    filesystem: Filesystem
    snapshots: ProducerSnapshots
    active: SegmentWriter | None
    # The segments that are archived once this is done.
    full: tuple[SegmentWriter, ...]
    # Producer state to be written down, by the offset that it reaches to.
    states: tuple[tuple[int, ProducerStates], ...]
    # Those in which names may have changed since they were last synced.
    directories: Sequence[str]
    name_changes: int
    appended_ms: int | None
    target_offset: int

    def run(self) -> None:
        with self.turns.take():
            for writer in self.full:
                writer.sync()
            if self.active is not None:
                self.active.sync_records()
            for offset, states in self.states:
                # Doubt comes from reading the damage again, at each start.
                if not states.transactions.doubtful:
                    self.snapshots.write(offset, states.snapshot(offset))
            for directory in self.directories:
                self.filesystem.sync_directory(directory)


class SyncState:
    """What of a log is not known to be on disk."""

    def __init__(
        self, filesystem: Filesystem, directories: Sequence[str], synced_offset: int
    ) -> None:
        """`directories` are the log's own, and those above it that came to be with it."""
        self._filesystem = filesystem
        self._directories = directories
        self.snapshots = ProducerSnapshots(filesystem, directories[0])
        self.synced_offset = synced_offset
        self._turns = SyncTurns()
        # Closed segments, oldest first, and the producers' state at the end of each.
        self.full: list[SegmentWriter] = []
        self._states: list[tuple[int, ProducerStates]] = []
        # Archived segments whose files a task under way may still hold.
        self._retired: list[SegmentWriter] = []
        self._under_way = 0
        # When the oldest append that no sync covers happened.
        self._appended_ms: int | None = None
        self._name_changes = 0
        self._names_synced = 0

    @property
    def dirty_since_ms(self) -> int | None:
        """Since when something waits to be synced; None when nothing does."""
        if self._appended_ms is not None:
            return self._appended_ms
        return 0 if self.full or self._name_changes > self._names_synced else None

    @property
    def is_under_way(self) -> bool:
        return self._under_way > 0

    def note_append(self, now_ms: int) -> None:
        if self._appended_ms is None:
            self._appended_ms = now_ms

    def note_names(self) -> None:
        """A file was created, renamed or removed."""
        self._name_changes += 1

    def note_full(self, writer: SegmentWriter, next_offset: int, states: ProducerStates) -> None:
        """A segment was closed, when producers were in this state, which changes no more."""
        self.full.append(writer)
        self._states.append((next_offset, states))

    def begin(self, active: SegmentWriter | None, end_offset: int) -> LogSync:
        states, self._states = self._states, []
        appended_ms, self._appended_ms = self._appended_ms, None
        self._under_way += 1
        return LogSync(
            turns=self._turns,
            filesystem=self._filesystem,
            snapshots=self.snapshots,
            # Also when a sync under way covers it: who ends first vouches for all.
            active=active if end_offset > self.synced_offset else None,
            full=tuple(self.full),
            states=tuple(states),
            directories=self._unsynced_directories(),
            name_changes=self._name_changes,
            appended_ms=appended_ms,
            target_offset=end_offset,
        )

    def _unsynced_directories(self) -> Sequence[str]:
        if self._name_changes == self._names_synced:
            return ()
        # The log's own directory may be as new as its files, so the first sync covers its name.
        return self._directories[:1] if self._names_synced else self._directories

    def finish(self, task: LogSync, *, succeeded: bool) -> None:
        self._under_way -= 1
        if succeeded:
            # Durable: from here on these offsets may be acknowledged.
            self.synced_offset = max(self.synced_offset, task.target_offset)
            self._names_synced = max(self._names_synced, task.name_changes)
            for writer in task.full:
                if writer in self.full:
                    writer.segment.state = SegmentState.ARCHIVED
                    self.full.remove(writer)
                    self._retired.append(writer)
        self._close_retired()

    def take_back(self, task: LogSync) -> None:
        """A task could not be carried out, for a reason that may pass: all in it waits again."""
        self._under_way -= 1
        self._states[:0] = task.states
        if task.appended_ms is not None:
            self._appended_ms = task.appended_ms
        self._close_retired()

    def retire(self, writer: SegmentWriter) -> None:
        """Close a segment's files, once the tasks that may hold them are back."""
        self._retired.append(writer)
        self._close_retired()

    def end(self) -> None:
        """Let no task that was handed out touch a file any more. Any thread; it waits for one."""
        self._turns.end()

    def close(self) -> None:
        self._retired += self.full
        self.full.clear()
        self._close_retired()

    def _close_retired(self) -> None:
        if self.is_under_way:
            return
        for writer in self._retired:
            writer.close()
        self._retired.clear()
