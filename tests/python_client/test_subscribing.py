"""Reading logs with the asynchronous client from a running broker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from millstream.client import AsyncSubscription
from millstream.client.frames import Start
from millstream.errors import OffsetOutOfRange, UnknownTopic
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.fakes.patient_client import connect_async


async def texts(subscription: AsyncSubscription, count: int) -> list[str]:
    found: list[str] = []
    for _ in range(count):
        message = await subscription.receive(timeout_s=HANG_S)
        assert message is not None, f"only {found}"
        found.append(message.text)
    return found


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 0), (3, 3), (at(5000), 5), ({0: 7}, 7), (at(4500), 5)],
    ids=str,
)
def test_reading_begins_where_it_is_told_to(
    broker: BrokerProcess, name: str, start: Start, first: int
) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            for number in range(10):
                await client.send(name, f"{number}", timestamp=number * 1000)
            subscription = await client.subscribe(name, start=start)
            assert await texts(subscription, 10 - first) == [str(n) for n in range(first, 10)]

    asyncio.run(run())


def test_latest_begins_with_what_is_sent_afterwards(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.send(name, "before")
            subscription = await client.subscribe(name)
            await client.send(name, "after")
            assert await texts(subscription, 1) == ["after"]

    asyncio.run(run())


def test_topic_may_be_subscribed_to_before_it_exists(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            with pytest.raises(UnknownTopic):
                await client.subscribe(name, create=False)
            subscription = await client.subscribe(name)
            await client.send(name, "hello")
            assert await texts(subscription, 1) == ["hello"]

    asyncio.run(run())


def test_three_subscribers_each_get_everything_in_order(broker: BrokerProcess, name: str) -> None:
    values = [f"{number}" for number in range(3000)]

    async def run() -> None:
        async with connect_async(broker.url) as client:
            subscriptions = [await client.subscribe(name) for _ in range(3)]
            reading = [asyncio.create_task(texts(each, len(values))) for each in subscriptions]
            await client.send_many(name, values)
            for each in reading:
                assert await each == values

    asyncio.run(run())


def test_seek_goes_back_and_forth(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.send_many(name, [f"{number}" for number in range(3000)])
            subscription = await client.subscribe(name, start="earliest", prefetch=50)
            assert await texts(subscription, 2) == ["0", "1"]
            await subscription.seek(2000)
            assert await texts(subscription, 2) == ["2000", "2001"]
            await subscription.seek("earliest")
            assert await texts(subscription, 2) == ["0", "1"]
            await subscription.seek("latest")
            await client.send(name, "new")
            assert await texts(subscription, 1) == ["new"]
            with pytest.raises(OffsetOutOfRange, match="4000"):
                await subscription.seek(4000)
            await client.send(name, "still here")
            assert await texts(subscription, 1) == ["still here"]

    asyncio.run(run())


def test_seek_of_one_partition_leaves_the_others(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.topics.create(name, partitions=2)
            for partition in range(2):
                for number in range(100):
                    await client.send(name, f"{partition}-{number}", partition=partition)
            subscription = await client.subscribe(name, start="earliest")
            first = await texts(subscription, 150)
            await subscription.seek(0, partition=1)
            rest = await texts(subscription, 200 - sum(each.startswith("0") for each in first))
        zero = [each for each in first + rest if each.startswith("0")]
        assert zero == [f"0-{number}" for number in range(100)]
        one = [each for each in rest if each.startswith("1")]
        assert one == [f"1-{number}" for number in range(100)]

    asyncio.run(run())


def test_group_goes_on_behind_what_it_acknowledged(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.send_many(name, [f"{number}" for number in range(10)])
            async with await client.subscribe(name, cursor=name) as subscription:
                messages = [await anext(subscription) for _ in range(6)]
                await messages[3].ack()
        async with connect_async(broker.url) as client:
            subscription = await client.subscribe(name, cursor=name)
            assert await texts(subscription, 6) == [str(number) for number in range(4, 10)]
            other = await client.subscribe(name, cursor=f"{name}-other")
            assert await texts(other, 10) == [str(number) for number in range(10)]

    asyncio.run(run())


def test_only_the_partitions_that_were_named_are_read(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.topics.create(name, partitions=3)
            for partition in range(3):
                await client.send(name, f"{partition}", partition=partition)
            subscription = await client.subscribe(name, start="earliest", partitions=[0, 2])
            assert sorted(await texts(subscription, 2)) == ["0", "2"]
            assert await subscription.receive(timeout_s=0.1) is None

    asyncio.run(run())


def test_deleted_topic_ends_its_subscriptions(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            subscription = await client.subscribe(name)
            await client.send(name, "last")
            assert await texts(subscription, 1) == ["last"]
            await client.topics.delete(name)
            with pytest.raises(UnknownTopic):
                await subscription.receive(timeout_s=HANG_S)

    asyncio.run(run())


def test_subscriber_that_takes_nothing_holds_nobody_back(broker: BrokerProcess, name: str) -> None:
    values = [f"{number}" * 100 for number in range(5000)]

    async def run() -> None:
        async with connect_async(broker.url, prefetch=100) as client:
            idle = await client.subscribe(name)
            busy = await client.subscribe(name)
            reading = asyncio.create_task(texts(busy, len(values)))
            await client.send_many(name, values)
            assert await reading == values
            # It has fetched ahead what it may, and later gets every message.
            assert len(idle._ready) <= 100
            assert await texts(idle, len(values)) == values

    asyncio.run(run())
