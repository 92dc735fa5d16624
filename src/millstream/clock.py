"""The only place that asks the operating system what time it is.

Everything else takes a `Clock`, so that tests and the simulation decide the time.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time in milliseconds since the epoch."""

    def now_ms(self) -> int: ...


ticks_ns = time.perf_counter_ns
"""Nanoseconds from no particular moment: to measure how long something takes, and only that."""


class SystemClock:
    """The machine's wall clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class MonotonicClock:
    """Never goes back, and counts from no particular moment: for deadlines, not for dates."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance_ms(self, milliseconds: int) -> None:
        self._now_ms += milliseconds
