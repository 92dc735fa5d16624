"""Queues over the WebSocket of a running broker, and the simple form of the WebSocket."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.open_door import run
from tests.fakes.patience import HANG_S
from tests.fakes.streaming_door import SocketClient, client_of


async def attach(client: SocketClient, topic: str, **members: Any) -> None:
    await client.say(id="q", op="queue", topic=topic, name="work", **members)
    answer = await client.hear()
    assert answer["result"]["subscription"] == "q", answer


def ids(messages: list[dict[str, Any]]) -> list[str]:
    return [each["message_id"] for each in messages]


def test_acked_messages_are_done_and_others_come_again(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        async with client_of(broker) as client:
            await client.result("send", topic=topic, messages=[{"value": str(n)} for n in range(5)])
            await attach(client, topic)
            found = await client.messages(5)
            assert [each["delivery_count"] for each in found] == [1] * 5
            done = ["0:0", "0:2", "0:4"]
            assert await client.result("ack", subscription="q", ids=done) == {}
            again = await client.result("ack", subscription="q", ids=["0:0"])
            assert again == {"ignored": ["0:0"]}
            refused = await client.result("nack", subscription="q", ids=["0:2"])
            assert refused == {"ignored": ["0:2"]}
        async with client_of(broker) as client:
            await attach(client, topic)
            found = await client.messages(2)
            assert ids(found) == ["0:1", "0:3"]
            assert await client.is_silent()

    run(main())


def test_shared_queue_gives_each_message_to_one(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        async with client_of(broker) as one, client_of(broker) as other:
            await attach(one, topic, prefetch=10)
            await attach(other, topic, prefetch=10)
            many = [{"value": str(n)} for n in range(20)]
            await asyncio.gather(one.say(op="send", topic=topic, messages=many))
            found = await one.messages(10) + await other.messages(10)
            assert sorted(each["offset"] for each in found) == list(range(20))

    run(main())


def test_prefetch_bounds_what_is_not_acked(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        async with client_of(broker) as client:
            await client.result("send", topic=topic, messages=[{"value": "x"}] * 10)
            await attach(client, topic, prefetch=3)
            assert ids(await client.messages(3)) == ["0:0", "0:1", "0:2"]
            assert await client.is_silent()
            await client.say(op="ack", subscription="q", ids=["0:1"])
            assert ids(await client.messages(1)) == ["0:3"]

    run(main())


def test_nacked_message_comes_again_and_then_goes_to_the_dead_letters(
    broker: BrokerProcess, topic: str
) -> None:
    async def main() -> None:
        async with client_of(broker) as client:
            await client.result("send", topic=topic, value="bad")
            await attach(client, topic, max_deliveries=2, redelivery_min_ms=1)
            for count in (1, 2):
                [message] = await client.messages(1)
                assert (message["message_id"], message["delivery_count"]) == ("0:0", count)
                await client.say(op="nack", subscription="q", ids=["0:0"], reason="no good")
            async with client_of(broker) as other:
                await other.result("subscribe", topic=f"{topic}.dlq", create=True, **{"from": 0})
                [dead] = await other.messages(1)
            assert dead["value"] == "bad"
            assert dead["headers"]["millstream-reason"] == "no good"

    run(main())


def test_dead_letters_are_looked_at_and_sent_back_as_over_http(
    broker: BrokerProcess, topic: str
) -> None:
    async def main() -> None:
        async with client_of(broker) as client:
            await client.result("send", topic=topic, messages=[{"value": v} for v in "abc"])
            await attach(client, topic, max_deliveries=1)
            found = await client.messages(3)
            nacked = {"subscription": "q", "ids": ids(found), "reason": "no good"}
            await client.result("nack", **nacked)
            of = {"topic": topic, "name": "work"}
            # Each look lets the broker do some more of what it has to.
            while len((await client.result("dead_letters", **of))["messages"]) < 3:
                pass
            told = await client.result("dead_letters", **of, limit=2)
            path = f"/topics/{topic}/subscriptions/work/dlq"
            async with httpx.AsyncClient(base_url=broker.url, timeout=HANG_S) as web:
                assert told == (await web.get(path, params={"limit": 2})).json()
            assert [each["reason"] for each in told["messages"]] == ["no good"] * 2
            offset = told["next_offsets"]["0"]
            rest = await client.result("dead_letters", **of, partition=0, offset=offset)
            assert [each["value"] for each in rest["messages"]] == ["c"]
            packed = await client.result("dead_letters", **of, limit=1, encoding="base64")
            assert packed["messages"][0]["value"] == "YQ=="
            await client.result("unsubscribe", subscription="q")
            done = await client.result("replay", **of, limit=2)
            assert (done["count"], done["failed"]) == (2, [])
            last = rest["messages"][0]["message_id"]
            assert (await client.result("replay", **of, ids=[last]))["count"] == 1
            await client.result("subscribe", topic=topic, **{"from": 3})
            assert [each["value"] for each in await client.messages(3)] == ["a", "b", "c"]

    run(main())


@pytest.mark.parametrize(
    ("op", "wrong", "status"),
    [
        ("dead_letters", {"name": "nope"}, 404),
        ("dead_letters", {"name": 7}, 422),
        ("dead_letters", {"limit": 0}, 422),
        ("dead_letters", {"limit": 10_001}, 422),
        ("dead_letters", {"offset": 3}, 422),
        ("dead_letters", {"encoding": "hex"}, 422),
        ("replay", {"name": "nope"}, 404),
        ("replay", {"ids": []}, 422),
        ("replay", {"ids": ["x"]}, 422),
        ("replay", {"ids": ["0:99"]}, 422),
        ("replay", {"limit": "2"}, 422),
    ],
)
def test_what_is_wrong_with_a_wish_for_dead_letters_is_told(
    broker: BrokerProcess, topic: str, op: str, wrong: dict[str, Any], status: int
) -> None:
    async def main() -> None:
        async with client_of(broker) as client:
            await attach(client, topic)
            error = await client.error(op, **{"topic": topic, "name": "work", **wrong})
            assert error["status"] == status

    run(main())


def test_ack_timeout_gives_a_message_to_the_next_unless_extended(
    broker: BrokerProcess, topic: str
) -> None:
    async def main() -> None:
        async with client_of(broker) as one, client_of(broker) as other:
            await one.result("send", topic=topic, messages=[{"value": "a"}, {"value": "b"}])
            await attach(one, topic, ack_timeout_ms=400, redelivery_min_ms=1)
            assert ids(await one.messages(2)) == ["0:0", "0:1"]
            await one.result("extend", subscription="q", ids=["0:0"], timeout_ms=30_000)
            await one.result("unsubscribe", subscription="q")
            # What it had is free at once.
            await attach(other, topic, prefetch=1)
            assert ids(await other.messages(1)) == ["0:0"]

    run(main())


def test_second_consumer_of_an_exclusive_queue_and_other_settings_are_conflicts(
    broker: BrokerProcess, topic: str
) -> None:
    async def main() -> None:
        async with client_of(broker) as one, client_of(broker) as other:
            await attach(one, topic, type="exclusive", max_deliveries=3)
            error = await other.error("queue", topic=topic, name="work")
            assert error["status"] == 409
            error = await other.error("queue", topic=topic, name="work", max_deliveries=4)
            assert error["status"] == 409
            # The refused one is not there.
            await other.say(id="q", op="unsubscribe", subscription="q")
            assert (await other.hear())["error"]["status"] == 404

    run(main())


def test_delayed_message_is_delivered_when_it_is_due(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        async with client_of(broker) as client:
            await attach(client, topic)
            many = [{"value": "later", "deliver_after": 300}, {"value": "now"}]
            await client.say(op="send", topic=topic, messages=many)
            assert [each["value"] for each in await client.messages(1)] == ["now"]
            assert [each["value"] for each in await client.messages(1)] == ["later"]

    run(main())


def test_log_operations_are_not_for_queues(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        async with client_of(broker) as client:
            await attach(client, topic)
            assert (await client.error("seek", subscription="q", to=0))["status"] == 422
            assert (await client.error("credit", subscription="q", messages=1))["status"] == 422
            assert (await client.error("ack", subscription="q", ids=["0:7"]))["status"] == 422

    run(main())


# The simple form


def test_simple_form_sends_and_receives(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        async with client_of(broker, f"/topics/{topic}/ws?produce=only") as sender:
            await sender.say(value="a", key="k")
            assert (await sender.hear())["places"][0]["message_id"] == "0:0"
            await sender.say(messages=[{"value": "b"}, {"value": "c"}])
            places = (await sender.hear())["places"]
            assert ids(places) == ["0:1", "0:2"]
            await sender.say(nope=1)
            assert (await sender.hear())["error"]["status"] == 422
            async with client_of(broker, f"/topics/{topic}/ws?from=1") as reader:
                assert [each["value"] for each in await reader.messages(2)] == ["b", "c"]
                await sender.say(value="d")
                assert ids(await reader.messages(1)) == ["0:3"]

    run(main())


def test_simple_form_keeps_the_position_of_a_group(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        path = f"/topics/{topic}/ws?group={topic}&create=true"
        async with client_of(broker, path) as client:
            await client.say(messages=[{"value": "a"}, {"value": "b"}, {"value": "c"}])
            frames = [await client.hear(), await client.hear()]
            assert any("places" in each for each in frames)
            await client.say(ack="0:0")
            await client.say(ack=["0:1"])
            await client.say(ack=5)
            assert "error" in await client.hear()
        async with client_of(broker, path) as client:
            assert ids(await client.messages(1)) == ["0:2"]

    run(main())


def test_simple_form_works_a_queue(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        async with client_of(broker, f"/topics/{topic}/ws?queue=work&prefetch=1") as client:
            await client.say(messages=[{"value": "a"}, {"value": "b"}])
            frames = [await client.hear(), await client.hear()]
            [messages] = [each["messages"] for each in frames if "messages" in each]
            assert ids(messages) == ["0:0"]
            await client.say(nack="0:0", delay_ms=0)
            assert (await client.messages(1))[0]["message_id"] in {"0:0", "0:1"}

    run(main())


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("from=now", "expected earliest"),
        ("from=99", "not in the log"),
        ("partition=x", "partition is 'x'"),
        ("partition=9", "has no partition 9"),
        ("form=0", "no parameter 'form' here: did you mean from?"),
        ("produce=yes", "produce=only"),
        ("produce=only&from=0", "produce=only"),
        ("queue=work&type=none", "type"),
        ("prefetch=0", "prefetch is 0"),
    ],
)
def test_simple_form_is_closed_with_what_is_wrong_with_its_parameters(
    broker: BrokerProcess, query: str, word: str
) -> None:
    async def main() -> None:
        async with client_of(broker) as client:
            await client.ask("create_topic", topic="simple")
        async with client_of(broker, f"/topics/simple/ws?{query}") as client:
            code, reason = await client.end()
            assert code == 1008
            assert reason is not None
            assert word in reason

    run(main())


def test_simple_form_does_not_create_a_topic_to_read(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with client_of(broker, "/topics/never-made/ws") as client:
            code, reason = await client.end()
            assert (code, reason) == (1008, "there is no topic 'never-made'")

    run(main())
