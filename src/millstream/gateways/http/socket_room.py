"""How much of one client may be under way at once: so many requests, of so many bytes together."""

from __future__ import annotations

import asyncio


class Room:
    """Who finds no room waits. A request that is larger than all of it goes alone."""

    def __init__(self, *, requests: int, size_bytes: int) -> None:
        self._free_requests = requests
        self._free_bytes = size_bytes
        self._whole_bytes = size_bytes
        self._freed = asyncio.Event()

    async def enter(self, size_bytes: int) -> None:
        """Return when there is room. Only one may wait at a time."""
        while not self._fits(size_bytes):
            self._freed.clear()
            await self._freed.wait()
        self._free_requests -= 1
        self._free_bytes -= size_bytes

    def leave(self, size_bytes: int) -> None:
        self._free_requests += 1
        self._free_bytes += size_bytes
        self._freed.set()

    def _fits(self, size_bytes: int) -> bool:
        is_empty = self._free_bytes == self._whole_bytes
        return self._free_requests > 0 and (is_empty or size_bytes <= self._free_bytes)
