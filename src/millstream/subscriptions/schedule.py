"""Offsets by the time at which something is to happen to them.

An entry is one number, the time above the offset, so that 100,000 of them take few megabytes. One
that no longer counts stays until its time comes: whoever takes it looks whether it does.

Invariant: `pop_due` gives each entry once, in order of time.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from millstream.settings.domain import LONG_MAX

_OFFSET_BITS = 63
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_SPARE = 1024


class Schedule:
    """A heap of times and offsets."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at_ms: int, offset: int) -> None:
        heappush(self._heap, at_ms << _OFFSET_BITS | offset)

    @property
    def next_ms(self) -> int | None:
        """The earliest time."""
        return self._heap[0] >> _OFFSET_BITS if self._heap else None

    def pop_due(self, now_ms: int, max_count: int = LONG_MAX) -> list[tuple[int, int]]:
        """Take out those whose time has come, the oldest first: time and offset of each."""
        heap, due = self._heap, list[tuple[int, int]]()
        limit = (now_ms + 1) << _OFFSET_BITS
        while heap and heap[0] < limit and len(due) < max_count:
            entry = heappop(heap)
            due.append((entry >> _OFFSET_BITS, entry & _OFFSET_MASK))
        return due

    def prune(self, living: int, is_alive: Callable[[int, int], bool]) -> None:
        """Drop what no longer counts, if that is most of it; `living` entries do."""
        if len(self._heap) > 2 * living + _SPARE:
            self._heap = [
                entry
                for entry in self._heap
                if is_alive(entry >> _OFFSET_BITS, entry & _OFFSET_MASK)
            ]
            heapify(self._heap)
