"""The WebSocket of a running broker: requests, subscriptions, and what is wrong with frames."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest
from websockets.exceptions import ConnectionClosed

from tests.clients.broker_process import BrokerProcess
from tests.fakes.open_door import run
from tests.fakes.patience import HANG_S
from tests.fakes.streaming_door import SocketClient, client_of

Script = Callable[[SocketClient], Awaitable[None]]


def play(broker: BrokerProcess, script: Script) -> None:
    async def main() -> None:
        async with client_of(broker) as client:
            await script(client)

    run(main())


def from_(origin: Any) -> dict[str, Any]:
    return {"from": origin}


def values(messages: list[dict[str, Any]]) -> list[Any]:
    return [each["value"] for each in messages]


# Sending


def test_send_is_answered_with_its_place_and_delivered_whole(
    broker: BrokerProcess, topic: str
) -> None:
    async def script(client: SocketClient) -> None:
        sent = await client.result(
            "send",
            topic=topic,
            value="grüße",
            key="k",
            headers={"a": "1", "b": ["2", "3"]},
            timestamp=1_700_000_000_123,
        )
        place = {"partition": 0, "offset": 0, "timestamp": 1_700_000_000_123, "message_id": "0:0"}
        assert sent == {"places": [place]}
        await client.result("subscribe", topic=topic, **from_("earliest"))
        [message] = await client.messages(1)
        assert message == {
            **place,
            "value": "grüße",
            "key": "k",
            "headers": {"a": "1", "b": ["2", "3"]},
        }

    play(broker, script)


def test_bytes_that_are_no_text_travel_as_base64(broker: BrokerProcess, topic: str) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("send", topic=topic, value="/wA=", key="/g==", encoding="base64")
        await client.result("send", topic=topic, value={"n": [1, None]})
        await client.result("send", topic=topic, value=None, key="gone")
        await client.result("subscribe", topic=topic, **from_("earliest"))
        binary, shape, nothing = await client.messages(3)
        assert (binary["value"], binary["encoding"]) == ("/wA=", "base64")
        assert (binary["key"], binary["key_encoding"]) == ("/g==", "base64")
        assert orjson.loads(shape["value"]) == {"n": [1, None]}
        assert (nothing["value"], nothing["key"]) == (None, "gone")
        assert "encoding" not in shape

    play(broker, script)


def test_many_messages_in_a_frame_each_have_a_place(broker: BrokerProcess, topic: str) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("create_topic", topic=topic, settings={"max.message.bytes": 2000})
        many = [
            {"value": "a"},
            {"value": "x" * 5000},
            {"value": "b"},
            {"value": "c", "partition": 9},
        ]
        places = (await client.result("send", topic=topic, messages=many))["places"]
        assert [each.get("message_id") for each in places] == ["0:0", None, "0:1", None]
        assert [each["error"]["status"] for each in places if "error" in each] == [413, 404]

    play(broker, script)


def test_one_bad_message_of_many_stores_none(broker: BrokerProcess, topic: str) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("create_topic", topic=topic)
        many = [{"value": "a"}, {"values": "b"}]
        error = await client.error("send", topic=topic, messages=many)
        assert "message 1" in error["detail"]
        described = await client.result("describe_topic", topic=topic)
        assert described["partitions"][0]["end_offset"] == 0

    play(broker, script)


def test_a_thousand_requests_at_once_are_all_answered_and_kept_in_order(
    broker: BrokerProcess, topic: str
) -> None:
    async def script(client: SocketClient) -> None:
        # The topic is created by the first of them.
        for number in range(3000):
            await client.say(id=f"s{number}", op="send", topic=topic, value=str(number))
        offsets = {}
        for _ in range(3000):
            answer = await client.hear()
            offsets[answer["id"]] = answer["result"]["places"][0]["offset"]
        assert offsets == {f"s{number}": number for number in range(3000)}

    play(broker, script)


# Subscriptions


def test_subscriber_sees_a_message_that_another_sends(broker: BrokerProcess, topic: str) -> None:
    async def script(client: SocketClient) -> None:
        subscribed = await client.result("subscribe", topic=topic, create=True)
        assert subscribed["positions"] == {"0": 0}
        async with client_of(broker) as other:
            await other.result("send", topic=topic, value="hello")
        frame = await client.hear()
        assert frame["subscription"] == subscribed["subscription"]
        assert values(frame["messages"]) == ["hello"]

    play(broker, script)


@pytest.mark.parametrize(
    ("origin", "first"),
    [
        ("earliest", 0),
        ("latest", 10),
        (7, 7),
        (10, 10),
        ({"timestamp": 1005}, 5),
        ({"timestamp": 99999}, 10),
        ({"positions": {"0": 3}}, 3),
        ({"positions": {}}, 0),
    ],
)
def test_subscription_begins_where_it_is_told_to(
    broker: BrokerProcess, topic: str, origin: Any, first: int
) -> None:
    async def script(client: SocketClient) -> None:
        many = [{"value": str(n), "timestamp": 1000 + n} for n in range(10)]
        await client.result("send", topic=topic, messages=many)
        subscribed = await client.result("subscribe", topic=topic, **from_(origin))
        assert subscribed["positions"] == {"0": first}
        await client.say(op="send", topic=topic, value="10")
        found = await client.messages(11 - first)
        assert values(found) == [str(n) for n in range(first, 11)]

    play(broker, script)


def test_partitions_can_be_chosen(broker: BrokerProcess, topic: str) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("create_topic", topic=topic, partitions=3)
        await client.result("subscribe", topic=topic, partitions=[2, 0, 2], **from_("earliest"))
        for partition in (1, 2, 0):
            await client.say(op="send", topic=topic, value=str(partition), partition=partition)
        assert sorted(values(await client.messages(2))) == ["0", "2"]
        assert await client.is_silent()

    play(broker, script)


def test_seek_goes_back_and_nothing_of_before_comes_after_its_answer(
    broker: BrokerProcess, topic: str
) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("send", topic=topic, messages=[{"value": str(n)} for n in range(5000)])
        await client.say(id="s", op="subscribe", topic=topic, **from_("earliest"))
        await client.say(id="k", op="seek", subscription="s", to=4990)
        frame = await client.hear()
        while frame.get("id") != "k":
            frame = await client.hear()
        assert frame["result"]["positions"] == {"0": 4990}
        assert values(await client.messages(10)) == [str(n) for n in range(4990, 5000)]
        assert await client.is_silent()

    play(broker, script)


def test_unsubscribed_means_silence_and_the_id_is_free(broker: BrokerProcess, topic: str) -> None:
    async def script(client: SocketClient) -> None:
        await client.say(id="s", op="subscribe", topic=topic, create=True)
        await client.hear()
        assert (await client.error("unsubscribe", subscription="t"))["status"] == 404
        await client.result("unsubscribe", subscription="s")
        await client.result("send", topic=topic, value="x")
        assert await client.is_silent()
        await client.say(id="s", op="subscribe", topic=topic, **from_(0))
        assert "result" in await client.hear()
        assert values(await client.messages(1)) == ["x"]

    play(broker, script)


def test_prefetch_holds_messages_back_until_there_is_credit(
    broker: BrokerProcess, topic: str
) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("send", topic=topic, messages=[{"value": str(n)} for n in range(30)])
        await client.say(id="s", op="subscribe", topic=topic, prefetch=10, **from_(0))
        await client.hear()
        assert len(await client.messages(10)) == 10
        assert await client.is_silent()
        await client.say(op="credit", subscription="s", messages=3)
        assert values(await client.messages(3)) == ["10", "11", "12"]
        assert await client.is_silent()
        # No more than the prefetch at once, however much is granted.
        await client.say(op="credit", subscription="s", messages=1000)
        assert len(await client.messages(10)) == 10
        assert await client.is_silent()

    play(broker, script)


def test_deleted_topic_ends_its_subscriptions_and_no_others(
    broker: BrokerProcess, topic: str
) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("subscribe", topic=f"{topic}-kept", create=True)
        await client.say(id="s", op="subscribe", topic=topic, create=True)
        await client.hear()
        async with client_of(broker) as other:
            await other.result("delete_topic", topic=topic)
        ended = await client.hear()
        assert (ended["subscription"], ended["error"]["status"]) == ("s", 404)
        await client.say(op="send", topic=f"{topic}-kept", value="x")
        assert values(await client.messages(1)) == ["x"]

    play(broker, script)


# Groups


def test_group_goes_on_after_what_it_has_acked(broker: BrokerProcess, topic: str) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("send", topic=topic, messages=[{"value": str(n)} for n in range(10)])
        await client.say(id="s", op="subscribe", topic=topic, group=topic)
        await client.hear()
        assert values(await client.messages(10))[0] == "0"
        await client.result("ack", subscription="s", ids=["0:1", "0:4", "0:2"])
        # What lies before it is done already; the position does not move back.
        await client.result("ack", subscription="s", ids=["0:3"])
        async with client_of(broker) as other:
            subscribed = await other.result(
                "subscribe", topic=topic, group=topic, **from_("latest")
            )
            assert subscribed["positions"] == {"0": 5}
            assert values(await other.messages(5)) == ["5", "6", "7", "8", "9"]
        # After a seek it may.
        await client.result("seek", subscription="s", to=9)
        await client.messages(1)
        await client.result("ack", subscription="s", ids=["0:0"])
        async with client_of(broker) as other:
            subscribed = await other.result("subscribe", topic=topic, group=topic)
            assert subscribed["positions"] == {"0": 1}

    play(broker, script)


@pytest.mark.parametrize("bad", ["0", "0:", ":1", "0:x", "0:-1", "0:99", "7:0", "0:1:2", "²:0"])
def test_ack_of_what_there_is_not_is_refused(broker: BrokerProcess, topic: str, bad: str) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("send", topic=topic[:40], value="x")
        await client.say(id="s", op="subscribe", topic=topic[:40], group="g")
        await client.hear()
        await client.messages(1)
        assert (await client.error("ack", subscription="s", ids=[bad]))["status"] in {404, 422}
        await client.say(id="n", op="subscribe", topic=topic[:40])
        await client.hear()
        assert (await client.error("ack", subscription="n", ids=["0:0"]))["status"] == 422
        assert (await client.error("nack", subscription="s", ids=["0:0"]))["status"] == 422

    play(broker, script)


# Topics


def test_topics_are_created_described_listed_and_deleted(broker: BrokerProcess, topic: str) -> None:
    async def script(client: SocketClient) -> None:
        settings = {"retention.ms": 60000}
        await client.result("create_topic", topic=topic, partitions=2, settings=settings)
        assert (await client.error("create_topic", topic=topic))["status"] == 409
        described = await client.result("describe_topic", topic=topic)
        assert described == {
            "name": topic,
            "partitions": [
                {"partition": 0, "start_offset": 0, "end_offset": 0},
                {"partition": 1, "start_offset": 0, "end_offset": 0},
            ],
            "settings": {"retention.ms": "60000"},
        }
        assert topic in (await client.result("topics"))["topics"]
        await client.result("delete_topic", topic=topic)
        assert topic not in (await client.result("topics"))["topics"]
        assert (await client.error("describe_topic", topic=topic))["status"] == 404
        error = await client.error("create_topic", topic=topic, settings={"nope": "1"})
        assert "nope" in error["detail"]

    play(broker, script)


# What is wrong


@pytest.mark.parametrize(
    ("frame", "word"),
    [
        ({}, "op is None"),
        ({"op": "nope"}, "expected one of send"),
        ({"op": ["send"]}, "op is"),
        ({"op": "send"}, "topic is missing"),
        ({"op": "send", "topic": 5, "value": "x"}, "topic is 5"),
        ({"op": "send", "topic": "../x", "value": "x"}, "is no name"),
        ({"op": "send", "topic": "__catalog", "value": "x"}, "__catalog"),
        ({"op": "send", "topic": "t"}, "value"),
        ({"op": "send", "topic": "t", "value": "x", "colour": 1}, "colour"),
        ({"op": "send", "topic": "t", "messages": []}, "messages is []"),
        ({"op": "send", "topic": "t", "messages": [5]}, "message 0"),
        ({"op": "subscribe", "topic": "never-made"}, "never-made"),
        ({"op": "subscribe", "topic": "known", "from": "now"}, "expected earliest"),
        ({"op": "subscribe", "topic": "known", "from": -1}, "expected earliest"),
        ({"op": "subscribe", "topic": "known", "from": 99}, "99 is not in the log"),
        ({"op": "subscribe", "topic": "known", "from": {"positions": {"0": "x"}}}, "expected"),
        ({"op": "subscribe", "topic": "known", "partitions": [5]}, "has no partition 5: it has 1"),
        ({"op": "subscribe", "topic": "known", "partitions": ["0"]}, "partitions has"),
        ({"op": "subscribe", "topic": "known", "prefetch": 0}, "prefetch is 0"),
        ({"op": "subscribe", "topic": "known", "create": 1}, "create is 1"),
        ({"op": "seek", "subscription": 99, "to": 0}, "no subscription '99'"),
        ({"op": "seek", "to": 0}, "subscription is None"),
        ({"op": "ack", "subscription": "open", "ids": "0:0"}, "ids is"),
        ({"op": "ack", "subscription": "open", "ids": [0]}, "list of texts"),
        ({"op": "credit", "subscription": "open", "messages": 5}, "no prefetch"),
        ({"op": "seek", "subscription": "open", "to": 99}, "99 is not in the log"),
        ({"op": "seek", "subscription": "open", "to": 0, "partition": 7}, "has no partition 7"),
        ({"op": "create_topic", "topic": "new", "partitions": 0}, "partitions is 0"),
        ({"op": "create_topic", "topic": "new", "settings": []}, "settings is []"),
        ({"op": "queue", "topic": "known", "name": "q", "type": "none"}, "type"),
    ],
)
def test_bad_request_is_answered_by_an_error_that_says_why(
    broker: BrokerProcess, frame: dict[str, Any], word: str
) -> None:
    async def script(client: SocketClient) -> None:
        await client.say(id="open", op="subscribe", topic="known", create=True)
        await client.hear()
        await client.say(id="x", **frame)
        answer = await client.hear()
        assert answer["id"] == "x"
        assert word in answer["error"]["detail"], answer
        assert 400 <= answer["error"]["status"] < 500
        assert answer["error"]["type"].startswith("urn:millstream:")
        assert "result" in await client.ask("ping")

    play(broker, script)


@pytest.mark.parametrize("text", ["[]", "5", '"x"', "null", "[{}]"])
def test_frame_that_is_no_object_is_answered_by_an_error(broker: BrokerProcess, text: str) -> None:
    async def script(client: SocketClient) -> None:
        await client.connection.send(text)
        assert "error" in await client.hear()
        assert "result" in await client.ask("ping")

    play(broker, script)


def test_failed_request_without_an_id_is_told_by_its_op(broker: BrokerProcess) -> None:
    async def script(client: SocketClient) -> None:
        await client.say(op="delete_topic", topic="never-made")
        answer = await client.hear()
        assert (answer["op"], answer["error"]["status"]) == ("delete_topic", 404)
        await client.say(op="subscribe", topic="never-made")
        assert "id is missing" in (await client.hear())["error"]["detail"]
        await client.say(id=[1], op="ping")
        assert "id is [1]" in (await client.hear())["error"]["detail"]

    play(broker, script)


@pytest.mark.parametrize("raw", ["{nope", "", b"\xff\xfe", '{"op": "ping"} x'])
def test_what_is_no_json_closes_with_a_reason(broker: BrokerProcess, raw: str | bytes) -> None:
    async def script(client: SocketClient) -> None:
        await client.connection.send(raw)
        code, reason = await client.end()
        assert code == 1007
        assert reason is not None
        assert "not JSON" in reason

    play(broker, script)


def test_binary_frame_with_json_is_as_good_as_text(broker: BrokerProcess) -> None:
    async def script(client: SocketClient) -> None:
        await client.connection.send(b'{"id": 1, "op": "ping"}')
        assert (await client.hear())["id"] == 1

    play(broker, script)


def test_frame_over_the_limit_closes_with_1009(broker: BrokerProcess) -> None:
    async def script(client: SocketClient) -> None:
        # It may hear of that before it has sent all.
        with suppress(ConnectionClosed):
            await client.connection.send("x" * (17 << 20))
        assert (await client.end())[0] == 1009

    play(broker, script)


def test_subscriptions_of_a_connection_are_limited(broker: BrokerProcess, topic: str) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("create_topic", topic=topic)
        for number in range(1000):
            await client.say(id=f"s{number}", op="subscribe", topic=topic)
        for _ in range(1000):
            assert "result" in await client.hear()
        assert "at most 1000" in (await client.error("subscribe", topic=topic))["detail"]
        await client.say(id="s7", op="subscribe", topic=topic)
        assert (await client.hear())["error"]["status"] in {409, 422}

    play(broker, script)


# Ends


def test_gone_client_leaves_no_subscription_and_others_go_on(
    broker: BrokerProcess, topic: str
) -> None:
    async def script(client: SocketClient) -> None:
        await client.result("subscribe", topic=topic, create=True)
        async with client_of(broker) as other:
            await other.result("queue", topic=topic, name="q", type="exclusive")
            other.connection.transport.abort()
        # An exclusive one is free for the next as soon as the broker has noticed.
        async with client_of(broker) as next_one:
            async with asyncio.timeout(HANG_S):
                while "result" not in await next_one.ask("queue", topic=topic, name="q"):
                    pass
        await client.say(op="send", topic=topic, value="x")
        assert values(await client.messages(1)) == ["x"]

    play(broker, script)
