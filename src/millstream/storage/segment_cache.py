"""Keeps the most recently read closed segments mapped, and no more than it may.

A mapped segment costs two file handles. The least recently used one is evicted when there are too
many: its owner is told, and its mapping and handles go with the last view handed out from it.

Invariant: at most `capacity` readers are held.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from millstream.storage.segment_reader import SegmentReader


class SegmentCache:
    """Least-recently-used cache of segment readers, by the path of their segment."""

    def __init__(
        self, capacity: int, on_evict: Callable[[str, SegmentReader], None] | None = None
    ) -> None:
        self._capacity = capacity
        self._on_evict = on_evict
        # Logs are opened and closed by several threads.
        self._lock = threading.Lock()
        self._readers: OrderedDict[str, SegmentReader] = OrderedDict()

    def __len__(self) -> int:
        return len(self._readers)

    def get(self, stem: str) -> SegmentReader | None:
        with self._lock:
            reader = self._readers.get(stem)
            if reader is not None:
                self._readers.move_to_end(stem)
            return reader

    def put(self, stem: str, reader: SegmentReader) -> None:
        evicted = []
        with self._lock:
            self._readers[stem] = reader
            self._readers.move_to_end(stem)
            while len(self._readers) > self._capacity:
                evicted.append(self._readers.popitem(last=False))
        for pair in evicted:
            self._evict(*pair)

    def drop(self, stem: str) -> None:
        """Let go of a segment whose files are replaced or removed. Absent is fine."""
        with self._lock:
            reader = self._readers.pop(stem, None)
        if reader is not None:
            self._evict(stem, reader)

    def _evict(self, stem: str, reader: SegmentReader) -> None:
        if self._on_evict is not None:
            self._on_evict(stem, reader)
