"""A filesystem in the memory of this process, for brokers that keep nothing.

A file lies in address space reserved for the largest size that any of our files can have; pages
that were never written take no memory. So a view of it never moves: it shows later writes, and
outlives the file's name and its handles.

Invariant: a file's bytes from its size on are zeros.
After a crash: gone. A sync has nothing to do, so what is acknowledged is only as durable as the
process.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Sequence

from millstream.errors import DirectoryLocked, NotFound
from millstream.storage.filesystem import Buffer

# Positions in a segment and in its indexes are 32-bit numbers.
_LARGEST_FILE_BYTES = 1 << 31
# Not in the module of every Python that we run on; Linux gives it this number everywhere we do.
_MAP_NORESERVE = 0x4000


class _Content:
    """The bytes of a file, whatever its name is."""

    __slots__ = ("memory", "size", "written_end")

    def __init__(self) -> None:
        self.memory = mmap.mmap(
            -1,
            _LARGEST_FILE_BYTES,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE,
        )
        # Else the first byte of each file could take 2 MiB.
        self.memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.size = 0
        self.written_end = 0

    def write(self, data: bytes, position: int) -> None:
        if not data:
            return
        end = position + len(data)
        self.check(end)
        self.memory[position:end] = data
        self.written_end = max(self.written_end, end)
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        self.check(size)
        if size < self.written_end:
            self._clear(size)
            self.written_end = size
        self.size = size

    def check(self, size: int) -> None:
        if size > _LARGEST_FILE_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    def _clear(self, start: int) -> None:
        """Make zeros of all from a position on, and give whole pages back."""
        page = min(-(-start // mmap.PAGESIZE) * mmap.PAGESIZE, _LARGEST_FILE_BYTES)
        self.memory[start:page] = bytes(page - start)
        if page < self.written_end:
            self.memory.madvise(mmap.MADV_DONTNEED, page, _LARGEST_FILE_BYTES - page)


class MemoryFile:
    """One handle of a file."""

    __slots__ = ("_content", "_is_writable", "path")

    def __init__(self, path: str, content: _Content, *, is_writable: bool = True) -> None:
        self.path = path
        self._content: _Content | None = content
        self._is_writable = is_writable

    def size(self) -> int:
        return self._opened().size

    def write(self, parts: Sequence[Buffer], position: int) -> None:
        self._changeable().write(b"".join(parts), position)

    def read(self, position: int, size: int) -> bytes:
        content = self._opened()
        return content.memory[position : max(position, min(position + size, content.size))]

    def written_end(self) -> int:
        return self._opened().written_end

    def map(self) -> memoryview:
        content = self._opened()
        return memoryview(content.memory)[: content.size].toreadonly()

    def resize(self, size: int) -> None:
        self._changeable().resize(size)

    def sync(self) -> None:
        self._opened()

    def close(self) -> None:
        self._content = None

    def _opened(self) -> _Content:
        if self._content is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._content

    def _changeable(self) -> _Content:
        if not self._is_writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._opened()


class MemoryFilesystem:
    """Files by their absolute path. Any thread may use it."""

    def __init__(self) -> None:
        # What each directory holds, by name: a file's content, or None for a directory.
        self._directories: dict[str, dict[str, _Content | None]] = {"/": {}}
        self._holders: dict[str, str] = {}
        self._lock = threading.Lock()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        with self._lock:
            content = self._file(path)
            if content is None:
                if not create:
                    raise NotFound(kind="file", name=path)
                directory, name = self._place(path)
                content = directory[name] = _Content()
            return MemoryFile(path, content)

    def open_for_reading(self, path: str) -> MemoryFile:
        with self._lock:
            if (content := self._file(path)) is None:
                raise NotFound(kind="file", name=path)
            return MemoryFile(path, content, is_writable=False)

    def sizes(self, directory: str) -> dict[str, int]:
        with self._lock:
            entries = self._directories.get(directory, {})
            return {name: each.size for name, each in entries.items() if each is not None}

    def directories(self, directory: str) -> list[str]:
        with self._lock:
            entries = self._directories.get(directory, {})
            return sorted(name for name, content in entries.items() if content is None)

    def make_directory(self, path: str, *, durable: bool = True) -> None:  # noqa: ARG002 - nothing is
        with self._lock:
            self._make(os.path.abspath(path))

    def sync_directory(self, path: str) -> None:
        with self._lock:
            if path not in self._directories:
                raise _missing(path)

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            old, old_name = self._place(source)
            new, new_name = self._place(target)
            if old_name not in old:
                raise _missing(source)
            new[new_name] = old.pop(old_name)
            if new[new_name] is None:
                self._move(source, target)

    def remove(self, path: str) -> None:
        with self._lock:
            if self._file(path) is not None:
                directory, name = self._place(path)
                del directory[name]

    def remove_directory(self, path: str) -> None:
        with self._lock:
            if self._directories.get(path):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            if self._directories.pop(path, None) is not None:
                directory, name = self._place(path)
                del directory[name]

    def lock(self, path: str, owner: str) -> MemoryLock:
        with self._lock:
            if path in self._holders:
                raise DirectoryLocked(path=os.path.dirname(path), holder=self._holders[path])
            self._holders[path] = owner
        return MemoryLock(self._holders, path)

    def _place(self, path: str) -> tuple[dict[str, _Content | None], str]:
        """The directory that a path lies in, and its name there."""
        parent, name = os.path.split(path)
        directory = self._directories.get(parent)
        if directory is None:
            raise _missing(path)
        return directory, name

    def _file(self, path: str) -> _Content | None:
        parent, name = os.path.split(path)
        return self._directories.get(parent, {}).get(name)

    def _make(self, path: str) -> None:
        if path not in self._directories:
            parent, name = os.path.split(path)
            self._make(parent)
            self._directories[parent][name] = None
            self._directories[path] = {}

    def _move(self, source: str, target: str) -> None:
        """Give a directory, and all below it, another path."""
        entries = self._directories[target] = self._directories.pop(source)
        for name, content in entries.items():
            if content is None:
                self._move(f"{source}/{name}", f"{target}/{name}")


class MemoryLock:
    """A lock that is held as long as its holder's name is there."""

    __slots__ = ("_holders", "_is_held", "_path")

    def __init__(self, holders: dict[str, str], path: str) -> None:
        self._holders = holders
        self._path = path
        self._is_held = True

    def release(self) -> None:
        """Safe to call twice."""
        if self._is_held:
            del self._holders[self._path]
            self._is_held = False


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
