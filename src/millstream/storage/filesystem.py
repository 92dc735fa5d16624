"""The narrow part of the operating system that the storage engine stands on.

Everything that touches a disk goes through `Filesystem` and `File`, so that tests can put a
faulty disk underneath the very code that runs in production.

Rule after a crash: only what `File.sync` and `Filesystem.sync_directory` covered is certain to
be there. A file's bytes are made durable by the first; that it exists, and under which name, by
the second.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

from millstream.errors import DirectoryLocked, DiskFull, NotFound, TooManyFiles, Unavailable

# The kernel takes at most this many parts in one pwritev (IOV_MAX on Linux).
_MAX_PARTS = 1024

# What the kernel says of a disk, or of somebody's share of it, that is full.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

# What it says when the process, or the machine, can open no more files for now.
TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """One open file. Positions are absolute; there is no cursor."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def write(self, parts: Sequence[Buffer], position: int) -> None:
        """Write all parts, one after the other, or raise OSError."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def written_end(self) -> int:
        """A position from which on the file was never written, so that all is zeros there.

        As near as the filesystem can tell without reading; at worst the size.
        """

    def map(self) -> memoryview:
        """A read-only view of the file at its present size; empty for an empty file.

        Later writes inside it are seen through it. It stays valid, for as long as someone
        holds it, after the file is closed, renamed or removed; not if the file is made shorter.
        """

    def resize(self, size: int) -> None:
        """Cut the file, or extend it with a hole of zeros."""

    def sync(self) -> None:
        """Return when the bytes written so far are on the disk."""

    def close(self) -> None: ...


@runtime_checkable
class Filesystem(Protocol):
    """Opens files and changes names."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. NotFound when absent, unless `create`.

        To create a file where there is no directory is an OSError like any other.
        """

    def open_for_reading(self, path: str) -> File:
        """Open for reading, with a hint to the OS that it will be read in sequence."""

    def sizes(self, directory: str) -> dict[str, int]:
        """Name and size of every regular file in a directory; empty when it does not exist."""

    def directories(self, directory: str) -> list[str]:
        """Names of the directories in a directory; empty when it does not exist."""

    def make_directory(self, path: str, *, durable: bool = True) -> None:
        """Create it and its parents where they are missing, and sync the names if `durable`."""

    def sync_directory(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomically replaces the target."""

    def remove(self, path: str) -> None:
        """Absent is fine."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; absent is fine."""

    def lock(self, path: str, owner: str) -> DirectoryLock:
        """Hold an exclusive lock until released or this process ends."""


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class LocalFile:
    """A file of the machine's own filesystem."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write(self, parts: Sequence[Buffer], position: int) -> None:
        if len(parts) > _MAX_PARTS:
            for first in range(0, len(parts), _MAX_PARTS):
                some = parts[first : first + _MAX_PARTS]
                self.write(some, position)
                position += sum(map(len, some))
            return
        written = os.pwritev(self._fd, parts, position)
        if written < sum(map(len, parts)):
            self._write_rest(parts, position, written)

    def _write_rest(self, parts: Sequence[Buffer], position: int, written: int) -> None:
        rest = memoryview(b"".join(parts))
        while written < len(rest):
            written += os.pwrite(self._fd, rest[written:], position + written)

    def read(self, position: int, size: int) -> bytes:
        content = os.pread(self._fd, size, position)
        if len(content) == size or not content:
            return content
        # The kernel reads at most 2 GiB at once.
        return content + self.read(position + len(content), size - len(content))

    def written_end(self) -> int:
        end, size = 0, self.size()
        try:
            while end < size:
                start = os.lseek(self._fd, end, os.SEEK_DATA)
                end = os.lseek(self._fd, start, os.SEEK_HOLE)
        except OSError as error:
            # There is no more data; or a filesystem that cannot tell.
            return end if error.errno == errno.ENXIO else size
        return end

    def map(self) -> memoryview:
        size = self.size()
        if size == 0:
            return memoryview(b"")
        mapping = mmap.mmap(self._fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        mapping.madvise(mmap.MADV_SEQUENTIAL)
        return memoryview(mapping)

    def resize(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LocalFilesystem:
    """The machine's own filesystem."""

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return LocalFile(path, os.open(path, flags, 0o644))
        except FileNotFoundError:
            if create:
                raise
            raise NotFound(kind="file", name=path) from None

    def open_for_reading(self, path: str) -> LocalFile:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound(kind="file", name=path) from None
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return LocalFile(path, fd)

    def sizes(self, directory: str) -> dict[str, int]:
        try:
            entries = os.scandir(directory)
        except FileNotFoundError:
            return {}
        sizes = {}
        with entries:
            for entry in entries:
                # A file that is removed meanwhile must not make the others disappear.
                with suppress(FileNotFoundError):
                    if entry.is_file():
                        sizes[entry.name] = entry.stat().st_size
        return sizes

    def directories(self, directory: str) -> list[str]:
        try:
            with os.scandir(directory) as entries:
                return sorted(e.name for e in entries if e.is_dir())
        except FileNotFoundError:
            return []

    def make_directory(self, path: str, *, durable: bool = True) -> None:
        path = os.path.abspath(path)
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        self.make_directory(parent, durable=durable)
        with suppress(FileExistsError):
            os.mkdir(path)
        if durable:
            self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.remove(path)

    def remove_directory(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.rmdir(path)

    def lock(self, path: str, owner: str) -> LocalLock:
        return LocalLock(path, owner)


class LocalLock:
    """An flock on a file that names its holder.

    The kernel drops the lock when the holder dies, so a stale file never locks anyone out.
    """

    def __init__(self, path: str, owner: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 4096, 0).decode("utf-8", "replace").strip()
            os.close(self._fd)
            raise DirectoryLocked(
                path=os.path.dirname(path), holder=holder or "another process"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{owner}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def passing_trouble(error: OSError, path: str) -> Unavailable | None:
    """What to tell of an error that may pass by itself; None when the disk has failed."""
    if error.errno in NO_SPACE:
        return DiskFull(path)
    if error.errno in TOO_MANY_FILES:
        return TooManyFiles(path)
    return None


def write_atomically(filesystem: Filesystem, path: str, content: bytes) -> None:
    """Replace a small file so that a crash leaves either the old content or the new, whole."""
    temporary = f"{path}.tmp"
    replace_content(filesystem, temporary, content, sync=True)
    filesystem.rename(temporary, path)
    filesystem.sync_directory(os.path.dirname(path))


def replace_content(
    filesystem: Filesystem, path: str, content: Buffer, *, sync: bool = False
) -> None:
    """Write a whole file in place. A crash leaves anything, unless it comes after a sync."""
    file = filesystem.open(path, create=True)
    try:
        file.resize(0)
        file.write([content], 0)
        if sync:
            file.sync()
    finally:
        file.close()


def map_whole(filesystem: Filesystem, path: str) -> memoryview:
    """A read-only view of a file at its present size. Raises NotFound."""
    file = filesystem.open_for_reading(path)
    try:
        return file.map()
    finally:
        file.close()


def read_whole(filesystem: Filesystem, path: str) -> bytes | None:
    """The content of a small file, or None when there is none."""
    try:
        file = filesystem.open_for_reading(path)
    except NotFound:
        return None
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def remove_tree(filesystem: Filesystem, path: str) -> None:
    """Remove a directory with all that is in it. Raises OSError."""
    for name in filesystem.sizes(path):
        filesystem.remove(os.path.join(path, name))
    for name in filesystem.directories(path):
        remove_tree(filesystem, os.path.join(path, name))
    filesystem.remove_directory(path)
