"""A file that only grows at its end, with a hole kept ahead of the writer.

The file is longer than what has been written: extending it in large steps spares the filesystem a
change of size per append, which makes a sync 1.6 times as fast, and lets a mapping made once see
what is appended later. The hole is sparse and costs no disk.

Invariant: `size` bytes were written whole; what lies behind them is zeros, or the remains of a
write that failed, until it is cut off.
After a crash: the size is unknown, and is found by reading the content.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.storage.filesystem import Buffer, File


class GrowingFile:
    """Appends to one file and maps it for readers."""

    __slots__ = ("_extent", "_file", "_step_bytes", "_view", "size")

    def __init__(self, file: File, size: int, step_bytes: int) -> None:
        self._file = file
        self._step_bytes = step_bytes
        self._extent = file.size()
        self._view = memoryview(b"")
        self.size = size

    def append(self, parts: Sequence[Buffer], total_bytes: int) -> None:
        """Write all parts, or none of them and raise OSError."""
        end = self.size + total_bytes
        try:
            if end > self._extent:
                extent = -(-end // self._step_bytes) * self._step_bytes
                self._file.resize(extent)
                self._extent = extent
            self._file.write(parts, self.size)
        except OSError:
            # Whole batches may have reached the file. They were not accepted, and must not be
            # found there by recovery, whatever is appended next and lost in a crash.
            self.cut()
            self._file.sync()
            raise
        self.size = end

    def cut(self) -> bool:
        """End the file where the writing ended; whether that changed it."""
        is_longer = self._extent != self.size
        self._file.resize(self.size)
        self._extent = self.size
        return is_longer

    def view(self) -> memoryview:
        """A mapping of at least what has been written so far."""
        if len(self._view) < self.size:
            self._view = self._file.map()
        return self._view

    def sync(self) -> None:
        """Return when what has been written is on the disk. Any thread."""
        self._file.sync()

    def close(self) -> None:
        self._view = memoryview(b"")
        self._file.close()
