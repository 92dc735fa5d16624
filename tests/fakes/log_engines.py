"""Every storage engine, behind one way to open a log and to lose the process that held it.

`ENGINES` is all that the contract suite and the model know of engines: a new one is one line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from millstream.clock import ManualClock
from millstream.settings.log import LogSettings
from millstream.storage.filesystem import Filesystem, LocalFilesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.memory_filesystem import MemoryFilesystem
from millstream.storage.partition_log import PartitionLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment_cache import SegmentCache
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import FakeFilesystem

LOG_NAME = "orders/0"


class LogEngine(Protocol):
    """A place for one log."""

    @property
    def has_faulty_disk(self) -> bool:
        """Whether its disk can be made to fail, by the methods below."""

    def open(self, settings: LogSettings) -> PartitionLog:
        """Open the log, as it was left."""

    def note_checkpoint(self) -> None:
        """Let the log's owner write down how far it is synced."""

    def crash_at(self, operation: int) -> None:
        """Let the process end, by raising Crash, after so many operations of the disk."""

    def after_crash(self, mode: CrashMode, seed: int) -> LogEngine:
        """What is left if the process that holds the log ends now. This one is not disturbed."""

    def leave_space(self, room_bytes: int | None) -> None:
        """Let the disk be full after so many bytes more; None for no limit."""

    def fail_next_sync(self) -> None:
        """Let the next sync of records fail, and lose what it should have made durable."""


class LocalEngine:
    """The local engine on any filesystem.

    It stands in for the log's owner, who writes the log's checkpoint to a file of its own.
    """

    def __init__(self, filesystem: Filesystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._clock = ManualClock()
        self._log: LocalLog | None = None
        self._checkpoint: LogCheckpoint | None = None

    @property
    def has_faulty_disk(self) -> bool:
        return isinstance(self._filesystem, FakeFilesystem)

    def open(self, settings: LogSettings) -> PartitionLog:
        if self._log is not None:
            self._checkpoint = self._log.checkpoint()
        self._log = LocalLog(
            self._filesystem,
            self._directory,
            name=LOG_NAME,
            settings=settings,
            clock=self._clock,
            cache=SegmentCache(2),
            checkpoint=self._checkpoint,
            before_truncate=self.note_checkpoint,
        )
        self.note_checkpoint()
        return self._log

    def note_checkpoint(self) -> None:
        assert self._log is not None
        self._checkpoint = self._log.checkpoint()

    def crash_at(self, operation: int) -> None:
        assert isinstance(self._filesystem, FakeFilesystem)
        self._filesystem.crash_at(operation, "after")

    def after_crash(self, mode: CrashMode, seed: int) -> LogEngine:
        assert isinstance(self._filesystem, FakeFilesystem)
        found = LocalEngine(self._filesystem.after_crash(mode, seed), self._directory)
        found._checkpoint = self._checkpoint
        return found

    def leave_space(self, room_bytes: int | None) -> None:
        disk = self._filesystem
        assert isinstance(disk, FakeFilesystem)
        disk.space_bytes = None if room_bytes is None else disk.used_bytes + room_bytes

    def fail_next_sync(self) -> None:
        assert isinstance(self._filesystem, FakeFilesystem)
        self._filesystem.fail_sync("*.log")


def _fake_disk() -> FakeFilesystem:
    disk = FakeFilesystem()
    disk.make_directory("/data")
    return disk


ENGINES: dict[str, Callable[[Path], LogEngine]] = {
    "local": lambda path: LocalEngine(LocalFilesystem(), str(path / LOG_NAME)),
    "local in memory": lambda _: LocalEngine(MemoryFilesystem(), f"/data/{LOG_NAME}"),
    "local on a fake disk": lambda _: LocalEngine(_fake_disk(), f"/data/{LOG_NAME}"),
}

FAULTY_ENGINES = [name for name, make in ENGINES.items() if make(Path()).has_faulty_disk]
