"""Queues through the asynchronous client of a running broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from millstream.client import AsyncConnection, AsyncMessage, AsyncSubscription
from millstream.client.queues import QueueDescription
from millstream.errors import Conflict, NotFound
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patient_client import connect_async


async def take(subscription: AsyncSubscription, count: int) -> list[AsyncMessage]:
    messages: list[AsyncMessage] = []
    for _ in range(count):
        message = await subscription.receive(timeout_s=10)
        assert message is not None, f"only {messages}"
        messages.append(message)
    return messages


async def until_described(
    client: AsyncConnection, topic: str, is_so: Callable[[QueueDescription], bool]
) -> None:
    """Wait until the queue `q` of a topic is as it should be."""
    async with asyncio.timeout(30):
        while True:
            if is_so(await client.queues.describe(topic, "q")):
                return
            await asyncio.sleep(0.01)


def test_two_consumers_share_messages_and_each_is_dealt_with_once(
    broker: BrokerProcess, name: str
) -> None:
    async def consume(subscription: AsyncSubscription, seen: list[str]) -> None:
        async for message in subscription:
            seen.append(message.text)
            message.ack()
            await asyncio.sleep(0)

    async def run() -> None:
        seen: list[list[str]] = [[], []]
        async with connect_async(broker.url) as client:
            subscriptions = [
                await client.subscribe(name, subscription="q", type="shared", prefetch=10)
                for _ in range(2)
            ]
            tasks = [
                asyncio.create_task(consume(each, some))
                for each, some in zip(subscriptions, seen, strict=True)
            ]
            await client.send_many(name, [f"{number}" for number in range(2000)])
            await until_described(client, name, lambda queue: queue.backlog == 0)
        await asyncio.gather(*tasks)
        assert all(seen)
        assert sorted(map(int, seen[0] + seen[1])) == list(range(2000))

    asyncio.run(run())


def test_message_that_was_not_acknowledged_goes_to_the_next_consumer(
    broker: BrokerProcess, name: str
) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.send_many(name, ["done", "dropped"])
            async with await client.subscribe(name, subscription="q") as first:
                done, _ = await take(first, 2)
                await done.ack()
            second = await client.subscribe(name, subscription="q")
            [again] = await take(second, 1)
            assert (again.text, again.delivery_count) == ("dropped", 1)

    asyncio.run(run())


def test_nack_brings_it_again_and_at_last_to_the_dead_letters(
    broker: BrokerProcess, name: str
) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.queues.create(name, "q", max_deliveries=2)
            sent = await client.send(name, "poison", key="k")
            queue = await client.subscribe(name, subscription="q")
            for count in (1, 2):
                [message] = await take(queue, 1)
                assert message.delivery_count == count
                await message.nack(delay=0, reason="it is bad")
            dead = await client.subscribe(f"{name}.dlq", start="earliest")
            [letter] = await take(dead, 1)
            assert (letter.key, letter.value) == (b"k", b"poison")
            assert letter.header("millstream-source-topic") == name.encode()
            assert letter.header("millstream-source-offset") == str(sent.offset).encode()
            assert letter.header("millstream-reason") == b"it is bad"
            # The letter is written first; only then is the message done with.
            await until_described(client, name, lambda queue: queue.dead == 1)
            found = await client.queues.browse(name, "q")
            assert (found.topic, found.next_offsets) == (f"{name}.dlq", {0: 1})
            [browsed] = found.letters
            assert (browsed.id, browsed.key, browsed.value) == (letter.id, b"k", b"poison")
            assert browsed.headers == letter.headers
            assert (browsed.source_partition, browsed.source_offset) == (0, sent.offset)
            assert (browsed.delivery_count, browsed.reason) == (2, "it is bad")
            rest = await client.queues.browse(name, "q", partition=0, offset=1)
            assert (rest.letters, rest.next_offsets) == ((), {0: 1})
            replayed = await client.queues.replay(name, "q")
            assert (replayed.count, replayed.failed, replayed.has_more) == (1, (), False)
            [again] = await take(queue, 1)
            assert (again.text, again.delivery_count) == ("poison", 1)
            await again.ack()
            assert await client.queues.purge(found.topic) == 1
            assert (await client.queues.browse(name, "q")).letters == ()

    asyncio.run(run())


def test_message_comes_again_when_its_time_is_over_unless_that_was_extended(
    broker: BrokerProcess, name: str
) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.queues.create(
                name, "q", ack_timeout=0.3, redelivery_min=0, redelivery_max=0
            )
            await client.send_many(name, ["kept", "late"])
            queue = await client.subscribe(name, subscription="q")
            kept, late = await take(queue, 2)
            await kept.extend(60)
            [again] = await take(queue, 1)
            assert (again.id, again.delivery_count) == (late.id, 2)
            await queue.ack(kept, again)
            assert (await client.queues.describe(name, "q")).backlog == 0

    asyncio.run(run())


def test_exclusive_queue_takes_one_consumer(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            queue = await client.subscribe(name, subscription="q", type="exclusive")
            with pytest.raises(Conflict):
                await client.subscribe(name, subscription="q", type="exclusive")
            await queue.close()
            await client.subscribe(name, subscription="q", type="exclusive")

    asyncio.run(run())


def test_standby_takes_over_when_the_active_consumer_goes(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            active = await client.subscribe(name, subscription="q", type="failover", consumer="a")
            standby = await client.subscribe(name, subscription="q", type="failover", consumer="b")
            await client.send_many(name, ["one", "two"])
            one, _ = await take(active, 2)
            await one.ack()
            assert await standby.receive(timeout_s=0.1) is None
            await active.close()
            assert [each.text for each in await take(standby, 1)] == ["two"]

    asyncio.run(run())


def test_keys_keep_to_one_consumer(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            subscriptions = [
                await client.subscribe(name, subscription="q", type="key_shared") for _ in range(3)
            ]
            for number in range(300):
                await client.send(name, f"{number}", key=f"key-{number % 20}")
            owners: dict[bytes | None, set[int]] = {}
            total = 0
            while total < 300:
                for place, each in enumerate(subscriptions):
                    for message in await each.receive_many(100, timeout_s=0.05):
                        owners.setdefault(message.key, set()).add(place)
                        message.ack()
                        total += 1
            assert len(owners) == 20
            assert all(len(places) == 1 for places in owners.values())

    asyncio.run(run())


def test_queues_are_administered(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            created = await client.queues.create(
                name, "q", type="shared", ack_timeout=5, max_deliveries=3, start="earliest"
            )
            assert (created.topic, created.name, created.type) == (name, "q", "shared")
            assert (created.ack_timeout_ms, created.max_deliveries) == (5000, 3)
            assert created.dead_letter_topic == f"{name}.dlq"
            with pytest.raises(Conflict):
                await client.queues.create(name, "q", type="failover")
            await client.send(name, "v")
            queue = await client.subscribe(name, subscription="q", consumer="me")
            await take(queue, 1)
            described = await client.queues.describe(name, "q")
            assert (described.backlog, described.in_flight) == (1, 1)
            assert described.consumers == ("me",)
            assert [each.name for each in await client.queues.list(name)] == ["q"]
            assert described.topic in {each.topic for each in await client.queues.list()}
            await queue.close()
            await client.queues.delete(name, "q")
            with pytest.raises(NotFound):
                await client.queues.describe(name, "q")
            with pytest.raises(NotFound):
                await client.queues.delete(name, "q")

    asyncio.run(run())
