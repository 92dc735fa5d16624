"""Subscriptions of the client: where they go on over a new connection, and what they settle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from millstream.client import AsyncSubscription
from millstream.errors import Conflict, NotFound, UnknownTopic
from tests.fakes.patience import HANG_S
from tests.fakes.patient_client import connect_async
from tests.fakes.scripted_broker import Frame, ScriptedBroker, Talk, message, until


async def begin(talk: Talk, positions: dict[str, int] | None = None) -> Frame:
    """Answer the request to subscribe, which is the next one."""
    request = await talk.next()
    assert request["op"] in ("subscribe", "queue")
    result: Frame = {"subscription": request["id"]}
    if request["op"] == "subscribe":
        result["positions"] = positions or {"0": 0}
    await talk.answer(request, result)
    return request


async def deliver(talk: Talk, request: Frame, offsets: Sequence[int], **more: Any) -> None:
    messages = [message(offset, **more) for offset in offsets]
    await talk.say({"subscription": request["id"], "messages": messages})


async def offsets_of(subscription: AsyncSubscription, count: int) -> list[int]:
    offsets = []
    async for each in subscription:
        offsets.append(each.offset)
        if len(offsets) == count:
            break
    return offsets


def test_reader_goes_on_behind_what_it_has_handed_out() -> None:
    asked: list[Frame] = []

    async def script(talk: Talk) -> None:
        request = await begin(talk)
        asked.append(request)
        if talk.number == 0:
            await deliver(talk, request, range(10))
            await talk.next()  # That it has taken enough for new credit.
            await talk.hang_up()
        else:
            seek = await talk.next()
            asked.append(seek)
            await talk.answer(seek, {"positions": {"0": 8}})
            await deliver(talk, request, range(8, 10))

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", start=0, prefetch=32)
            # The last two are fetched and not handed out: they come again.
            assert await offsets_of(subscription, 8) == list(range(8))
            await until(lambda: not client.is_connected)
            await until(lambda: client.is_connected)
            await asyncio.sleep(0.01)
            assert await offsets_of(subscription, 2) == [8, 9]
            assert await subscription.receive(timeout_s=0.05) is None

    asyncio.run(run())
    first, again, seek = asked
    assert (first["from"], again["from"], seek["to"]) == (0, "latest", {"positions": {"0": 8}})
    assert first["id"] == again["id"] == seek["subscription"]


def test_reader_of_a_group_goes_on_behind_what_it_has_handed_out() -> None:
    async def script(talk: Talk) -> None:
        request = await begin(talk)
        if talk.number == 0:
            await deliver(talk, request, range(3))
            await talk.next()
            await talk.hang_up()
            return
        # It begins where the group has committed: what comes from there was handed out already.
        await deliver(talk, request, range(3))
        seek = await talk.next()
        assert seek["to"] == {"positions": {"0": 3}}
        await deliver(talk, request, [1, 2])
        await talk.answer(seek, {"positions": {"0": 3}})
        await deliver(talk, request, [3])

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", cursor="g", prefetch=12)
            assert await offsets_of(subscription, 3) == [0, 1, 2]
            assert await offsets_of(subscription, 1) == [3]

    asyncio.run(run())


def test_credit_leaves_before_what_was_asked_for_later() -> None:
    """Else a topic that is deleted takes the subscription with it, and the credit is refused."""
    heard: list[str] = []

    async def script(talk: Talk) -> None:
        request = await talk.next()
        await talk.answer(request, {"positions": {"0": 0}})
        await talk.say({"subscription": request["id"], "messages": [message(0)]})
        for _ in range(2):
            request = await talk.next()
            heard.append(request["op"])
        await talk.answer(request, {})

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", prefetch=1)
            await subscription.receive(timeout_s=HANG_S)
            await client.topics.delete("t")

    asyncio.run(run())
    assert heard == ["credit", "delete_topic"]


def test_credit_is_given_for_what_was_handed_out_and_not_for_what_waits() -> None:
    granted: list[int] = []

    async def script(talk: Talk) -> None:
        request = await begin(talk)
        assert request["prefetch"] == 8
        await deliver(talk, request, range(8))
        for _ in range(2):
            note = await talk.next()
            assert note["op"] == "credit"
            assert "id" not in note
            granted.append(note["messages"])
        await deliver(talk, request, range(8, 10))

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", start="earliest", prefetch=8)
            await offsets_of(subscription, 5)
            assert await offsets_of(subscription, 5) == [5, 6, 7, 8, 9]

    asyncio.run(run())
    assert granted == [2, 2]


def test_seek_lets_go_of_what_was_fetched_ahead() -> None:
    async def script(talk: Talk) -> None:
        request = await begin(talk)
        await deliver(talk, request, range(5))
        seek = await talk.next()
        assert seek["op"] == "seek"
        await deliver(talk, request, [5, 6])
        await talk.answer(seek, {"positions": {"0": 100}})
        await deliver(talk, request, [100])

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", start=0)
            assert await offsets_of(subscription, 1) == [0]
            await subscription.seek(100)
            assert await offsets_of(subscription, 1) == [100]

    asyncio.run(run())


def test_seek_of_one_partition_keeps_what_was_fetched_of_others() -> None:
    async def script(talk: Talk) -> None:
        request = await begin(talk, {"0": 0, "1": 0})
        await deliver(talk, request, range(2))
        await deliver(talk, request, range(2), partition=1)
        seek = await talk.next()
        assert seek["partition"] == 1
        # It tells where it reads in all partitions, which is past what was handed out.
        await talk.answer(seek, {"positions": {"0": 2, "1": 50}})
        await deliver(talk, request, [50], partition=1)

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", start=0)
            first = await subscription.receive()
            await asyncio.sleep(0.02)
            await subscription.seek(50, partition=1)
            rest = [await subscription.receive() for _ in range(2)]
            assert first is not None
            assert [each.id for each in (first, *rest) if each] == ["0:0", "0:1", "1:50"]

    asyncio.run(run())


def test_seek_whose_answer_was_lost_is_made_again_after_it_is_attached() -> None:
    operations: list[tuple[int, str]] = []

    async def script(talk: Talk) -> None:
        request = await begin(talk)
        if talk.number:
            attach = await talk.next()
            await talk.answer(attach, {"positions": {"0": 0}})
        seek = await talk.next()
        operations.append((talk.number, seek["op"]))
        if talk.number == 0:
            await talk.hang_up()
        else:
            await talk.answer(seek, {"positions": {"0": 9}})
            await deliver(talk, request, [9])

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t")
            await subscription.seek(9)
            assert await offsets_of(subscription, 1) == [9]

    asyncio.run(run())
    assert operations == [(0, "seek"), (1, "seek")]


def test_acks_made_together_leave_together_and_are_waited_for_together() -> None:
    asked: list[Frame] = []

    async def script(talk: Talk) -> None:
        request = await begin(talk)
        await deliver(talk, request, range(100))
        while True:
            ack = await talk.next()
            asked.append(ack)
            await talk.answer(ack, {})

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", subscription="q")
            settled = [(await anext(subscription)).ack() for _ in range(100)]
            for each in settled:
                await each

    asyncio.run(run())
    acks = [each for each in asked if each["op"] == "ack"]
    assert len(acks) == 1
    assert acks[0]["ids"] == [f"0:{offset}" for offset in range(100)]


def test_ack_that_was_not_awaited_is_sent_before_the_end() -> None:
    asked: list[Frame] = []

    async def script(talk: Talk) -> None:
        request = await begin(talk)
        await deliver(talk, request, [0])
        while True:
            asked.append(await talk.next())
            await talk.answer(asked[-1], {})

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", subscription="q")
            (await anext(subscription)).ack()

    asyncio.run(run())
    assert [each["op"] for each in asked] == ["ack", "unsubscribe"]


def test_ack_whose_answer_was_lost_is_made_again() -> None:
    acks: list[tuple[int, list[str]]] = []

    async def script(talk: Talk) -> None:
        request = await begin(talk)
        if talk.number == 0:
            await deliver(talk, request, [4])
        ack = await talk.next()
        acks.append((talk.number, ack["ids"]))
        if talk.number == 0:
            await talk.hang_up()
        else:
            await talk.answer(ack, {})

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", subscription="q")
            await (await anext(subscription)).ack()

    asyncio.run(run())
    assert acks == [(0, ["0:4"]), (1, ["0:4"])]


def test_message_that_comes_again_before_its_ack_was_repeated_is_not_handed_out() -> None:
    async def script(talk: Talk) -> None:
        request = await begin(talk)
        if talk.number == 0:
            await deliver(talk, request, [4])
            await talk.next()
            await talk.hang_up()
        await deliver(talk, request, [4, 5], delivery_count=2)
        await talk.answer(await talk.next(), {})

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", subscription="q")
            await (await anext(subscription)).ack()
            assert await offsets_of(subscription, 1) == [5]

    asyncio.run(run())


def test_ack_that_is_refused_raises_for_who_waits_and_is_told_for_who_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(talk: Talk) -> None:
        request = await begin(talk)
        await deliver(talk, request, [4])
        await talk.refuse(await talk.next(), "not-found", 404)

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", subscription="q")
            with pytest.raises(NotFound):
                await (await anext(subscription)).ack()

    asyncio.run(run())
    assert "acknowledgements were not taken: refused as not-found" in caplog.text


def test_ack_of_a_group_never_goes_back() -> None:
    acks: list[list[str]] = []

    async def script(talk: Talk) -> None:
        request = await begin(talk)
        await deliver(talk, request, range(3))
        while True:
            ack = await talk.next()
            acks.append(ack.get("ids", []))
            await talk.answer(ack, {})

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", cursor="g")
            first, _, third = [await anext(subscription) for _ in range(3)]
            await third.ack()
            await first.ack()

    asyncio.run(run())
    assert acks == [["0:2"], []]


def test_nack_and_extend_carry_what_they_were_given() -> None:
    asked: list[Frame] = []

    async def script(talk: Talk) -> None:
        request = await begin(talk)
        await deliver(talk, request, range(3), delivery_count=2)
        while True:
            asked.append(await talk.next())
            await talk.answer(asked[-1], {})

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", subscription="q", type="shared")
            first, second, third = [await anext(subscription) for _ in range(3)]
            assert first.delivery_count == 2
            await first.nack(delay=0.5, reason="busy")
            await second.nack()
            await third.extend(60)

    asyncio.run(run())
    kept = [{k: v for k, v in each.items() if k not in ("id", "subscription")} for each in asked]
    assert kept[:3] == [
        {"op": "nack", "ids": ["0:0"], "delay_ms": 500, "reason": "busy"},
        {"op": "nack", "ids": ["0:1"]},
        {"op": "extend", "ids": ["0:2"], "timeout_ms": 60_000},
    ]


def test_exclusive_consumer_waits_until_the_broker_lets_go_of_its_old_connection() -> None:
    async def script(talk: Talk) -> None:
        request = await begin(talk)
        if talk.number == 0:
            await talk.hang_up()
        await deliver(talk, request, [1])

    async def refusing(talk: Talk) -> None:
        if talk.number == 1:
            for _ in range(2):
                await talk.refuse(await talk.next(), "conflict", 409)
        await script(talk)

    async def run() -> None:
        async with ScriptedBroker(refusing) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", subscription="q", type="exclusive")
            assert await offsets_of(subscription, 1) == [1]

    asyncio.run(run())


def test_conflict_at_the_first_attempt_is_raised() -> None:
    async def script(talk: Talk) -> None:
        while True:
            await talk.refuse(await talk.next(), "conflict", 409)

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            with pytest.raises(Conflict):
                await client.subscribe("t", subscription="q", type="exclusive")

    asyncio.run(run())


def test_subscription_that_the_broker_ends_gives_what_came_before_and_then_raises() -> None:
    async def script(talk: Talk) -> None:
        request = await begin(talk)
        await deliver(talk, request, [0, 1])
        error = {"type": "unknown-topic", "status": 404, "detail": "it was deleted"}
        await talk.say({"subscription": request["id"], "error": error})

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t")
            assert await offsets_of(subscription, 2) == [0, 1]
            for _ in range(2):
                with pytest.raises(UnknownTopic, match="it was deleted"):
                    await subscription.receive()

    asyncio.run(run())


def test_delivery_that_is_none_makes_the_client_connect_anew() -> None:
    async def script(talk: Talk) -> None:
        request = await begin(talk)
        if talk.number == 0:
            await talk.say({"subscription": request["id"], "messages": [{"value": "v"}]})
        else:
            await talk.answer(await talk.next(), {"positions": {"0": 0}})
            await deliver(talk, request, [0])

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", start=0)
            assert await offsets_of(subscription, 1) == [0]
            assert broker.talks == 2

    asyncio.run(run())


def test_deleted_messages_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def script(talk: Talk) -> None:
        request = await begin(talk)
        skipped = {"partition": 0, "from": 5, "to": 90}
        await talk.say({"subscription": request["id"], "skipped": skipped})
        await deliver(talk, request, [90])

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t", start=5)
            assert await offsets_of(subscription, 1) == [90]
            assert subscription.skipped_count == 85

    asyncio.run(run())
    assert "offsets 5 to 89 were deleted" in caplog.text


def test_iterators_end_when_the_client_is_closed() -> None:
    async def script(talk: Talk) -> None:
        await begin(talk)
        await talk.answer(await talk.next(), {})

    async def run() -> None:
        async with ScriptedBroker(script) as broker:
            async with connect_async(broker.url) as client:
                subscription = await client.subscribe("t")
                reading = asyncio.create_task(offsets_of(subscription, 1))
                await asyncio.sleep(0.01)
            assert await reading == []
            assert await subscription.receive() is None

    asyncio.run(run())


def test_receive_gives_up_after_its_time() -> None:
    async def script(talk: Talk) -> None:
        await begin(talk)

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            subscription = await client.subscribe("t")
            assert await subscription.receive(timeout_s=0.01) is None

    asyncio.run(run())


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": "g", "subscription": "q"},
        {"partitions": [0], "subscription": "q"},
        {"type": "shared"},
        {"consumer": "me"},
        {"start": "first"},
        {"start": -1},
    ],
    ids=str,
)
def test_wishes_that_contradict_each_other_are_refused_here(wrong: dict[str, Any]) -> None:
    async def script(talk: Talk) -> None:
        await talk.next()

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            with pytest.raises(ValueError, match=r"give|leave"):
                await client.subscribe("t", **wrong)

    asyncio.run(run())


def test_what_a_plain_reader_cannot_do_is_refused_here() -> None:
    async def script(talk: Talk) -> None:
        request = await begin(talk)
        await deliver(talk, request, [0])

    async def run() -> None:
        async with ScriptedBroker(script) as broker, connect_async(broker.url) as client:
            each = await anext(await client.subscribe("t"))
            with pytest.raises(ValueError, match="cursor=, group= or subscription="):
                each.ack()
            with pytest.raises(ValueError, match="subscription="):
                each.nack()
            with pytest.raises(ValueError, match="subscription="):
                each.extend(1)

    asyncio.run(run())
