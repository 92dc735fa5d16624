"""The directory that holds all logs of a broker: `<data>/topics/<topic>/<partition>/`.

Invariant: one process at a time has it open. While it is open, the checkpoint on disk marks no log
as cleanly stopped; `close` marks those that were.
After a crash: every log is recovered from its own directory, scanning from the recovery point that
the last checkpoint names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from millstream.clock import Clock
from millstream.errors import (
    AlreadyExists,
    CorruptData,
    InvalidSetting,
    MillstreamError,
    NotFound,
    StorageFailure,
)
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.checkpoint import CheckpointFile, Checkpoints, CheckpointWrite
from millstream.storage.filesystem import Filesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import LogCheckpoint, RecoveryReport
from millstream.storage.segment_cache import SegmentCache

_Thing = TypeVar("_Thing")
_Result = TypeVar("_Result")

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class DataDirectory:
    """Opens, creates and closes the logs of a broker."""

    def __init__(
        self,
        filesystem: Filesystem,
        path: str,
        *,
        storage: StorageSettings,
        defaults: LogSettings,
        clock: Clock,
    ) -> None:
        """Open a directory, creating it where it is missing, with all logs in it.

        Raises DirectoryLocked, or OSError when it cannot be read or written.
        """
        path = os.path.abspath(path)
        self._filesystem = filesystem
        self._path = path
        self._storage = storage
        self._defaults = defaults
        self._clock = clock
        self._cache = SegmentCache(storage.cached_segments)
        self._logs: dict[str, LocalLog] = {}
        # Logs that are there and cannot be opened, and why.
        self._broken: dict[str, MillstreamError] = {}
        self._known_of_broken: dict[str, LogCheckpoint] = {}
        self._notes: list[str] = []
        filesystem.make_directory(os.path.join(path, "topics"))
        for directory in (os.path.dirname(path), path):
            # A process before may have made it, and not lived to sync it.
            filesystem.sync_directory(directory)
        self._lock = filesystem.lock(os.path.join(path, "lock"), f"process {os.getpid()}")
        try:
            self._checkpoint = CheckpointFile(filesystem, os.path.join(path, "checkpoint"))
            self._open_all()
        except BaseException:
            self._lock.release()
            raise

    def _open_all(self) -> None:
        try:
            known = self._checkpoint.load()
        except CorruptData as damage:
            self._notes.append(f"{damage}; every log is scanned from its start")
            known = {}
        # From here until close, no log counts as cleanly stopped.
        self._write_checkpoint({n: LogCheckpoint(c.recovery_point) for n, c in known.items()})
        names = list(self._found())
        for name, opened in zip(
            names, self._each(partial(self._try_open, known), names), strict=True
        ):
            if isinstance(opened, LocalLog):
                self._logs[name] = opened
            else:
                self._broken[name] = opened
                if name in known:
                    # Still true, and needed once the log can be opened again.
                    self._known_of_broken[name] = LogCheckpoint(known[name].recovery_point)
                self._notes.append(f"{name} cannot be opened: {opened}")

    def _each(self, work: Callable[[_Thing], _Result], things: Iterable[_Thing]) -> list[_Result]:
        """Do something that waits for the disk to many things: the disk serves many at once."""
        if self._storage.recovery_threads == 1:
            return [work(thing) for thing in things]
        with ThreadPoolExecutor(self._storage.recovery_threads) as threads:
            return list(threads.map(work, things))

    def _found(self) -> Iterator[str]:
        topics = os.path.join(self._path, "topics")
        for topic in self._filesystem.directories(topics):
            for partition in self._filesystem.directories(os.path.join(topics, topic)):
                if partition.isascii() and partition.isdigit() and str(int(partition)) == partition:
                    yield f"{topic}/{partition}"

    def _open(self, name: str, settings: LogSettings, known: LogCheckpoint | None) -> LocalLog:
        return LocalLog(
            self._filesystem,
            self._directory_of(name),
            name=name,
            settings=settings,
            clock=self._clock,
            cache=self._cache,
            checkpoint=known,
            max_decompressed_bytes=self._storage.max_decompressed_bytes,
            before_truncate=self._checkpoint_now,
        )

    def _try_open(self, known: Checkpoints, name: str) -> LocalLog | MillstreamError:
        try:
            return self._open(name, self._defaults, known.get(name))
        except (CorruptData, OSError) as error:
            return _as_failure(error, self._directory_of(name))

    @property
    def path(self) -> str:
        return self._path

    @property
    def reports(self) -> list[RecoveryReport]:
        """What opening each log found, in the order of their names."""
        return [log.report for log in self._logs.values()]

    def take_notes(self) -> list[str]:
        """What people should know of the directory itself, told once."""
        notes, self._notes = self._notes, []
        return notes

    def logs(self) -> Iterator[LocalLog]:
        return iter(self._logs.values())

    def log(self, topic: str, partition: int) -> LocalLog:
        """Raises NotFound, or what kept the log from being opened."""
        name = f"{topic}/{partition}"
        log = self._logs.get(name)
        if log is None:
            raise self._broken.get(name) or NotFound(kind="log", name=name)
        return log

    def create(self, topic: str, partition: int, settings: LogSettings | None = None) -> LocalLog:
        """Raises AlreadyExists, InvalidSetting for a bad name, or StorageFailure."""
        if not _TOPIC_NAME.fullmatch(topic) or topic in {".", ".."}:
            raise InvalidSetting(
                name="topic",
                value=topic,
                expected="1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or ..",
            )
        if partition < 0:
            raise InvalidSetting(name="partition", value=partition, expected="0 or more")
        name = f"{topic}/{partition}"
        if name in self._logs or name in self._broken:
            raise AlreadyExists(kind="log", name=name)
        try:
            self._logs[name] = self._open(name, settings or self._defaults, None)
        except OSError as error:
            raise _as_failure(error, self._directory_of(name)) from error
        return self._logs[name]

    def prepare_checkpoint(self) -> CheckpointWrite | None:
        """The blocking work of writing down what is durable now; None when nothing changed."""
        checkpoints = {name: log.checkpoint() for name, log in self._logs.items()}
        return self._checkpoint.prepare(self._known_of_broken | checkpoints)

    def close(self) -> None:
        """Make every log durable, mark those that were closed cleanly, and let go."""
        try:
            self._notes += filter(None, self._each(_close, self._logs.values()))
            self._checkpoint_now()
        except OSError as error:
            self._notes.append(f"no log is marked as closed cleanly: {error}")
        finally:
            self._lock.release()

    def _checkpoint_now(self) -> None:
        if (write := self.prepare_checkpoint()) is not None:
            write.run()

    def _write_checkpoint(self, checkpoints: dict[str, LogCheckpoint]) -> None:
        if (write := self._checkpoint.prepare(checkpoints)) is not None:
            write.run()

    def _directory_of(self, name: str) -> str:
        return os.path.join(self._path, "topics", name)


def _close(log: LocalLog) -> str | None:
    try:
        log.close()
    except MillstreamError as failure:
        return f"{log.name} was not closed cleanly: {failure}"
    return f"{log.name} was not closed cleanly: {log.failure}" if log.failure else None


def _as_failure(error: CorruptData | OSError, path: str) -> MillstreamError:
    if isinstance(error, CorruptData):
        return error
    return StorageFailure(path=path, operation="open", reason=str(error))
