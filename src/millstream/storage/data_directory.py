"""The directory that holds all logs of a broker: `<data>/topics/<topic>/<partition>/`.

A topic that is deleted moves, as a whole, to `<data>/deleted/<its id>`, so that its name is free at
once; the files are removed later.

Invariant: one process at a time has it open. While it is open, the checkpoint on disk marks no log
as cleanly stopped; `close` marks those that were. It never speaks of a log that was deleted, else a
new log of that name would begin where the old one ended.
After a crash: every log is recovered from its own directory, scanning from the recovery point that
the last checkpoint names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

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
from millstream.settings.names import check_topic_name, is_internal_topic, is_topic_name
from millstream.settings.storage import StorageSettings
from millstream.storage.checkpoint import CheckpointFile, Checkpoints, CheckpointWrite
from millstream.storage.filesystem import Filesystem, remove_tree
from millstream.storage.local_log import LocalLog
from millstream.storage.mirrored_log import MirroredLog, copy_name
from millstream.storage.recovery import LogCheckpoint, directories_of
from millstream.storage.recovery_report import RecoveryReport
from millstream.storage.segment_cache import SegmentCache

_Thing = TypeVar("_Thing")
_Result = TypeVar("_Result")


class TopicLogs(NamedTuple):
    """A topic that is to be there: how many logs it has, and their settings."""

    partitions: int
    settings: LogSettings


Survey = Callable[["DataDirectory"], Mapping[str, TopicLogs]]


class DataDirectory:
    """Opens, creates, deletes and closes the logs of a broker."""

    def __init__(
        self,
        filesystem: Filesystem,
        path: str,
        *,
        storage: StorageSettings,
        defaults: LogSettings,
        clock: Clock,
        survey: Survey = lambda _: {},
    ) -> None:
        """Open a directory, creating it where it is missing, with all logs in it.

        `survey` is asked first, with the directory locked and no log open, what topics there are to
        be. Their logs are opened with their own settings, and created where they are missing; a
        topic that it does not know is opened with the defaults.
        Raises DirectoryLocked, OSError when it cannot be read or written, or what `survey` raises.
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
        # What is known of logs that are not open, and is needed once they are.
        self._unopened: dict[str, LogCheckpoint] = {}
        self._known: Checkpoints = {}
        self._notes: list[str] = []
        filesystem.make_directory(os.path.join(path, "topics"))
        for directory in (os.path.dirname(path), path):
            # A process before may have made it, and not lived to sync it.
            filesystem.sync_directory(directory)
        self._lock = filesystem.lock(os.path.join(path, "lock"), f"process {os.getpid()}")
        try:
            self._checkpoint = CheckpointFile(filesystem, os.path.join(path, "checkpoint"))
            # First, because a full disk has room for nothing else before that.
            self._leftovers = self._remove_deleted()
            self._load_checkpoint()
            self._open_all(survey(self))
        except BaseException:
            self._lock.release()
            raise

    def _remove_deleted(self) -> list[str]:
        """Remove what is left of deleted topics; what cannot be is returned."""
        parent = os.path.join(self._path, "deleted")
        left = []
        for name in self._filesystem.directories(parent):
            path = os.path.join(parent, name)
            try:
                remove_tree(self._filesystem, path)
            except OSError as error:
                self._notes.append(f"{path} is left of a deleted topic: {error}")
                left.append(path)
        return left

    def _load_checkpoint(self) -> None:
        try:
            self._known = self._checkpoint.load()
        except CorruptData as damage:
            self._notes.append(f"{damage}; every log is scanned from its start")
        self._unopened = {n: c._replace(end_offset=-1) for n, c in self._known.items()}
        # From here until close, no log counts as cleanly stopped.
        self._checkpoint_now()

    def _open_all(self, expected: Mapping[str, TopicLogs]) -> None:
        found = dict.fromkeys(self._found())
        for topic, logs in expected.items():
            found.update(dict.fromkeys(f"{topic}/{n}" for n in range(logs.partitions)))
        names = [name for name in found if name not in self._logs]
        open_one = partial(self._try_open, expected)
        for name, opened in zip(
            names, _each(open_one, names, self._storage.recovery_threads), strict=True
        ):
            if isinstance(opened, LocalLog):
                self._logs[name] = opened
            else:
                self._broken[name] = opened
                self._notes.append(f"{name} cannot be opened: {opened}")
        broken = {*self._broken, *map(copy_name, self._broken)}
        self._unopened = {n: c for n, c in self._unopened.items() if n in broken}
        self._known = {}

    def _found(self) -> Iterator[str]:
        topics = os.path.join(self._path, "topics")
        for topic in self._filesystem.directories(topics):
            if not is_topic_name(topic):
                self._notes.append(f"{topic!r} is no name for a topic; its files are let alone")
                continue
            for partition in self._filesystem.directories(os.path.join(topics, topic)):
                if partition.isascii() and partition.isdigit() and str(int(partition)) == partition:
                    yield f"{topic}/{partition}"

    def _open(self, name: str, settings: LogSettings) -> LocalLog:
        open_log: Callable[..., LocalLog] = LocalLog
        if is_internal_topic(name.rpartition("/")[0]):
            open_log = partial(
                MirroredLog,
                copy_directory=os.path.join(self._path, "copies", name),
                damaged_directory=os.path.join(self._path, "damaged"),
                copy_checkpoint=self._known.get(copy_name(name)),
            )
        return open_log(
            self._filesystem,
            self._directory_of(name),
            name=name,
            settings=settings,
            clock=self._clock,
            cache=self._cache,
            checkpoint=self._known.get(name),
            max_decompressed_bytes=self._storage.max_decompressed_bytes,
            before_truncate=self._checkpoint_now,
        )

    def _try_open(self, expected: Mapping[str, TopicLogs], name: str) -> LocalLog | MillstreamError:
        logs = expected.get(name.rpartition("/")[0])
        settings = logs.settings if logs else self._defaults
        try:
            return self._open(name, settings)
        except (CorruptData, OSError) as error:
            return _as_failure(error, self._directory_of(name))

    def open_first(self, topic: str, settings: LogSettings) -> LocalLog:
        """For a survey: the only log of a topic, before all others. Raises CorruptData, OSError."""
        name = f"{topic}/0"
        log = self._logs[name] = self._open(name, settings)
        for each in (name, copy_name(name)):
            self._unopened.pop(each, None)
        return log

    @property
    def path(self) -> str:
        return self._path

    @property
    def reports(self) -> list[RecoveryReport]:
        """What opening each log found, in the order of their names."""
        return [log.report for log in (*self._logs.values(), *self.copies())]

    def take_notes(self) -> list[str]:
        """What people should know of the directory itself, told once."""
        notes, self._notes = self._notes, []
        return notes

    def logs(self) -> Iterator[LocalLog]:
        return iter(self._logs.values())

    def copies(self) -> Iterator[LocalLog]:
        """The second copies of the logs that hold the broker's own state."""
        return (copy for log in self._logs.values() for copy in log.copies())

    def log(self, topic: str, partition: int) -> LocalLog:
        """Raises NotFound, or what kept the log from being opened."""
        name = f"{topic}/{partition}"
        log = self._logs.get(name)
        if log is None:
            raise self._broken.get(name) or NotFound(kind="log", name=name)
        return log

    def partitions(self) -> dict[str, int]:
        """Every topic, with the number that the next of its partitions would have."""
        counts: dict[str, int] = {}
        for name in (*self._logs, *self._broken):
            topic, _, number = name.rpartition("/")
            counts[topic] = max(counts.get(topic, 0), int(number) + 1)
        return counts

    def create(self, topic: str, partition: int, settings: LogSettings | None = None) -> LocalLog:
        """Create one log, durably.

        Raises AlreadyExists, InvalidName, InvalidSetting for a bad number, or StorageFailure.
        """
        if partition < 0:
            raise InvalidSetting(name="partition", value=partition, expected="0 or more")
        name = f"{topic}/{partition}"
        if name in self._logs or name in self._broken:
            raise AlreadyExists(kind="log", name=name)
        [log] = self.open_new(topic, [partition], settings or self._defaults)
        try:
            for directory in directories_of(log.directory, name):
                self._filesystem.sync_directory(directory)
        except OSError as error:
            raise _as_failure(error, log.directory) from error
        self.add([log])
        return log

    def open_new(self, topic: str, numbers: Iterable[int], settings: LogSettings) -> list[LocalLog]:
        """Make logs that are not there yet; `add` them after that. Any thread.

        Their names are not durable before their first sync: whoever counts on them must be able to
        make them again. Raises InvalidName or StorageFailure.
        """
        check_topic_name(topic)
        try:
            return [self._open(f"{topic}/{number}", settings) for number in numbers]
        except (CorruptData, OSError) as error:
            raise _as_failure(error, self._directory_of(topic)) from error

    def add(self, logs: Iterable[LocalLog]) -> None:
        """Take in logs that `open_new` made."""
        for log in logs:
            assert log.name not in self._logs, "a log has one owner"
            self._logs[log.name] = log

    def forget(self, topic: str, topic_id: bytes) -> TopicRemoval:
        """Take a topic's logs out, at once; returns the blocking work of taking its files out.

        Compaction must not be at work on them.
        """
        prefix = f"{topic}/"
        logs = [log for name, log in self._logs.items() if name.startswith(prefix)]
        for log in logs:
            del self._logs[log.name]
            log.discard()
        for names in (self._broken, self._unopened):
            for name in [name for name in names if name.startswith(prefix)]:
                names.pop(name)
        target = os.path.join(self._path, "deleted", topic_id.hex())
        return TopicRemoval(
            filesystem=self._filesystem,
            logs=logs,
            checkpoint=self._checkpoint.prepare_without(prefix),
            source=self._directory_of(topic),
            target=target,
            done=partial(self._leftovers.append, target),
        )

    def take_leftovers(self) -> list[str]:
        """Directories of deleted topics, for `remove_tree`, told once."""
        leftovers, self._leftovers[:] = list(self._leftovers), []
        return leftovers

    def prepare_checkpoint(self) -> CheckpointWrite | None:
        """The blocking work of writing down what is durable now; None when nothing changed."""
        logs = (*self._logs.values(), *self.copies())
        checkpoints = {log.name: log.checkpoint() for log in logs}
        return self._checkpoint.prepare(self._unopened | checkpoints)

    def close(self) -> None:
        """Make every log durable, mark those that were closed cleanly, and let go."""
        try:
            self._notes += filter(
                None, _each(_close, self._logs.values(), self._storage.closing_threads)
            )
            self._checkpoint_now()
        except OSError as error:
            self._notes.append(f"no log is marked as closed cleanly: {error}")
        finally:
            self._lock.release()

    def _checkpoint_now(self) -> None:
        if (write := self.prepare_checkpoint()) is not None:
            write.run()

    def _directory_of(self, name: str) -> str:
        return os.path.join(self._path, "topics", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemoval:
    """A topic on its way out. Any thread may run it; when that is done its name is free."""

    filesystem: Filesystem
    logs: Sequence[LocalLog]
    checkpoint: CheckpointWrite
    source: str
    target: str
    done: Callable[[], None]

    def run(self) -> None:
        """Raises OSError."""
        for log in self.logs:
            # A sync under way writes to paths that may soon be those of another topic.
            log.end_syncs()
        parent = os.path.dirname(self.target)
        self.filesystem.make_directory(parent)
        # A topic whose creation a crash cut short has no directory.
        with suppress(FileNotFoundError):
            self.filesystem.rename(self.source, self.target)
            self.done()
        # Before the name is free: a topic of that name must not find the old files after a crash.
        for directory in (parent, os.path.dirname(self.source)):
            self.filesystem.sync_directory(directory)
        # Last, because a full disk has no room for it: what is deleted there must give room.
        self.checkpoint.run()


def _each(
    work: Callable[[_Thing], _Result], things: Iterable[_Thing], threads: int
) -> list[_Result]:
    """Do something that waits for the disk to many things: the disk serves many at once.

    What mostly computes is slower in many threads than in one.
    """
    if threads == 1:
        return [work(thing) for thing in things]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, things))


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
