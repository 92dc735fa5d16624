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

        self._started_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch. Asked only while the event loop runs."""
        loop_ms = asyncio.get_running_loop().time() * 1000
        if self._offset_ms is None:
            self._started_ms = self._wall.now_ms()
            self._offset_ms = self._started_ms - loop_ms
        return round(self._offset_ms + loop_ms)

    @property
    def started_ms(self) -> int:
        """When it was first asked, which was the wall clock's time, too."""
        self.now_ms()
        return self._started_ms

    @property
    def wall_ahead_ms(self) -> int:
        """How far the wall clock was set ahead since then; below 0 if it was set back."""
        steady_ms = self.now_ms()
        return self._wall.now_ms() - steady_ms
