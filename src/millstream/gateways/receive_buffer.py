"""The bytes that a connection has received and not yet used.

As long as only whole requests arrive, all connections read into one shared buffer: an idle
connection costs no memory, and the buffer stays warm. A request that arrives in pieces gets a
buffer of the connection's own, which is kept for the next one unless somebody else needs the
memory. It is reserved for all of the request at once, so that who has begun can finish; it is
allocated as bytes arrive, so that an announcement alone costs nothing.

Invariant: `start <= end`; between two turns of the event loop nothing of a connection is left in
the shared buffer. Own buffers are part of a budget that bounds their sum. Who has to wait for one
keeps what it has received so far, which is at most `_TIGHT_BYTES` while others wait already.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.broker.memory_budget import MemoryBudget

_STEP_BYTES = 64 * 1024
_WORTH_A_READ_BYTES = 4 * 1024
_TIGHT_BYTES = 4 * 1024
SHARED_BYTES = 256 * 1024


def reserved_bytes(needed: int) -> int:
    """What is reserved for a request of so many bytes, with its size."""
    return -(-needed // _STEP_BYTES) * _STEP_BYTES


class BufferPool:
    """The own buffers of one listener, which are part of the broker's memory budget."""

    def __init__(self, budget: MemoryBudget, use: str, *, limit_bytes: int | None = None) -> None:
        """`use` names it in the budget. With `limit_bytes` it has a limit of its own, too."""
        self.shared = bytearray(SHARED_BYTES)
        self.shared_view = memoryview(self.shared)
        self.holders: set[ReceiveBuffer] = set()
        """Everyone with a buffer of its own."""
        self._budget = budget
        self._use = use
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        """What is reserved for own buffers."""
        budget.reclaim.append(self._reclaim)

    @property
    def is_tight(self) -> bool:
        """Whether someone waits for memory, so that nobody should keep what it does not need."""
        return self._budget.is_tight

    @property
    def waiting(self) -> int:
        """How many wait for memory."""
        return self._budget.waiting(self._use)

    def take(self, size: int) -> bool:
        """Whether there is room for so much; then it is taken."""
        limit = self._limit_bytes
        if limit is not None and self.used_bytes + size > limit:
            self._reclaim()
            if self.used_bytes + size > limit:
                return False
        if not self._budget.take(self._use, size):
            return False
        self.used_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Those who wait try again."""
        self.used_bytes -= size
        self._budget.give_back(self._use, size)

    def wait(self, retry: Callable[[], None]) -> None:
        """Call when memory was given back."""
        self._budget.wait(self._use, retry)

    def leave(self, retry: Callable[[], None]) -> None:
        """Wait no longer, if ever."""
        self._budget.leave(retry)

    def _reclaim(self) -> None:
        """Take away what is kept for the next request."""
        for holder in list(self.holders):
            freed = holder.yield_bytes()
            self.used_bytes -= freed
            self._budget.release(self._use, freed)


class ReceiveBuffer:
    """The receiving end of one connection."""

    __slots__ = ("_own_bytes", "_pool", "end", "raw", "start", "view")

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._own_bytes = 0
        self.raw = pool.shared
        self.view = pool.shared_view
        self.start = 0
        self.end = 0

    @property
    def is_hoarding(self) -> bool:
        """Whether memory is kept for what lies here."""
        return self._own_bytes > 0 and self.start < self.end

    def space(self) -> memoryview:
        """Where to receive into. Never empty after `settle` was told how much is needed."""
        if self._pool.is_tight and not self._own_bytes:
            return self.view[self.end : self.end + _TIGHT_BYTES]
        return self.view[self.end :]

    def settle(self, needed: int) -> bool:
        """Keep what is left and make room for a request of `needed` bytes in all.

        False when the pool has no room for it now: what is left is kept all the same.
        """
        left = self.end - self.start
        if not left:
            self.start = self.end = 0
            if not self._own_bytes or self._pool.is_tight:
                self.release()
            return True
        if self._own_bytes and self.start + needed <= len(self.view):
            return True
        if needed <= self._own_bytes or self._reserve(needed):
            self._make_room(needed, left)
            return True
        if not self._own_bytes:
            # The shared buffer is the next connection's. This much is not asked for.
            self._renew(left)
        return False

    def _reserve(self, needed: int) -> bool:
        size = reserved_bytes(needed)
        if not self._pool.take(size - self._own_bytes):
            return False
        self._own_bytes = size
        self._pool.holders.add(self)
        return True

    def _make_room(self, needed: int, left: int) -> None:
        """Have room for the next bytes of a request for which memory is reserved."""
        size = len(self.view)
        if self.raw is self._pool.shared:
            self._renew(min(self._own_bytes, max(_STEP_BYTES, 2 * left)))
        elif needed <= size:
            self._move(self.raw, self.view)
        elif size - self.end < _WORTH_A_READ_BYTES:
            self._renew(min(self._own_bytes, max(_STEP_BYTES, 2 * size)))

    def release(self) -> None:
        """Give an empty buffer back."""
        if own := self.yield_bytes():
            self._pool.give_back(own)

    def yield_bytes(self) -> int:
        """As `release`, for who gives back what was freed here."""
        if self.start < self.end:
            return 0
        own, self._own_bytes = self._own_bytes, 0
        self._pool.holders.discard(self)
        self.raw, self.view = self._pool.shared, self._pool.shared_view
        self.start = self.end = 0
        return own

    def close(self) -> None:
        """Drop all that is left."""
        self.start = self.end = 0
        self.release()

    def _renew(self, size: int) -> None:
        raw = bytearray(size)
        self._move(raw, memoryview(raw))

    def _move(self, raw: bytearray, view: memoryview) -> None:
        left = self.end - self.start
        view[:left] = self.view[self.start : self.end]
        self.raw, self.view = raw, view
        self.start, self.end = 0, left
