"""The asynchronous client while the broker is stopped, killed and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from functools import partial

import pytest

from millstream.client import AsyncConnection, AsyncMessage, AsyncSubscription, link
from millstream.client.backoff import Backoff
from millstream.client.plan import QueueType
from millstream.errors import AnswerLost, TimedOut
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.fakes.patient_client import connect, connect_async
from tests.fakes.scripted_broker import ScriptedBroker, Talk, message, until
from tests.python_client.conftest import StartBroker

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients look for the broker so often that they find it as soon as it is back."""

    def often(*, first_s: float, limit_s: float) -> Backoff:
        return Backoff(first_s=first_s, limit_s=min(limit_s, 0.1))

    monkeypatch.setattr(link, "Backoff", often)


async def take(subscription: AsyncSubscription, count: int) -> list[AsyncMessage]:
    messages: list[AsyncMessage] = []
    for _ in range(count):
        message = await subscription.receive(timeout_s=HANG_S)
        assert message is not None, f"only {len(messages)} of {count}"
        messages.append(message)
    return messages


def reached(messages: Sized, count: int) -> bool:
    return len(messages) >= count


async def send_each(client: AsyncConnection, topic: str, values: list[str]) -> list[str]:
    """Send one after the other; return those that were answered."""
    answered = []
    for value in values:
        try:
            await client.send(topic, value)
        except AnswerLost:
            continue
        answered.append(value)
    return answered


async def kill_and_restart(broker: BrokerProcess) -> None:
    await asyncio.to_thread(broker.kill_and_restart)


async def restart(broker: BrokerProcess) -> None:
    await asyncio.to_thread(broker.restart)


