"""Time that a test can move: an event loop, and a wall clock, that jump together.

Every timer of the broker stands on one of the two, so that all of them move: retention, the session
timeouts of groups, delayed messages, the timeouts of transactions, the pauses of faults.

Invariant: time goes on by itself as it always does, and a jump only ever adds to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from millstream.clock import SystemClock

_Result = TypeVar("_Result")
_SHORT_JUMPS = (1000, 1000, 1000)
_QUIET_TURNS = 3
_MOST_TURNS = 2000
_STEP_S = 0.001


class MovableClock:
    """The machine's wall clock, and what it was moved by."""

    def __init__(self, moved_ms: int = 0) -> None:
        self._wall = SystemClock()
        self.moved_ms = moved_ms

    def now_ms(self) -> int:
        return self._wall.now_ms() + self.moved_ms


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers come early when the clock is moved."""

    def __init__(self, clock: MovableClock) -> None:
        self._clock = clock
        self._jobs = 0
        super().__init__()
        self.set_default_executor(ThreadPoolExecutor(thread_name_prefix="millstream-work"))

    def time(self) -> float:
        return super().time() + self._clock.moved_ms / 1000

    def run_in_executor(  # type: ignore[override]  # the same, with less said of its arguments
        self, executor: Any, func: Callable[..., _Result], *args: Any
    ) -> asyncio.Future[_Result]:
        job = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        job.add_done_callback(self._job_done)
        return job

    async def advance(self, milliseconds: int) -> None:
        """Move the time; return when what was due by then is done, also in threads.

        One long jump, and some short ones: what takes several looks, as retention does, which first
        rolls a segment and then removes it, gets them.
        """
        short = _SHORT_JUMPS if milliseconds > sum(_SHORT_JUMPS) else ()
        for jump_ms in (milliseconds - sum(short), *short):
            self._clock.moved_ms += jump_ms
            await self._settled()

    async def _settled(self) -> None:
        """Return when there is nothing left to do now."""
        quiet = 0
        for _ in range(_MOST_TURNS):
            await asyncio.sleep(0)
            quiet = 0 if self._is_busy() else quiet + 1
            if quiet == _QUIET_TURNS:
                return
            if self._jobs:
                await asyncio.sleep(_STEP_S)

    def _job_done(self, _: object) -> None:
        self._jobs -= 1

    def _is_busy(self) -> bool:
        """Whether there is anything to do now, besides the one who asks."""
        # asyncio's own, and the same in all versions that we run on.
        ready: Any = getattr(self, "_ready")  # noqa: B009 - mypy does not know it
        scheduled: Any = getattr(self, "_scheduled")  # noqa: B009
        is_due = any(not t.cancelled() and t.when() <= self.time() for t in scheduled)
        return bool(ready or self._jobs or is_due)
