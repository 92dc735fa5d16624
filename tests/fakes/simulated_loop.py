"""An event loop on a clock that moves only when there is nothing to do at its present time.

Timers fire at once, at the right time: an hour of timeouts runs in milliseconds, always in the same
order. Work for a thread is done at once, on the loop. There is no way to wait for a socket.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from millstream.clock import ManualClock

_Result = TypeVar("_Result")


class _JumpingSelector(selectors.SelectSelector):
    """Moves the clock where another selector would sleep."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everything waits, and for nothing"
        # A float of seconds since the epoch is off by less than a thousandth of a millisecond.
        self._clock.advance_ms(math.ceil(timeout * 1000 - 0.01))
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return super().get_map()


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(_JumpingSelector(clock))
        self._clock = clock
        self._clock_resolution = 0.0005

    def time(self) -> float:
        return self._clock.now_ms() / 1000

    def run_in_executor(  # type: ignore[override]  # typed more loosely
        self, executor: object, func: Callable[..., _Result], *args: Any
    ) -> asyncio.Future[_Result]:
        future: asyncio.Future[_Result] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as failure:
            future.set_exception(failure)
        return future


def run_simulated(main: Coroutine[Any, Any, _Result], clock: ManualClock) -> _Result:
    """Like asyncio.run, on a clock."""
    loop = SimulatedLoop(clock)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(cancel_all())
        loop.close()


async def cancel_all() -> None:
    """End every other task of the loop."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
