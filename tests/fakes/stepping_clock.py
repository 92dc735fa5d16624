"""A wall clock that can be set, while the time of the event loop goes on as before."""

from __future__ import annotations

from millstream.clock import Clock


class SteppingClock:
    def __init__(self, steady: Clock) -> None:
        self._steady = steady
        self.stepped_ms = 0

    def now_ms(self) -> int:
        return self._steady.now_ms() + self.stepped_ms

    def step_ms(self, milliseconds: int) -> None:
        """Set it ahead, or back by a number below 0."""
        self.stepped_ms += milliseconds
