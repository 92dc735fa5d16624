"""How long one operation is tried for, and the waits between its attempts.

Invariant: no wait goes beyond the deadline; after it, the last cause is raised as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from millstream.client.backoff import Backoff
from millstream.clock import Clock
from millstream.errors import MillstreamError

_FIRST_S = 0.02
_LIMIT_S = 1.0


def sleep(seconds: float) -> None:
    Event().wait(seconds)


class Patience:
    """The patience for one operation."""

    def __init__(
        self, timeout_s: float, *, clock: Clock, sleep: Callable[[float], None] = sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._backoff = Backoff(first_s=_FIRST_S, limit_s=_LIMIT_S)
        self._timeout_ms = round(timeout_s * 1000)
        self._deadline_ms = clock.now_ms() + self._timeout_ms

    @property
    def timeout_ms(self) -> int:
        return self._timeout_ms

    @property
    def left_s(self) -> float:
        """Never less than a little, so that what is begun can fail by itself."""
        return max((self._deadline_ms - self._clock.now_ms()) / 1000, 0.01)

    @property
    def is_over(self) -> bool:
        return self._clock.now_ms() >= self._deadline_ms

    def renew(self) -> None:
        """There was progress: all the time is left again."""
        self._deadline_ms = self._clock.now_ms() + self._timeout_ms
        self._backoff.reset()

    def wait(self, cause: MillstreamError) -> None:
        """Wait before the next attempt. Raises the cause when there is no time for one."""
        wait_s = self._backoff.next_s()
        if self._clock.now_ms() + wait_s * 1000 >= self._deadline_ms:
            raise cause
        self._sleep(wait_s)
