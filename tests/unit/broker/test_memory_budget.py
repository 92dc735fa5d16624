"""One budget for what clients make the broker hold."""

from __future__ import annotations

import asyncio

import pytest

from millstream.broker.memory_budget import (
    HTTP_BODIES,
    KAFKA_REQUESTS,
    UNREAD_ANSWERS,
    MemoryBudget,
    budget_bytes,
)
from millstream.errors import Unavailable

MIB = 1 << 20


class Reader:
    """A client that has left answers unread."""

    def __init__(self) -> None:
        self.is_gone = False

    def give_up_unread(self) -> None:
        self.is_gone = True


def test_uses_share_one_limit_and_are_told_apart() -> None:
    budget = MemoryBudget(10 * MIB)
    assert budget.take(KAFKA_REQUESTS, 6 * MIB)
    assert not budget.take(HTTP_BODIES, 5 * MIB)
    assert budget.take(HTTP_BODIES, 4 * MIB)
    assert (budget.used[KAFKA_REQUESTS], budget.used[HTTP_BODIES]) == (6 * MIB, 4 * MIB)
    budget.give_back(KAFKA_REQUESTS, 6 * MIB)
    assert budget.free_bytes == 6 * MIB


def test_who_waits_is_served_when_another_use_gives_back() -> None:
    async def main() -> None:
        budget = MemoryBudget(10 * MIB)
        assert budget.take(KAFKA_REQUESTS, 10 * MIB)
        waiting = asyncio.create_task(budget.reserve(HTTP_BODIES, MIB, timeout_s=60))
        await asyncio.sleep(0)
        assert (budget.is_tight, budget.waiting(HTTP_BODIES)) == (True, 1)
        budget.give_back(KAFKA_REQUESTS, 10 * MIB)
        await waiting
        assert (budget.used_bytes, budget.is_tight) == (MIB, False)

    asyncio.run(main())


def test_who_waits_too_long_is_refused_and_keeps_nothing() -> None:
    async def main() -> None:
        budget = MemoryBudget(MIB)
        assert budget.take(KAFKA_REQUESTS, MIB)
        with pytest.raises(Unavailable, match=r"max\.memory\.bytes"):
            await budget.reserve(HTTP_BODIES, MIB, timeout_s=0.01)
        cancelled = asyncio.create_task(budget.reserve(HTTP_BODIES, MIB, timeout_s=60))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        budget.give_back(KAFKA_REQUESTS, MIB)
        assert (budget.used_bytes, budget.is_tight) == (0, False)

    asyncio.run(main())


def test_client_that_stalled_first_gives_way_first() -> None:
    budget = MemoryBudget(3 * MIB)
    readers = [Reader() for _ in range(4)]
    for reader in readers:
        budget.stall(reader, MIB)
    assert [each.is_gone for each in readers] == [True, False, False, False]
    assert (budget.used[UNREAD_ANSWERS], budget.dropped) == (3 * MIB, 1)
    for reader in readers:
        budget.resume(reader)
    assert budget.used_bytes == 0


def test_client_that_leaves_more_unread_than_there_is_gives_way_itself() -> None:
    budget = MemoryBudget(MIB)
    reader = Reader()
    budget.stall(reader, 2 * MIB)
    assert (reader.is_gone, budget.used_bytes) == (True, 0)


def test_one_client_never_takes_more_than_half() -> None:
    budget = MemoryBudget(MIB)
    budget.allow_for(3 * MIB)
    assert budget.limit_bytes == 6 * MIB
    assert budget.take(KAFKA_REQUESTS, 3 * MIB)
    assert budget.take(KAFKA_REQUESTS, 3 * MIB)


def test_default_is_a_part_of_the_machine() -> None:
    assert budget_bytes(5) == 5
    assert 128 * MIB <= budget_bytes(0) <= 1024 * MIB
