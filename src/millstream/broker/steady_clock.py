"""Time for timeouts: that of the wall when first asked, from then on that of the event loop.

Invariant: it never goes back, and an hour takes an hour, whatever is done to the machine's clock.
"""

from __future__ import annotations

import asyncio

from millstream.clock import Clock


class SteadyClock:
    def __init__(self, wall: Clock) -> None:
        self._wall = wall
        self._offset_ms: float | None = None

    def now_ms(self) -> int:
        """Milliseconds since the epoch. Asked only while the event loop runs."""
        loop_ms = asyncio.get_running_loop().time() * 1000
        if self._offset_ms is None:
            self._offset_ms = self._wall.now_ms() - loop_ms
        return round(self._offset_ms + loop_ms)
