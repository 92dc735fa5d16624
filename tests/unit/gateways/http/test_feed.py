"""A subscriber's places: order, limits, gaps, new partitions, and the end of a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from millstream.broker.sending import NewRecord
from millstream.errors import UnknownTopic
from millstream.gateways.http.feed import Feed, Skipped, Taken
from millstream.gateways.http.tail import Tails
from tests.fakes.open_door import OpenDoor, open_door, run
from tests.fakes.patience import HANG_S

_PLENTY = 1 << 20


class Reading:
    """A topic, a feed of it, and what it gave."""

    def __init__(self, door: OpenDoor, positions: Mapping[int, int]) -> None:
        self.door = door
        self.tails = Tails(door.broker)
        self.feed = Feed(self.tails, door.broker.topics.get("t"), positions)

    def take(self, limit: int = 1000, max_bytes: int = _PLENTY) -> Taken | None:
        return self.feed.take(limit=limit, max_bytes=max_bytes)

    def places(self, limit: int = 1000, max_bytes: int = _PLENTY) -> list[tuple[int, int]]:
        taken = self.take(limit, max_bytes)
        return [] if taken is None else places_of(taken)

    def all(self, limit: int = 1000) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while more := self.places(limit):
            found += more
        return found


def places_of(taken: Taken) -> list[tuple[int, int]]:
    return [
        (page.partition, page.records[at].offset)
        for page, start, end in taken.stretches
        for at in range(start, end)
    ]


async def send(door: OpenDoor, count: int, *, partition: int = 0, size: int = 1) -> None:
    records = [NewRecord(b"x" * size, partition=partition) for _ in range(count)]
    await door.broker.sender.send_many("t", records)


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_every_record_is_given_once_and_in_order_whatever_the_limit(
    tmp_path: Path, limit: int
) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t", partitions=3)
            for partition in range(3):
                await send(door, 10, partition=partition)
                await send(door, 10, partition=partition)
            reading = Reading(door, {0: 0, 1: 5, 2: 20})
            found = reading.all(limit)
            for partition, start in ((0, 0), (1, 5), (2, 20)):
                assert [o for p, o in found if p == partition] == list(range(start, 20))
            assert reading.feed.positions == {0: 20, 1: 20, 2: 20}

    run(main())


def test_no_partition_goes_short_while_another_has_much(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t", partitions=2)
            await send(door, 100, partition=0)
            await send(door, 5, partition=1)
            reading = Reading(door, {0: 0, 1: 0})
            assert {p for p, _ in reading.places(10) + reading.places(10)} == {0, 1}

    run(main())


def test_large_records_come_in_stretches_of_bounded_size(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t")
            await send(door, 20, size=10_000)
            reading = Reading(door, {0: 0})
            sizes = []
            while found := reading.places(1000, 45_000):
                sizes.append(len(found))
            assert sizes == [4] * 5

    run(main())


def test_position_in_the_middle_of_a_page_is_that_of_the_next_record(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t")
            await send(door, 10)
            reading = Reading(door, {0: 0})
            reading.places(4)
            assert reading.feed.positions == {0: 4}
            reading.feed.seek({0: 2})
            assert reading.places(3) == [(0, 2), (0, 3), (0, 4)]

    run(main())


def test_deleted_records_are_told_as_skipped(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t")
            await send(door, 10)
            await door.broker.topics.delete_records(door.broker.topics.partition("t", 0), 6)
            reading = Reading(door, {0: 2})
            taken = reading.take()
            assert taken is not None
            assert (taken.skipped, taken.stretches) == ([Skipped(0, 2, 6)], [])
            assert reading.all() == [(0, n) for n in range(6, 10)]

    run(main())


def test_nothing_may_be_taken_until_there_is_credit(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t")
            await send(door, 3)
            reading = Reading(door, {0: 0})
            assert reading.take(limit=0) is None
            assert reading.places() == [(0, 0), (0, 1), (0, 2)]

    run(main())


def test_ready_returns_when_a_record_comes(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t")
            reading = Reading(door, {0: 0})
            assert reading.take() is None
            waiting = asyncio.get_running_loop().create_task(reading.feed.ready())
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await send(door, 1)
            await asyncio.wait_for(waiting, HANG_S)
            assert reading.places() == [(0, 0)]

    run(main())


def test_new_partitions_are_followed_from_their_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t", partitions=2)
            await send(door, 2)
            whole, chosen = Reading(door, {0: 2, 1: 0}), Reading(door, {0: 2})
            assert whole.take() is None
            await door.broker.topics.add_partitions("t", 3)
            await asyncio.wait_for(whole.feed.ready(), HANG_S)
            await send(door, 1, partition=2)
            assert whole.all() == [(2, 0)]
            assert chosen.all() == []

    run(main())


def test_deleted_topic_ends_a_feed_also_if_another_takes_its_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t")
            reading = Reading(door, {0: 0})
            assert reading.take() is None
            await door.broker.topics.delete("t")
            await asyncio.wait_for(reading.feed.ready(), HANG_S)
            with pytest.raises(UnknownTopic):
                reading.take()
            await door.topic("t")
            with pytest.raises(UnknownTopic):
                reading.take()

    run(main())


def test_closed_feed_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t", partitions=3)
            reading = Reading(door, {0: 0, 1: 0, 2: 0})
            assert reading.tails.count == 3
            reading.feed.close()
            reading.feed.close()
            assert reading.tails.count == 0

    run(main())
