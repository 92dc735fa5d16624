"""A limit to what may be under way, for which later ones wait in order."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """So many places, taken some at a time.

    Invariant: nobody overtakes who waits.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free(self) -> int:
        return self._free

    async def take(self, count: int = 1) -> None:
        """Wait for places; more than there are at all counts as all of them."""
        count = min(count, self.limit)
        if self._free >= count and not self._waiting:
            self._free -= count
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(count)
            else:
                self._admit()
            raise

    def give(self, count: int = 1) -> None:
        self._free += min(count, self.limit)
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            count, turn = self._waiting[0]
            if not turn.cancelled():
                if count > self._free:
                    return
                self._free -= count
                turn.set_result(None)
            self._waiting.popleft()
