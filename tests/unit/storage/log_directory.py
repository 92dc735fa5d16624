"""One log in a real directory, to be stopped, lost and damaged at will."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from millstream.clock import ManualClock
from millstream.errors import CorruptData, NotFound
from millstream.settings.log import LogSettings
from millstream.storage.batch_walk import split_batches
from millstream.storage.filesystem import Filesystem, LocalFile, LocalFilesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment import SegmentState, segment_stem
from millstream.storage.segment_cache import SegmentCache
from tests.fakes.log_steps import SMALL_SEGMENTS

LOG_NAME = "orders/0"


class LogDirectory:
    """A directory, and what opening a log in it takes."""

    def __init__(
        self,
        path: Path,
        settings: LogSettings = SMALL_SEGMENTS,
        *,
        cached_segments: int = 4,
        filesystem: Filesystem | None = None,
    ) -> None:
        self.path = path
        self.settings = settings
        self.filesystem = filesystem or LocalFilesystem()
        self.clock = ManualClock()
        self.cache = SegmentCache(cached_segments)

    def open(
        self, checkpoint: LogCheckpoint | None = None, filesystem: Filesystem | None = None
    ) -> LocalLog:
        return LocalLog(
            filesystem or self.filesystem,
            str(self.path),
            name=LOG_NAME,
            settings=self.settings,
            clock=self.clock,
            cache=self.cache,
            checkpoint=checkpoint,
        )

    def reopen(self, log: LocalLog, filesystem: Filesystem | None = None) -> LocalLog:
        """Stop cleanly and start again."""
        log.close()
        return self.open(log.checkpoint(), filesystem)

    def after_kill(self, path: Path) -> LogDirectory:
        """What a killed process leaves behind, which is what the files hold right now."""
        shutil.copytree(self.path, path)
        return LogDirectory(path, self.settings)

    def file(self, base_offset: int, suffix: str) -> Path:
        return Path(segment_stem(str(self.path), base_offset) + suffix)

    def names(self, suffix: str = "") -> list[str]:
        return sorted(path.name for path in self.path.iterdir() if path.name.endswith(suffix))

    def content(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.path.iterdir()}

    def restore(self, content: dict[Path, bytes]) -> None:
        """Put every file back as it was."""
        for path in self.path.iterdir():
            if path not in content:
                path.unlink()
        for path, expected in content.items():
            if not path.exists() or path.read_bytes() != expected:
                overwrite(path, expected)


class _UnsyncedFile(LocalFile):
    __slots__ = ()

    def sync(self) -> None:
        """Leave it to the system."""


class UnsyncedFilesystem(LocalFilesystem):
    """The real filesystem, without waiting for the disk: nobody cuts the power of these tests."""

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return _UnsyncedFile(path, os.open(path, flags, 0o644))
        except FileNotFoundError:
            raise NotFound(kind="file", name=path) from None

    def sync_directory(self, path: str) -> None:
        """Leave it to the system."""


class _BarelyWrittenFile(LocalFile):
    __slots__ = ()

    def written_end(self) -> int:
        return min(super().written_end(), 1 << 20)


class BarelyWrittenFilesystem(LocalFilesystem):
    """The real filesystem, which says that no file was written beyond its first MiB."""

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return _BarelyWrittenFile(path, os.open(path, flags, 0o644))


class RecordingFilesystem(LocalFilesystem):
    """The real filesystem, which remembers what was opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        self.opened.append(path)
        return super().open(path, create=create)

    def open_for_reading(self, path: str) -> LocalFile:
        self.opened.append(path)
        return super().open_for_reading(path)


def states_of(log: LocalLog) -> list[SegmentState]:
    return [segment.state for segment in log.segments()]


def bases_of(log: LocalLog) -> list[int]:
    return [segment.base_offset for segment in log.segments()]


def batches_in(content: bytes | memoryview) -> dict[int, bytes]:
    """Sound batches, by their base offset."""
    return {
        header.base_offset: bytes(batch) for header, batch in split_batches(memoryview(content))
    }


def survey(
    log: LocalLog, *, max_bytes: int = 1 << 20
) -> tuple[dict[int, bytes], list[CorruptData]]:
    """Every batch that can be read, and every damage on the way, which is stepped over."""
    batches: dict[int, bytes] = {}
    damage: list[CorruptData] = []
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            view = log.read(offset, max_bytes)
        except CorruptData as found:
            damage.append(found)
            if found.next_offset <= offset:
                raise AssertionError("there is no way past the damage") from found
            offset = found.next_offset
            continue
        if not view:
            break
        for header, batch in split_batches(view):
            assert header.base_offset not in batches
            batches[header.base_offset] = bytes(batch)
            offset = header.next_offset
    return batches, damage


def flip(path: Path, position: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    overwrite(path, content)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def overwrite(path: Path, content: bytes | bytearray) -> None:
    """In place, because a filesystem may hurry to the disk with a file that was emptied first."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(content)
        file.truncate()
