"""Requests that wait for data: woken by an append to one of their partitions, or by their deadline.

Invariant: a waiting request stands in the waiters of each of its partitions until it is answered or
given up, and then in none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from millstream.broker.partition import Partition


class Waiting:
    """One request in the purgatory."""

    __slots__ = ("_attempt", "_is_called", "_loop", "_partitions", "_timer")

    def __init__(
        self,
        partitions: Iterable[Partition],
        *,
        timeout_ms: int,
        attempt: Callable[[bool], bool],
    ) -> None:
        """`attempt(is_last)` tries to answer the request, and says whether it did."""
        self._loop = asyncio.get_running_loop()
        self._attempt = attempt
        self._is_called = False
        self._partitions = tuple(partitions)
        for partition in self._partitions:
            partition.waiters[self] = None
        self._timer = self._loop.call_later(timeout_ms / 1000, self._expire)

    def wake(self) -> None:
        """Try again soon: once, however much is appended until then."""
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._try)

    def give_up(self) -> None:
        """Wait no longer. Safe to call twice."""
        self._timer.cancel()
        # A call that is on its way already must find nothing to do.
        self._is_called = True
        for partition in self._partitions:
            partition.waiters.pop(self, None)
        self._partitions = ()

    def _try(self) -> None:
        if not self._partitions:
            return
        self._is_called = False
        if self._attempt(False):  # noqa: FBT003 - by keyword it would cost on the hot path
            self.give_up()

    def _expire(self) -> None:
        try:
            self._attempt(True)  # noqa: FBT003
        finally:
            self.give_up()
