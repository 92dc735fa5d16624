"""Places for what is under way, and who waits for them."""

from __future__ import annotations

import asyncio

from millstream.client.room import Room


def test_nobody_overtakes_who_waits() -> None:
    async def run() -> None:
        room = Room(10)
        order: list[str] = []

        async def enter(name: str, count: int) -> None:
            await room.take(count)
            order.append(name)

        await room.take(8)
        large = asyncio.create_task(enter("large", 5))
        await asyncio.sleep(0)
        small = asyncio.create_task(enter("small", 1))
        await asyncio.sleep(0)
        assert order == []
        room.give(8)
        await asyncio.gather(large, small)
        assert order == ["large", "small"]
        assert room.free == 4

    asyncio.run(run())


def test_who_gives_up_waiting_takes_no_place_and_holds_up_nobody() -> None:
    async def run() -> None:
        room = Room(2)
        await room.take(2)
        large = asyncio.create_task(room.take(2))
        small = asyncio.create_task(room.take(1))
        await asyncio.sleep(0)
        room.give(1)
        large.cancel()
        await small
        await asyncio.gather(large, return_exceptions=True)
        assert room.free == 0
        waiting = asyncio.create_task(room.take(1))
        await asyncio.sleep(0)
        room.give(1)
        waiting.cancel()  # It has its place already, and gives it back.
        await asyncio.gather(waiting, return_exceptions=True)
        assert room.free == 1

    asyncio.run(run())


def test_more_than_there_are_counts_as_all() -> None:
    async def run() -> None:
        room = Room(3)
        await room.take(100)
        assert room.free == 0
        room.give(100)
        assert room.free == 3

    asyncio.run(run())
