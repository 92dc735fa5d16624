"""The file of an index that is being written, open only while it is.

Entries gather in memory and are written in chunks; the file is opened for each. An index that is
being written is never trusted after a crash, so there is no hurry, and a log that is only appended
to holds one file open, not three. A mapping for readers holds one more.

Invariant: `size` bytes were written whole, unless somebody took the file away, which the checksums
of its entries tell. What a failed write left behind them is overwritten by
the next, which writes the same entries and more.
"""

from __future__ import annotations

from millstream.storage.filesystem import Filesystem, replace_content
from millstream.storage.offset_index import map_index

_CHUNK_BYTES = 4096


class EntryFile:
    """Appends the entries of one index, and maps what has been written."""

    __slots__ = ("_filesystem", "_view", "path", "pending", "size")

    def __init__(self, filesystem: Filesystem, path: str, pending: bytearray, *, size: int) -> None:
        self._filesystem = filesystem
        self._view = memoryview(b"")
        self.path = path
        self.size = size
        # The entries that wait, which an IndexBuilder adds to.
        self.pending = pending

    @classmethod
    def create(cls, filesystem: Filesystem, path: str, pending: bytearray) -> EntryFile:
        replace_content(filesystem, path, b"")
        return cls(filesystem, path, pending, size=0)

    def flush_if_many(self) -> None:
        """Write the entries that wait, once it pays. Raises OSError."""
        if len(self.pending) >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the entries that wait. Raises OSError, and then they wait on."""
        if not self.pending:
            return
        file = self._filesystem.open(self.path, create=True)
        try:
            file.write([bytes(self.pending)], self.size)
        finally:
            file.close()
        self.size += len(self.pending)
        self.pending.clear()

    def view(self) -> memoryview:
        """A mapping of what has been written."""
        if len(self._view) < self.size:
            self._view = map_index(self._filesystem, self.path)
        return self._view

    def sync(self) -> None:
        """Return when what has been written is on the disk. Any thread."""
        file = self._filesystem.open(self.path, create=True)
        try:
            file.sync()
        finally:
            file.close()
