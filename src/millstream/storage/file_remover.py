"""Files that have left the log and are removed a little later, when no reader can be late.

Invariant: a file is handed out once, no earlier than its delay allows.
After a crash: forgotten; files named `.deleted` are removed when their log is next opened.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class FileRemover:
    """Keeps files until their time has come."""

    def __init__(self) -> None:
        self._files: list[tuple[int, str]] = []

    def add(self, paths: Iterable[str], *, due_ms: int) -> None:
        for path in paths:
            heapq.heappush(self._files, (due_ms, path))

    def take_due(self, now_ms: int) -> list[str]:
        """The files to be removed now."""
        due = []
        while self._files and self._files[0][0] <= now_ms:
            due.append(heapq.heappop(self._files)[1])
        return due