def test_answered_sends_survive_kills_and_nothing_is_stored_twice(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    values = [f"{number}" for number in range(1200)]

    async def run() -> None:
        async with connect_async(broker.url) as client:
            subscription = await client.subscribe("t", start="earliest", prefetch=50)
            received: list[str] = []

            async def read() -> None:
                while message := await subscription.receive():
                    received.append(message.text)

            reading = asyncio.create_task(read())
            sending = asyncio.create_task(send_each(client, "t", values))
            for count in (len(values) // 4, len(values) // 2):
                await until(partial(reached, received, count))
                await kill_and_restart(broker)
            answered = await sending
            end = (await client.topics.describe("t")).partitions[0].end_offset
            await until(lambda: len(received) == end)
        await reading
        # Over all restarts every message came once and in order.
        assert len(set(received)) == len(received) == end
        assert received == sorted(received, key=int)
        assert set(answered) <= set(received)

    asyncio.run(run())


def test_sends_with_retries_all_succeed_over_kills(start_broker: StartBroker) -> None:
    broker = start_broker()

    async def run() -> None:
        async with connect_async(broker.url, retries=1000) as client:
            answered: list[str] = []

            async def send_some(name: int) -> None:
                for number in range(50):
                    await client.send("t", f"{name}-{number}")
                    answered.append(f"{name}-{number}")

            sending = asyncio.gather(*(send_some(name) for name in range(20)))
            for count in (300, 600):
                await until(partial(reached, answered, count))
                await kill_and_restart(broker)
            await sending
            end = (await client.topics.describe("t")).partitions[0].end_offset
            subscription = await client.subscribe("t", start="earliest")
            texts = [each.text for each in await take(subscription, end)]
        for name in range(20):
            mine = [each for each in texts if each.startswith(f"{name}-")]
            assert list(dict.fromkeys(mine)) == [f"{name}-{number}" for number in range(50)]

    asyncio.run(run())


def test_queue_goes_on_after_a_kill_without_what_was_acknowledged(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()

    async def run() -> None:
        async with connect_async(broker.url) as client:
            queue = await client.subscribe("t", subscription="q", type="exclusive", prefetch=10)
            await client.send_many("t", [f"{number}" for number in range(100)])
            done = []
            for message in await take(queue, 7):
                await message.ack()
                done.append(message.text)
            held = await take(queue, 2)
            await kill_and_restart(broker)
            # An acknowledgement that was made while the broker was away counts as well.
            await held[0].ack()
            done.append(held[0].text)
            while len(done) < 100:
                [message] = await take(queue, 1)
                if message.text in done:
                    assert message.text == held[0].text
                else:
                    done.append(message.text)
                await message.ack()
            assert sorted(map(int, done)) == list(range(100))
            assert (await client.queues.describe("t", "q")).backlog == 0

    asyncio.run(run())


def test_group_goes_on_behind_what_it_was_handed_after_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker()

    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.send_many("t", [f"{number}" for number in range(20)])
            subscription = await client.subscribe("t", cursor="g")
            messages = await take(subscription, 10)
            await messages[4].ack()
            await kill_and_restart(broker)
            assert [each.offset for each in await take(subscription, 10)] == list(range(10, 20))
        async with connect_async(broker.url) as client:
            subscription = await client.subscribe("t", cursor="g")
            assert [each.offset for each in await take(subscription, 15)] == list(range(5, 20))

    asyncio.run(run())


def test_broker_that_stops_cleanly_is_waited_for(start_broker: StartBroker) -> None:
    broker = start_broker()

    async def run() -> None:
        async with connect_async(broker.url) as client:
            subscription = await client.subscribe("t")
            await asyncio.to_thread(broker.stop)
            sending = asyncio.create_task(client.send("t", "patience"))
            await asyncio.to_thread(broker.start)
            assert (await sending).offset == 0
            assert [each.text for each in await take(subscription, 1)] == ["patience"]

    asyncio.run(run())


def test_queues_of_all_types_go_on_after_a_clean_stop(start_broker: StartBroker) -> None:
    broker = start_broker()
    kinds: list[QueueType] = ["exclusive", "shared", "failover", "key_shared"]

    async def run() -> None:
        async with connect_async(broker.url) as client:
            queues = [await client.subscribe(kind, subscription="q", type=kind) for kind in kinds]
            for turn in range(2):
                waiting = [asyncio.create_task(queue.receive(timeout_s=HANG_S)) for queue in queues]
                await restart(broker)
                for kind in kinds:
                    await client.send(kind, f"{turn}")
                for message in await asyncio.gather(*waiting):
                    assert message is not None
                    assert message.text == f"{turn}"
                    await message.ack()
            for kind in kinds:
                assert (await client.queues.describe(kind, "q")).backlog == 0

    asyncio.run(run())
    assert broker.complaints() == []


def test_acknowledgements_made_during_clean_stops_all_succeed(start_broker: StartBroker) -> None:
    broker = start_broker()
    count = 1200

    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.send_many("t", [f"{number}" for number in range(count)])
            queue = await client.subscribe("t", subscription="q", start="earliest", prefetch=10)
            group = await client.subscribe("t", cursor="g", start="earliest", prefetch=10)
            done: set[str] = set()
            read: list[str] = []

            async def work() -> None:
                while len(done) < count:
                    [message] = await take(queue, 1)
                    await message.ack()
                    done.add(message.text)

            async def follow() -> None:
                while len(read) < count:
                    [message] = await take(group, 1)
                    await message.ack()
                    read.append(message.text)

            async with asyncio.TaskGroup() as tasks:
                for each in (work(), follow()):
                    tasks.create_task(each)
                for some in (300, 600):
                    await until(partial(reached, done, some))
                    await until(partial(reached, read, some))
                    await restart(broker)
            assert read == [f"{number}" for number in range(count)]
            assert (await client.queues.describe("t", "q")).backlog == 0

    asyncio.run(run())


def test_subscription_that_the_broker_cannot_go_on_with_attaches_again() -> None:
    attached = []

    async def script(talk: Talk) -> None:
        for offset in range(3):
            request = await talk.next()
            attached.append(request["op"])
            await talk.answer(request, {})
            number = request["id"]
            await talk.say({"subscription": number, "messages": [message(offset)]})
            if offset < 2:
                error = {"type": "urn:millstream:error:unavailable", "status": 503, "detail": ""}
                await asyncio.sleep(0.05)
                await talk.say({"subscription": number, "error": error})

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            queue = await client.subscribe("t", subscription="q")
            assert [each.offset for each in await take(queue, 3)] == [0, 1, 2]
            assert broker.talks == 1

    asyncio.run(run())
    assert attached == ["queue"] * 3


def test_broker_that_stays_away_is_not_waited_for_for_ever(start_broker: StartBroker) -> None:
    broker = start_broker()

    async def run() -> None:
        async with connect_async(broker.url, timeout_s=0.3) as client:
            broker.kill()
            with pytest.raises((TimedOut, AnswerLost)):
                await client.send("t", "v")
            with pytest.raises(TimedOut):
                await client.topics.list()
            with pytest.raises(TimedOut):
                await client.subscribe("t")

    asyncio.run(run())


def test_topic_that_was_made_anew_while_the_broker_was_away_is_read_from_its_start(
    start_broker: StartBroker,
) -> None:
    async def main() -> None:
        broker = start_broker()
        async with connect_async(broker.url) as client:
            await client.send_many("again", [f"old {n}" for n in range(10)])
            subscription = await client.subscribe("again", start="earliest")
            await take(subscription, 10)
            # All this without a wait, so that the subscription hears of it only when it is done.
            broker.kill_and_restart()
            with connect(broker.url) as other:
                other.topics.delete("again")
                other.send_many("again", [f"new {n}" for n in range(15)])
            found = await take(subscription, 15)
            assert [each.text for each in found] == [f"new {n}" for n in range(15)]

    asyncio.run(main())
