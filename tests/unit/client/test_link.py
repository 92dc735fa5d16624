"""The client's way to the broker: what it does when the connection breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millstream.errors import (
    AnswerLost,
    ClientClosed,
    InvalidRequest,
    MalformedMessage,
    MessageTooLarge,
    TimedOut,
    UnknownTopic,
    Unreachable,
)
from tests.fakes.patient_client import connect_async
from tests.fakes.scripted_broker import ScriptedBroker, Talk, until

Script = Callable[[Talk], Awaitable[None]]


async def store_all(talk: Talk) -> None:
    offset = 0
    while True:
        request = await talk.next()
        await talk.store(request, offset)
        offset += len(request["messages"])


def test_send_whose_answer_was_lost_fails_and_is_not_repeated() -> None:
    seen: list[str] = []

    async def script(talk: Talk) -> None:
        request = await talk.next()
        seen.extend(each["value"] for each in request["messages"])
        if talk.number == 0:
            await talk.hang_up()
        else:
            await talk.store(request)

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            with pytest.raises(AnswerLost, match="send"):
                await client.send("t", "once")
            assert (await client.send("t", "after")).offset == 0

    asyncio.run(run())
    assert seen == ["once", "after"]


def test_send_whose_answer_was_lost_is_repeated_as_often_as_allowed() -> None:
    seen: list[str] = []

    async def script(talk: Talk) -> None:
        request = await talk.next()
        seen.extend(each["value"] for each in request["messages"])
        if talk.number < 2:
            await talk.hang_up()
        else:
            await talk.store(request, 7)

    async def run() -> None:
        async with (
            ScriptedBroker(script) as broker,
            connect_async(broker.url, retries=2) as client,
        ):
            assert (await client.send("t", "again")).offset == 7

    asyncio.run(run())
    assert seen == ["again"] * 3


def test_send_is_not_repeated_more_often_than_allowed() -> None:
    async def script(talk: Talk) -> None:
        await talk.next()
        await talk.hang_up()

    async def run() -> None:
        async with (
            ScriptedBroker(script) as broker,
            connect_async(broker.url, retries=2) as client,
        ):
            with pytest.raises(AnswerLost):
                await client.send("t", "again")
            assert broker.talks == 3

    asyncio.run(run())


def test_repeated_sends_keep_their_order() -> None:
    seen: list[str] = []

    async def script(talk: Talk) -> None:
        if talk.number == 0:
            for _ in range(3):
                await talk.next()
            await talk.hang_up()
        while True:
            request = await talk.next()
            seen.extend(each["value"] for each in request["messages"])
            await talk.store(request)

    async def run() -> None:
        async with (
            ScriptedBroker(script) as broker,
            connect_async(broker.url, retries=1) as client,
        ):
            tasks = []
            for value in "abc":
                tasks.append(asyncio.create_task(client.send("t", value)))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)

    asyncio.run(run())
    assert seen == ["a", "b", "c"]


def test_send_while_the_broker_is_away_is_sent_when_it_is_back() -> None:
    async def run() -> None:
        async with ScriptedBroker(store_all) as broker, connect_async(broker.url) as client:
            await client.send("t", "before")
            await broker.leave()
            await until(lambda: not client.is_connected)
            sending = asyncio.create_task(client.send("t", "meanwhile"))
            await asyncio.sleep(0.01)
            await broker.listen()
            assert (await sending).offset == 0

    asyncio.run(run())


def test_cancelled_send_that_has_not_left_is_never_sent() -> None:
    seen: list[str] = []

    async def script(talk: Talk) -> None:
        while True:
            request = await talk.next()
            seen.extend(each["value"] for each in request["messages"])
            await talk.store(request)

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            sending = asyncio.create_task(client.send("t", "no"))
            other = asyncio.create_task(client.send("t", "yes"))
            await asyncio.sleep(0)
            sending.cancel()
            await other

    asyncio.run(run())
    assert seen == ["yes"]


def test_sends_of_one_turn_share_a_request() -> None:
    counts: list[int] = []

    async def script(talk: Talk) -> None:
        while True:
            request = await talk.next()
            counts.append(len(request["messages"]))
            await talk.store(request)

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            await asyncio.gather(*(client.send("t", str(each)) for each in range(500)))

    asyncio.run(run())
    assert counts == [500]


def test_no_more_messages_are_unanswered_than_allowed() -> None:
    unanswered = 0

    async def script(talk: Talk) -> None:
        nonlocal unanswered
        requests = []
        while True:
            try:
                async with asyncio.timeout(0.05):
                    requests.append(await talk.next())
            except TimeoutError:
                unanswered = max(unanswered, sum(len(each["messages"]) for each in requests))
                for request in requests:
                    await talk.store(request)
                requests.clear()

    async def run() -> None:
        async with (
            ScriptedBroker(script) as broker,
            connect_async(broker.url, max_unanswered=10) as client,
        ):
            await asyncio.gather(*(client.send("t", str(each)) for each in range(35)))

    asyncio.run(run())
    assert unanswered == 10


def test_answer_that_never_comes_is_not_waited_for_for_ever() -> None:
    async def script(talk: Talk) -> None:
        await talk.next()
        await talk.next()

    async def run() -> None:
        async with (
            ScriptedBroker(script) as broker,
            connect_async(broker.url, timeout_s=0.05) as client,
        ):
            with pytest.raises(TimedOut, match="50 ms"):
                await client.send("t", "hello")

    asyncio.run(run())


def test_late_answer_to_a_send_that_was_given_up_is_ignored() -> None:
    async def script(talk: Talk) -> None:
        first = await talk.next()
        second = await talk.next()
        await talk.store(first, 1)
        await talk.store(second, 2)

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.send("t", "first")
            assert (await client.send("t", "second")).offset == 2

    asyncio.run(run())


def test_frame_larger_than_the_broker_takes_is_refused_here() -> None:
    async def run() -> None:
        async with (
            ScriptedBroker(store_all) as broker,
            connect_async(broker.url, max_frame_bytes=1000) as client,
        ):
            with pytest.raises(MessageTooLarge):
                await client.send("t", "x" * 1000)
            await client.send("t", "x")

    asyncio.run(run())


def test_broker_that_answers_nonsense_is_left_and_tried_again() -> None:
    async def script(talk: Talk) -> None:
        request = await talk.next()
        if talk.number == 0:
            await talk.say_text("[]")
            await talk.next()
        await talk.store(request)

    async def run() -> None:
        async with (
            ScriptedBroker(script) as broker,
            connect_async(broker.url, retries=1) as client,
        ):
            await client.send("t", "hello")
            assert broker.talks == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    "result", [{}, {"places": []}, {"places": [{"partition": 0}]}, {"places": 5}], ids=str
)
def test_answer_that_is_none_fails_the_send_and_nothing_else(result: dict[str, object]) -> None:
    async def script(talk: Talk) -> None:
        for _ in range(2):
            await talk.answer(await talk.next(), result)
        await store_all(talk)

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            with pytest.raises(MalformedMessage):
                await client.send("t", "hello")
            with pytest.raises(MalformedMessage):
                await client.send_many("t", ["hello", "you"])
            await client.send("t", "again")

    asyncio.run(run())


def test_what_is_no_text_is_refused_and_harms_nobody() -> None:
    async def run() -> None:
        async with ScriptedBroker(store_all) as broker, connect_async(broker.url) as client:
            for topic in (b"bytes", "\udc80"):
                with pytest.raises(InvalidRequest):
                    await client.send(topic, "hello")  # type: ignore[arg-type]
                with pytest.raises(InvalidRequest):
                    await client.subscribe(topic)  # type: ignore[arg-type]
            await client.send("t", "hello")

    asyncio.run(run())


def test_refusal_of_the_broker_is_raised_as_the_error_that_it_is() -> None:
    async def script(talk: Talk) -> None:
        while True:
            await talk.refuse(await talk.next(), "unknown-topic", 404)

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            with pytest.raises(UnknownTopic, match="refused as unknown-topic"):
                await client.send("t", "hello")

    asyncio.run(run())


def test_nobody_at_the_address_is_told_with_the_address() -> None:
    async def run() -> None:
        async with ScriptedBroker(store_all) as broker:
            url = broker.url
        with pytest.raises(Unreachable, match=url.removeprefix("http://")):
            await connect_async(url, connect_timeout_s=0.2)

    asyncio.run(run())


def test_client_that_is_closed_refuses_everything() -> None:
    async def run() -> None:
        async with ScriptedBroker(store_all) as broker:
            client = await connect_async(broker.url)
            await client.close()
            await client.close()
            with pytest.raises(ClientClosed):
                await client.send("t", "hello")
            with pytest.raises(ClientClosed):
                await client.subscribe("t")
            with pytest.raises(ClientClosed):
                await client.topics.list()

    asyncio.run(run())


def test_close_waits_for_what_was_sent() -> None:
    async def script(talk: Talk) -> None:
        request = await talk.next()
        await asyncio.sleep(0.05)
        await talk.store(request, 3)

    async def run() -> None:
        async with ScriptedBroker(script) as broker:
            async with connect_async(broker.url) as client:
                sending = asyncio.create_task(client.send("t", "hello"))
                await asyncio.sleep(0.01)
            assert (await sending).offset == 3

    asyncio.run(run())


def test_close_while_the_broker_is_away_fails_what_was_not_sent() -> None:
    async def run() -> None:
        async with ScriptedBroker(store_all) as broker, connect_async(broker.url) as client:
            await broker.leave()
            await until(lambda: not client.is_connected)
            sending = asyncio.create_task(client.send("t", "hello"))
            await asyncio.sleep(0.01)
            await client.close()
            with pytest.raises(ClientClosed):
                await sending
            await broker.listen()

    asyncio.run(run())
