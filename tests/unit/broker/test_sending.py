"""Records that are sent one by one, and stored together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millstream.broker.partitioner import murmur2, partition_of
from millstream.broker.sending import NewRecord, Sender, Sent
from millstream.errors import (
    DiskFull,
    InvalidName,
    InvalidRecord,
    MessageTooLarge,
    MillstreamError,
    UnknownPartition,
    UnknownTopic,
)
from millstream.records import Record, records_of
from millstream.settings.names import OFFSETS_TOPIC
from millstream.settings.topics import TopicSettings
from millstream.storage.batch_walk import split_batches
from tests.fakes.fake_broker import FakeBroker


def run(test: Callable[[FakeBroker, Sender], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        host = FakeBroker(topics=TopicSettings(**settings))
        await host.start()
        await test(host, host.broker.sender)

    asyncio.run(main())


def stored(host: FakeBroker, topic: str, number: int = 0) -> list[list[Record]]:
    """The records of each batch."""
    log = host.topics.partition(topic, number).log
    return [
        list(records_of(batch, limit_bytes=1 << 20))
        for _, batch in split_batches(log.read(0, 1 << 30))
    ]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_of_a_key_is_that_of_kafkas_clients(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_sent_record_is_stored_as_it_was_and_on_disk() -> None:
    async def test(host: FakeBroker, sender: Sender) -> None:
        await host.topics.create("t", partitions=1, overrides={})
        headers = (("h", b"1"), ("h", None))
        sent = await sender.send("t", NewRecord(b"v", b"k", headers, timestamp_ms=77))
        assert sent == Sent(0, 0, 77)
        assert stored(host, "t") == [[Record(0, 77, b"k", b"v", headers)]]
        assert host.topics.partition("t", 0).log.synced_offset == 1

    run(test)


def test_records_sent_at_once_share_a_batch_in_the_order_of_sending() -> None:
    async def test(host: FakeBroker, sender: Sender) -> None:
        await host.topics.create("t", partitions=1, overrides={})
        sent = await asyncio.gather(*(sender.send("t", NewRecord(b"%d" % n)) for n in range(100)))
        assert [each.offset for each in sent] == list(range(100))
        [batch] = stored(host, "t")
        assert [record.value for record in batch] == [b"%d" % n for n in range(100)]

    run(test)


def test_batches_are_no_larger_than_the_topic_takes() -> None:
    async def test(host: FakeBroker, sender: Sender) -> None:
        await host.topics.create("t", partitions=1, overrides={"max.message.bytes": "1000"})
        results = await sender.send_many("t", [NewRecord(b"x" * 300) for _ in range(10)])
        assert [each.offset for each in results if isinstance(each, Sent)] == list(range(10))
        assert [len(batch) for batch in stored(host, "t")] == [2] * 5

    run(test)


def test_record_that_is_refused_leaves_the_others_alone() -> None:
    async def test(host: FakeBroker, sender: Sender) -> None:
        await host.topics.create("t", partitions=2, overrides={"max.message.bytes": "1000"})
        results = await sender.send_many(
            "t",
            [
                NewRecord(b"a", partition=0),
                NewRecord(b"x" * 2000, partition=0),
                NewRecord(b"b", partition=7),
                NewRecord(b"c", partition=0),
            ],
        )
        assert [type(each) for each in results] == [Sent, MessageTooLarge, UnknownPartition, Sent]
        assert [r.value for batch in stored(host, "t") for r in batch] == [b"a", b"c"]

    run(test)


def test_keys_stay_in_one_partition_and_others_take_turns() -> None:
    async def test(host: FakeBroker, sender: Sender) -> None:
        await host.topics.create("t", partitions=3, overrides={})
        for key in (b"a", b"b", b"c", b"d"):
            places = {(await sender.send("t", NewRecord(b"", key))).partition for _ in range(3)}
            assert places == {partition_of(key, 3)}
        turns = [(await sender.send("t", NewRecord(b""))).partition for _ in range(6)]
        assert sorted(turns) == [0, 0, 1, 1, 2, 2]

    run(test)


def test_topic_is_created_if_that_is_allowed() -> None:
    async def may(host: FakeBroker, sender: Sender) -> None:
        await sender.send("new", NewRecord(b"v"))
        assert stored(host, "new")[0][0].value == b"v"
        with pytest.raises(InvalidName):
            await sender.send("../new", NewRecord(b"v"))
        with pytest.raises(InvalidName):
            await sender.send(OFFSETS_TOPIC, NewRecord(b"v"))

    async def may_not(host: FakeBroker, sender: Sender) -> None:
        with pytest.raises(UnknownTopic):
            await sender.send("new", NewRecord(b"v"))
        assert "new" not in host.shape()

    run(may)
    run(may_not, auto_create=False)


def test_topic_is_not_created_for_what_it_would_refuse() -> None:
    too_large = NewRecord(b"x" * (2 << 20))
    nowhere = NewRecord(b"v", partition=2)

    async def test(host: FakeBroker, sender: Sender) -> None:
        with pytest.raises(MessageTooLarge):
            await sender.send("new", too_large)
        with pytest.raises(UnknownPartition, match="would have no partition 2: only 2"):
            await sender.send("new", nowhere)
        results = await sender.send_many("new", [too_large, nowhere])
        assert [type(each) for each in results] == [MessageTooLarge, UnknownPartition]
        with pytest.raises(InvalidName):
            await sender.send("../new", nowhere)
        assert "new" not in host.shape()
        results = await sender.send_many("new", [too_large, NewRecord(b"v", partition=1)])
        assert [type(each) for each in results] == [MessageTooLarge, Sent]
        assert stored(host, "new", 1)[0][0].value == b"v"

    run(test, num_partitions=2)


def test_topic_that_another_creates_is_waited_for() -> None:
    async def test(host: FakeBroker, sender: Sender) -> None:
        creating = asyncio.create_task(host.topics.create("new", partitions=9, overrides={}))
        await asyncio.sleep(0)
        sent = await sender.send("new", NewRecord(b"v", partition=7))
        await creating
        assert sent.partition == 7

    run(test)


def test_compacted_topic_takes_no_record_without_a_key() -> None:
    async def test(host: FakeBroker, sender: Sender) -> None:
        await host.topics.create("t", partitions=1, overrides={"cleanup.policy": "compact"})
        with pytest.raises(InvalidRecord):
            await sender.send("t", NewRecord(b"v"))
        await sender.send("t", NewRecord(None, b"k"))

    run(test)


def test_full_disk_is_told_to_all_who_wait() -> None:
    async def test(host: FakeBroker, sender: Sender) -> None:
        await host.topics.create("t", partitions=1, overrides={})
        disk = host.disk
        disk.space_bytes = disk.used_bytes
        results = await sender.send_many("t", [NewRecord(b"x" * 10_000) for _ in range(3)])
        assert all(isinstance(each, DiskFull) for each in results)
        disk.space_bytes += 1 << 20
        assert not isinstance(await sender.send("t", NewRecord(b"v")), MillstreamError)

    run(test)
