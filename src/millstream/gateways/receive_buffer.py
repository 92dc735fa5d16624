"""The bytes that a connection has received and not yet used.

As long as only whole requests arrive, all connections read into one shared buffer: an idle
connection costs no memory, and the buffer stays warm. A request that arrives in pieces gets a
buffer of the connection's own, which is kept for the next one unless somebody else needs the
memory. It is reserved for all of the request at once, so that who has begun can finish; it is
allocated as bytes arrive, so that an announcement alone costs nothing.

Invariant: `start <= end`; between two turns of the event loop nothing of a connection is left in
the shared buffer. Own buffers are taken from a pool that bounds their sum. Who has to wait for one
keeps what it has received so far, which is at most `_TIGHT_BYTES` while others wait already.
"""

from __future__ import annotations

from collections.abc import Callable

_STEP_BYTES = 64 * 1024
_WORTH_A_READ_BYTES = 4 * 1024
_TIGHT_BYTES = 4 * 1024
SHARED_BYTES = 256 * 1024


def reserved_bytes(needed: int) -> int:
    """What is reserved for a request of so many bytes, with its size."""
    return -(-needed // _STEP_BYTES) * _STEP_BYTES


class BufferPool:
    """Bounds the memory of all own buffers, and keeps those in line who want more of it."""

    def __init__(self, limit_bytes: int) -> None:
        self.shared = bytearray(SHARED_BYTES)
        self.shared_view = memoryview(self.shared)
        self.holders: set[ReceiveBuffer] = set()
        """Everyone with a buffer of its own."""
        self._limit_bytes = self._free_bytes = limit_bytes
        # In order; nobody stands here twice.
        self._line: dict[Callable[[], None], None] = {}

    @property
    def is_tight(self) -> bool:
        """Whether someone waits for memory, so that nobody should keep what it does not need."""
        return bool(self._line)

    @property
    def used_bytes(self) -> int:
        """What is reserved for own buffers."""
        return self._limit_bytes - self._free_bytes

    @property
    def waiting(self) -> int:
        """How many wait for memory."""
        return len(self._line)

    def take(self, size: int) -> bool:
        """Whether there is room for so much; then it is taken. Who fits in need not wait in line:
        a large request must not hold up the small ones.
        """
        if size > self._free_bytes:
            for holder in list(self.holders):
                self._free_bytes += holder.yield_bytes()
            if size > self._free_bytes:
                return False
        self._free_bytes -= size
        return True

    def give_back(self, size: int) -> None:
        self._free_bytes += size
        # Each tries again, as long as there is something to be had; who still finds no room gets
        # in line again.
        line, self._line = self._line, {}
        untried = iter(line)
        while self._free_bytes >= _STEP_BYTES and (retry := next(untried, None)) is not None:
            retry()
        self._line.update(dict.fromkeys(untried))

    def wait(self, retry: Callable[[], None]) -> None:
        """Call when memory was given back."""
        self._line[retry] = None

    def leave(self, retry: Callable[[], None]) -> None:
        """Wait no longer, if ever."""
        self._line.pop(retry, None)


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
