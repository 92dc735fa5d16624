"""Requests that wait: woken by an append or a deadline, and never twice. On a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from millstream.broker.partition import Partition
from millstream.broker.purgatory import Waiting
from millstream.clock import ManualClock
from tests.fakes.simulated_loop import run_simulated


class Place:
    """Where something can be waited for."""

    def __init__(self) -> None:
        self.waiters: dict[Waiting, None] = {}

    def wake(self) -> None:
        for waiter in self.waiters:
            waiter.wake()


class Asked:
    """A request that is content after some attempts."""

    def __init__(self, *places: Place, enough: int = 1, timeout_ms: int = 1000) -> None:
        self.attempts: list[bool] = []
        self._enough = enough
        self.waiting = Waiting(
            cast("list[Partition]", places), timeout_ms=timeout_ms, attempt=self._attempt
        )

    def _attempt(self, is_last: bool) -> bool:
        self.attempts.append(is_last)
        return is_last or len(self.attempts) >= self._enough


def simulated(test: Callable[[], Awaitable[None]]) -> int:
    """Run to the end; returns the milliseconds that went by."""
    clock = ManualClock()
    before = clock.now_ms()

    async def main() -> None:
        await test()
        await asyncio.sleep(10)

    run_simulated(main(), clock)
    return clock.now_ms() - before - 10_000


def test_append_wakes_who_waits_and_then_nobody_waits() -> None:
    async def main() -> None:
        first, second = Place(), Place()
        asked = Asked(first, second)
        second.wake()
        assert asked.attempts == [], "not in the middle of the append"
        await asyncio.sleep(0)
        assert asked.attempts == [False]
        assert first.waiters == second.waiters == {}

    simulated(main)


def test_many_appends_in_one_turn_are_one_attempt() -> None:
    async def main() -> None:
        place = Place()
        asked = Asked(place, enough=2)
        for _ in range(5):
            place.wake()
        await asyncio.sleep(0)
        assert asked.attempts == [False]
        assert list(place.waiters) == [asked.waiting], "there was not enough"
        place.wake()
        await asyncio.sleep(0)
        assert asked.attempts == [False, False]
        assert place.waiters == {}

    simulated(main)


def test_deadline_is_the_last_attempt() -> None:
    async def main() -> None:
        place = Place()
        asked = Asked(place, enough=99, timeout_ms=300)
        await asyncio.sleep(0.299)
        assert asked.attempts == []
        await asyncio.sleep(0.002)
        assert asked.attempts == [True]
        assert place.waiters == {}

    simulated(main)


def test_who_was_woken_has_no_deadline_any_more() -> None:
    async def main() -> None:
        place = Place()
        asked = Asked(place, timeout_ms=300)
        place.wake()
        await asyncio.sleep(1)
        assert asked.attempts == [False]

    simulated(main)


@pytest.mark.parametrize("woken", [True, False])
def test_who_has_given_up_is_not_tried(woken: bool) -> None:
    async def main() -> None:
        place = Place()
        asked = Asked(place, timeout_ms=300)
        if woken:
            place.wake()
        asked.waiting.give_up()
        asked.waiting.give_up()
        await asyncio.sleep(1)
        assert asked.attempts == []
        assert place.waiters == {}

    simulated(main)


def test_waiting_for_nothing_ends_at_the_deadline() -> None:
    async def main() -> None:
        asked = Asked(timeout_ms=300)
        await asyncio.sleep(1)
        assert asked.attempts == [True]

    simulated(main)


def test_all_who_wait_for_one_place_are_woken() -> None:
    async def main() -> None:
        place = Place()
        several = [Asked(place) for _ in range(5)]
        place.wake()
        await asyncio.sleep(0)
        assert [asked.attempts for asked in several] == [[False]] * 5
        assert place.waiters == {}

    simulated(main)


def test_last_attempt_that_fails_leaves_nobody_waiting() -> None:
    async def main() -> None:
        place = Place()

        def fail(is_last: bool) -> bool:
            raise RuntimeError(is_last)

        failures: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        Waiting(cast("list[Partition]", [place]), timeout_ms=300, attempt=fail)
        await asyncio.sleep(1)
        assert len(failures) == 1
        assert place.waiters == {}

    simulated(main)
