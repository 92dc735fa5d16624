"""A filesystem in memory whose disk fills up, breaks, and loses power on command.

Every operation that changes something is counted: create, write, resize, sync, rename, remove,
sync_directory. A test runs once to learn how many there are, then again and again with a crash
before, half-way through, or after each of them:

    disk = FakeFilesystem()
    disk.crash_at(17, "halfway")
    with pytest.raises(Crash):
        run(disk)
    recover(disk.after_crash("torn", seed=1))
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from random import Random
from typing import Literal, TypeAlias

from millstream.errors import DirectoryLocked, NotFound
from millstream.storage.filesystem import Buffer
from tests.fakes.fake_disk import (
    SECTOR_BYTES,
    CrashMode,
    DirectoryNode,
    Disk,
    FileNode,
    Link,
    Resize,
    Write,
)

CrashMoment: TypeAlias = Literal["before", "halfway", "after"]


class Crash(BaseException):
    """The process is gone. No `except Exception` may survive it."""


@dataclass
class _SyncFault:
    pattern: str
    spared: int
    count: int


class FakeFilesystem:
    """Implements `Filesystem` on a disk in memory."""

    def __init__(
        self, *, space_bytes: int | None = None, file_capacity_bytes: int = 32 << 20
    ) -> None:
        self.operations: list[str] = []
        self.space_bytes = space_bytes
        self.full_paths: list[str] = []
        """Patterns of files that the disk has no room to write to."""
        self._file_capacity_bytes = file_capacity_bytes
        self._disk = Disk()
        self._used_sectors = 0
        self._crash_at = 0
        self._crash_moment: CrashMoment = "before"
        self._crashed = ""
        self._sync_faults: list[_SyncFault] = []
        self._holders: dict[str, str] = {}
        # Syncs may come from any thread.
        self._one_at_a_time = threading.RLock()

    # --- faults

    @property
    def operation_count(self) -> int:
        return len(self.operations)

    @property
    def used_bytes(self) -> int:
        """Space taken, by whole sectors; holes take none."""
        return self._used_sectors * SECTOR_BYTES

    def crash_at(self, operation: int, moment: CrashMoment) -> None:
        """Crash at the operation of this number, the first being 1.

        Half-way stores the first half of a write; any other operation has no half, and the crash
        comes before it.
        """
        self._crash_at = operation
        self._crash_moment = moment

    def fail_sync(self, pattern: str, *, count: int = 1, spared: int = 0) -> None:
        """Let syncs of files and directories whose path matches fail with EIO.

        `spared` of them succeed first, then `count` fail. As on Linux, a failed sync gives up what
        it could not write: it stays visible, and later syncs say that all is well.
        """
        self._sync_faults.append(_SyncFault(pattern, spared, count))

    def after_crash(self, mode: CrashMode, seed: int = 0) -> FakeFilesystem:
        """The disk that a restarted process finds: no faults, no locks. This one stays as it is."""
        found = FakeFilesystem(
            space_bytes=self.space_bytes, file_capacity_bytes=self._file_capacity_bytes
        )
        found._disk = self._disk.after_crash(mode, Random(seed), self._file_capacity_bytes)
        found._used_sectors = _sectors_in(found._disk.root)
        return found

    def flip(self, path: str, position: int, bit: int) -> None:
        """Damage one bit on the disk."""
        node = self._file(path)
        assert position < node.size
        self._damage(node, Write(position, bytes([node.visible[position] ^ (1 << bit)])))

    def cut(self, path: str, size: int) -> None:
        """Lose the end of a file."""
        self._damage(self._file(path), Resize(size))

    # --- Filesystem

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        self.check_alive()
        directory, name = self._place(path)
        node = directory.visible.get(name) if directory else None
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if node is None:
            if not create:
                raise NotFound(kind="file", name=path)
            if directory is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            created = node = FileNode(self._file_capacity_bytes)
            self._step(f"create {path}", lambda: self._disk.change(Link(directory, name, created)))
        return FakeFile(self, path, node, writable=True)

    def open_for_reading(self, path: str) -> FakeFile:
        self.check_alive()
        try:
            return FakeFile(self, path, self._file(path), writable=False)
        except FileNotFoundError:
            raise NotFound(kind="file", name=path) from None

    def sizes(self, directory: str) -> dict[str, int]:
        self.check_alive()
        node = self._directory(directory)
        children = node.visible if node else {}
        return {name: file.size for name, file in children.items() if isinstance(file, FileNode)}

    def directories(self, directory: str) -> list[str]:
        self.check_alive()
        node = self._directory(directory)
        children = node.visible if node else {}
        return sorted(name for name, node in children.items() if isinstance(node, DirectoryNode))

    def make_directory(self, path: str, *, durable: bool = True) -> None:
        self.check_alive()
        if self._directory(path) is not None:
            return
        parent_path = os.path.dirname(path)
        self.make_directory(parent_path, durable=durable)
        parent, name = self._place(path)
        assert parent is not None
        link = Link(parent, name, DirectoryNode())
        self._step(f"create {path}/", lambda: self._disk.change(link))
        if durable:
            self.sync_directory(parent_path)

    def sync_directory(self, path: str) -> None:
        def sync() -> None:
            directory = self._directory(path)
            if directory is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if self._sync_fails(path):
                self._disk.lose_pending_of(directory)
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            self._disk.sync(directory)

        self._step(f"sync_directory {path}", sync)

    def rename(self, source: str, target: str) -> None:
        def rename() -> None:
            old, old_name = self._place(source)
            new, new_name = self._place(target)
            if old is None or new is None or old_name not in old.visible:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
            node = old.visible[old_name]
            replaced = new.visible.get(new_name)
            if node is replaced:
                return
            if isinstance(replaced, DirectoryNode) and replaced.visible:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
            self._disk.change(Link(old, old_name, None), Link(new, new_name, node))
            self._forget_name_of(replaced)

        self._step(f"rename {source} -> {target}", rename)

    def remove(self, path: str) -> None:
        self.check_alive()
        directory, name = self._place(path)
        node = directory.visible.get(name) if directory else None
        if directory is None or node is None:
            return
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)

        def remove() -> None:
            self._disk.change(Link(directory, name, None))
            self._forget_name_of(node)

        self._step(f"remove {path}", remove)

    def remove_directory(self, path: str) -> None:
        self.check_alive()
        directory, name = self._place(path)
        node = directory.visible.get(name) if directory else None
        if directory is None or node is None:
            return
        if isinstance(node, FileNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if node.visible:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._step(f"remove {path}/", lambda: self._disk.change(Link(directory, name, None)))

    def lock(self, path: str, owner: str) -> FakeLock:
        self.check_alive()
        if path in self._holders:
            raise DirectoryLocked(path=os.path.dirname(path), holder=self._holders[path])
        file = self.open(path, create=True)
        file.resize(0)
        file.write([f"{owner}\n".encode()], 0)
        file.close()
        self._holders[path] = owner
        return FakeLock(self._holders, path)

    # --- what FakeFile stands on

    def _write(self, path: str, node: FileNode, position: int, data: bytes) -> None:
        def write(data: bytes) -> None:
            if any(fnmatch(path, pattern) for pattern in self.full_paths):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            missing = node.missing_sectors(position, len(data))
            if self.space_bytes is not None:
                room = max(0, self.space_bytes // SECTOR_BYTES - self._used_sectors)
                if len(missing) > room:
                    # A real disk stores what fits, and fails only then.
                    fitting = data[: max(0, missing[room] * SECTOR_BYTES - position)]
                    self._used_sectors += room
                    node.write(position, fitting)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self._used_sectors += len(missing)
            node.write(position, data)

        self._step(
            f"write {path} {len(data)} bytes at {position}",
            lambda: write(data),
            half=lambda: write(data[: len(data) // 2]),
        )

    def _resize(self, path: str, node: FileNode, size: int) -> None:
        def resize() -> None:
            before = len(node.sectors)
            node.resize(size)
            self._used_sectors += len(node.sectors) - before

        self._step(f"resize {path} to {size}", resize)

    def _sync(self, path: str, node: FileNode) -> None:
        def sync() -> None:
            if self._sync_fails(path):
                node.pending.clear()
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            node.sync()

        self._step(f"sync {path}", sync)

    def _release(self, node: FileNode) -> None:
        """Return the space of a file that has no name and no handle."""
        if not node.has_name and node.handles == 0:
            self._used_sectors -= len(node.sectors)
            node.sectors.clear()

    def check_alive(self) -> None:
        """Raises Crash when the process is gone."""
        if self._crashed:
            raise Crash(self._crashed)

    # --- helpers

    def _step(
        self, what: str, effect: Callable[[], None], half: Callable[[], None] | None = None
    ) -> None:
        """Count an operation and carry it out, unless this is where the crash comes."""
        with self._one_at_a_time:
            self.check_alive()
            self.operations.append(what)
            moment = self._crash_moment if self.operation_count == self._crash_at else None
            if moment == "halfway" and half:
                with suppress(OSError):
                    half()
            if moment is None or moment == "after":
                effect()
            if moment:
                self._crashed = f"{moment} operation {self.operation_count}: {what}"
                raise Crash(self._crashed)

    def _sync_fails(self, path: str) -> bool:
        for fault in self._sync_faults:
            if fault.count > 0 and fnmatch(path, fault.pattern):
                if fault.spared > 0:
                    fault.spared -= 1
                else:
                    fault.count -= 1
                    return True
        return False

    def _place(self, path: str) -> tuple[DirectoryNode | None, str]:
        """The directory that a path lies in, if there is one, and its name in there."""
        directory, name = os.path.split(path)
        return self._directory(directory), name

    def _directory(self, path: str) -> DirectoryNode | None:
        node: FileNode | DirectoryNode | None = self._disk.root
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if isinstance(node, FileNode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            node = node.visible.get(name) if node else None
        if isinstance(node, FileNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _file(self, path: str) -> FileNode:
        directory, name = self._place(path)
        node = directory.visible.get(name) if directory else None
        if not isinstance(node, FileNode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _damage(self, node: FileNode, change: Write | Resize) -> None:
        before = len(node.sectors)
        node.damage(change)
        self._used_sectors += len(node.sectors) - before

    def _forget_name_of(self, node: FileNode | DirectoryNode | None) -> None:
        if isinstance(node, FileNode):
            node.has_name = False
            self._release(node)


class FakeFile:
    """Implements `File`."""

    def __init__(
        self, filesystem: FakeFilesystem, path: str, node: FileNode, *, writable: bool
    ) -> None:
        self.path = path
        self._filesystem = filesystem
        self._node: FileNode | None = node
        self._writable = writable
        node.handles += 1

    def size(self) -> int:
        return self._opened().size

    def write(self, parts: Sequence[Buffer], position: int) -> None:
        self._filesystem._write(self.path, self._changeable(), position, b"".join(parts))

    def read(self, position: int, size: int) -> bytes:
        node = self._opened()
        return node.visible[position : max(position, min(position + size, node.size))]

    def written_end(self) -> int:
        node = self._opened()
        return min(node.size, (max(node.sectors, default=-1) + 1) * SECTOR_BYTES)

    def map(self) -> memoryview:
        node = self._opened()
        return memoryview(node.visible)[: node.size].toreadonly()

    def resize(self, size: int) -> None:
        self._filesystem._resize(self.path, self._changeable(), size)

    def sync(self) -> None:
        self._filesystem._sync(self.path, self._opened())

    def close(self) -> None:
        if self._node is not None:
            node, self._node = self._node, None
            node.handles -= 1
            self._filesystem._release(node)

    def _opened(self) -> FileNode:
        self._filesystem.check_alive()
        if self._node is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._node

    def _changeable(self) -> FileNode:
        node = self._opened()
        if not self._writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return node


class FakeLock:
    def __init__(self, holders: dict[str, str], path: str) -> None:
        self._holders = holders
        self._path = path
        self._held = True

    def release(self) -> None:
        if self._held:
            del self._holders[self._path]
            self._held = False


def _sectors_in(directory: DirectoryNode) -> int:
    return sum(
        len(node.sectors) if isinstance(node, FileNode) else _sectors_in(node)
        for node in directory.visible.values()
    )
