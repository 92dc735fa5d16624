"""The shared tail: pages, their JSON, what is kept of them, and rounds of waking."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from millstream.broker.partition import Partition
from millstream.broker.sending import NewRecord
from millstream.errors import OffsetOutOfRange
from millstream.gateways.http.tail import Page, Tails
from millstream.records import Record
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.open_door import OpenDoor, open_door, run
from tests.fakes.simulated_loop import run_simulated


class Listener:
    def __init__(self) -> None:
        self.calls = 0

    def wake(self) -> None:
        self.calls += 1


async def _sent(door: OpenDoor, *values: str) -> Partition:
    await door.broker.sender.send_many("t", [NewRecord(value.encode()) for value in values])
    return door.broker.topics.partition("t", 0)


def test_page_tells_json_of_its_records() -> None:
    page = Page(
        3, [Record(7, 1000, b"k", b"\xff", (("h", b"v"),)), Record(9, 1001, None, b"x")], 10
    )
    first, second = orjson.loads(f"[{page.joined(0, 2)}]")
    assert first == {
        "message_id": "3:7",
        "partition": 3,
        "offset": 7,
        "timestamp": 1000,
        "key": "k",
        "value": "/w==",
        "encoding": "base64",
        "headers": {"h": "v"},
    }
    assert (second["message_id"], second["key"], second["value"]) == ("3:9", None, "x")


class CountedRecords(list[Record]):
    """Notes which records are taken out of it."""

    def __init__(self, count: int) -> None:
        super().__init__(Record(n, 0, None, b"v") for n in range(count))
        self.taken: list[int] = []

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.taken += [each.offset for each in (found if isinstance(index, slice) else [found])]
        return found


def test_record_is_put_into_json_once_for_all() -> None:
    records = CountedRecords(10)
    page = Page(0, records, 10)
    assert page.joined(0, 4) == page.joined(0, 4)
    page.joined(2, 8)
    page.text(9)
    assert records.taken == list(range(10))


@pytest.mark.parametrize(
    ("start", "limit", "max_bytes", "end"),
    [(0, 3, 10**6, 3), (0, 100, 1, 1), (4, 100, 1, 5), (0, 100, 2500, 2), (4, 2, 10**6, 6)],
)
def test_stretch_is_bound_by_count_and_bytes_and_never_empty(
    start: int, limit: int, max_bytes: int, end: int
) -> None:
    page = Page(0, [Record(n, 0, None, bytes(1000)) for n in range(10)], 10)
    assert page.end_of(start, limit=limit, max_bytes=max_bytes) == end


def test_followers_share_a_page(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            partition = await _sent(door, "a", "b")
            tails = Tails(door.broker)
            one, other = Listener(), Listener()
            tail = tails.follow(partition, one)
            assert tails.follow(partition, other) is tail
            assert tail.page(0) is tail.page(0)
            at_end = tail.page(2)
            assert (list(at_end.records), at_end.next_offset) == ([], 2)
            await _sent(door, "c")
            # What was empty is looked at again.
            assert [each.value for each in tail.page(2).records] == [b"c"]

    run(main())


def test_kept_pages_take_bounded_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t")
            tails = Tails(door.broker)
            tail = tails.follow(door.broker.topics.partition("t", 0), Listener())
            pages = []
            for number in range(50):
                await _sent(door, "x" * 100_000)
                pages.append(tail.page(number))
            # The newest first, because what is read again is kept instead of others.
            kept = 0
            while tail.page(49 - kept) is pages[49 - kept]:
                kept += 1
            assert 1 <= kept <= (1 << 20) // 100_000

    run(main())


def test_deleted_records_are_not_given_from_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            partition = await _sent(door, "a", "b")
            tail = Tails(door.broker).follow(partition, Listener())
            tail.page(0)
            await door.broker.topics.delete_records(partition, 2)
            with pytest.raises(OffsetOutOfRange):
                tail.page(0)

    run(main())


def test_nothing_is_left_of_a_partition_that_nobody_follows(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            partition = await _sent(door, "a")
            tails = Tails(door.broker)
            one, other = Listener(), Listener()
            tail = tails.follow(partition, one)
            tails.follow(partition, other)
            tails.unfollow(tail, one)
            assert (tails.count, len(partition.waiters)) == (1, 1)
            tails.unfollow(tail, other)
            tails.unfollow(tail, other)
            assert (tails.count, len(partition.waiters)) == (0, 0)

    run(main())


def test_first_append_wakes_at_once_and_many_share_a_round() -> None:
    home = FakeBroker()

    async def turns(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def main() -> None:
        await home.start()
        topic = await home.topics.create("t", partitions=1, overrides={})
        partition = topic.partitions[0]
        # So many that the pause between two rounds is the longest.
        listeners = [Listener() for _ in range(200)]
        tails = Tails(home.broker)
        for listener in listeners:
            tails.follow(partition, listener)
        partition.wake()
        await turns(2)
        assert {listener.calls for listener in listeners} == {1}
        for _ in range(10):
            partition.wake()
            await turns(2)
        assert {listener.calls for listener in listeners} == {1}
        await asyncio.sleep(1)
        assert {listener.calls for listener in listeners} == {2}

    run_simulated(main(), home.clock)


def test_header_name_that_is_no_text_is_still_told() -> None:
    headers: Any = ((b"\xff".decode("utf-8", "surrogateescape"), b"v"),)
    [told] = orjson.loads(f"[{Page(0, [Record(0, 0, None, None, headers)], 1).joined(0, 1)}]")
    assert list(told["headers"].values()) == ["v"]
