"""Sending with the asynchronous client to a running broker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from millstream.client import AsyncMessage, NewMessage
from millstream.errors import (
    InvalidName,
    MessageTooLarge,
    MillstreamError,
    NotFound,
    PartlySent,
    UnknownTopic,
)
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patient_client import connect_async

THEN = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


async def read(url: str, topic: str, count: int) -> list[AsyncMessage]:
    async with connect_async(url) as client:
        subscription = await client.subscribe(topic, start="earliest")
        messages: list[AsyncMessage] = []
        while len(messages) < count:
            message = await subscription.receive(timeout_s=10)
            assert message is not None, f"only {len(messages)} of {count}"
            messages.append(message)
        return messages


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("text, with ü and \0", "text, with ü and \0".encode()),
        (b"bytes", b"bytes"),
        (b"\xff\x00\xfe", b"\xff\x00\xfe"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"b"), b"b"),
        ("", b""),
        (None, None),
    ],
    ids=["text", "bytes", "binary", "bytearray", "memoryview", "empty", "none"],
)
def test_value_comes_back_as_the_bytes_that_it_was(
    broker: BrokerProcess, name: str, value: bytes | str | None, stored: bytes | None
) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            sent = await client.send(name, value)
        [message] = await read(broker.url, name, 1)
        assert message.value == stored
        assert (message.topic, message.id) == (name, sent.id) == (sent.topic, "0:0")

    asyncio.run(run())


@pytest.mark.parametrize("data", [b"plain", b"\xff\xfe"], ids=["text", "binary"])
def test_all_parts_of_a_message_come_back(broker: BrokerProcess, name: str, data: bytes) -> None:
    headers = [("one", data), ("two", None), ("three", b"")]

    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.topics.create(name, partitions=3)
            sent = await client.send(
                name, data, key=data, headers=headers, partition=2, timestamp=THEN
            )
            assert (sent.partition, sent.offset) == (2, 0)
        [message] = await read(broker.url, name, 1)
        assert (message.key, message.value, message.partition) == (data, data, 2)
        assert message.headers == tuple(headers)
        assert message.header("one") == data
        assert message.header("four") is None
        assert message.timestamp == THEN
        assert message.delivery_count == 1

    asyncio.run(run())


def test_value_and_key_need_not_both_be_text(broker: BrokerProcess, name: str) -> None:
    pairs: list[tuple[bytes | str | None, bytes | str | None]] = [
        ("key", b"\xff"),
        (b"\xff", "value"),
        ("key", None),
        (b"\xff", None),
        (None, b"\xff"),
    ]

    async def run() -> None:
        async with connect_async(broker.url) as client:
            for key, value in pairs:
                await client.send(name, value, key=key)
        messages = await read(broker.url, name, len(pairs))
        expected = [tuple(x.encode() if isinstance(x, str) else x for x in p) for p in pairs]
        assert [(each.key, each.value) for each in messages] == expected

    asyncio.run(run())


def test_headers_of_one_name_all_come_back(broker: BrokerProcess, name: str) -> None:
    headers = [("a", b"1"), ("a", b"2")]

    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.send(name, "v", headers=headers)
        [message] = await read(broker.url, name, 1)
        assert message.headers == tuple(headers)

    asyncio.run(run())


def test_thousand_concurrent_sends_and_receives(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            subscription = await client.subscribe(name)
            receiving = [asyncio.create_task(subscription.receive(30)) for _ in range(1000)]
            sent = await asyncio.gather(*(client.send(name, f"{n}") for n in range(1000)))
            received = await asyncio.gather(*receiving)
        assert [each.offset for each in sent] == list(range(1000))
        assert sorted(each.text for each in received if each) == sorted(map(str, range(1000)))

    asyncio.run(run())


def test_send_many_keeps_order_over_many_requests(broker: BrokerProcess, name: str) -> None:
    values = [f"{number}" for number in range(25_000)]

    async def run() -> None:
        async with connect_async(broker.url, max_unanswered=3000) as client:
            sent = await client.send_many(name, values)
        assert [each.offset for each in sent] == list(range(len(values)))
        messages = await read(broker.url, name, len(values))
        assert [each.text for each in messages] == values

    asyncio.run(run())


def test_send_many_waits_once_for_each_request_and_not_for_each_message(
    broker: BrokerProcess, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            loop = asyncio.get_running_loop()
            create_future, made = loop.create_future, 0

            def counted() -> asyncio.Future[object]:
                nonlocal made
                made += 1
                return create_future()

            monkeypatch.setattr(loop, "create_future", counted)
            await client.send_many(name, ["x"] * 5_000)
            # Five requests, and what it takes to send them and to wait for their answers.
            assert made < 100

    asyncio.run(run())


def test_send_many_takes_whole_messages(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.send_many(name, ["plain", NewMessage("keyed", key="k"), None])
            assert await client.send_many(name, []) == []
        messages = await read(broker.url, name, 3)
        assert [(each.key, each.value) for each in messages] == [
            (None, b"plain"),
            (b"k", b"keyed"),
            (None, None),
        ]

    asyncio.run(run())


def test_send_many_tells_of_each_message_that_was_refused(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            with pytest.raises(PartlySent, match="1 of 3 messages") as caught:
                await client.send_many(name, ["a", "x" * 2_000_000, "b"])
            refused = caught.value.results
            assert isinstance(refused[1], MessageTooLarge)
            assert not isinstance(refused[0], MillstreamError)
        assert [each.text for each in await read(broker.url, name, 2)] == ["a", "b"]

    asyncio.run(run())


def test_same_key_keeps_to_one_partition_and_its_order(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.topics.create(name, partitions=4)
            sent = await asyncio.gather(
                *(client.send(name, f"{n}", key=f"key-{n % 10}") for n in range(200))
            )
        places = {(f"key-{n % 10}", each.partition) for n, each in enumerate(sent)}
        assert len(places) == 10
        messages = await read(broker.url, name, 200)
        for key in range(10):
            values = [int(m.text) for m in messages if m.key == f"key-{key}".encode()]
            assert values == list(range(key, 200, 10))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("topic", "options", "error"),
    [
        ("../x", {}, InvalidName),
        ("x" * 300, {}, InvalidName),
        (None, {"partition": 99}, NotFound),
        (None, {"value": "x" * 2_000_000}, MessageTooLarge),
    ],
    ids=["bad name", "long name", "no such partition", "too large"],
)
def test_refusal_is_the_error_that_it_is(
    broker: BrokerProcess,
    name: str,
    topic: str | None,
    options: dict[str, object],
    error: type[Exception],
) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            with pytest.raises(error):
                await client.send(topic or name, **{"value": "v", **options})  # type: ignore[arg-type]
            await client.send(name, "others are well")

    asyncio.run(run())


def test_delayed_message_is_read_at_once_and_handed_out_later(
    broker: BrokerProcess, name: str
) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            queue = await client.subscribe(name, subscription="q")
            await client.send(name, "later", deliver_after=timedelta(seconds=1))
            await client.send(name, "at", deliver_at=datetime.now(UTC) + timedelta(seconds=1.5))
            await client.send(name, "now")
            order = []
            for _ in range(3):
                message = await queue.receive(timeout_s=10)
                assert message is not None
                order.append(message.text)
                await message.ack()
            assert order == ["now", "later", "at"]
        assert [each.text for each in await read(broker.url, name, 3)] == ["later", "at", "now"]

    asyncio.run(run())


def test_topics_are_administered(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            created = await client.topics.create(
                name, partitions=2, settings={"retention.ms": 3_600_000}
            )
            assert created.settings == {"retention.ms": "3600000"}
            assert [each.end_offset for each in created.partitions] == [0, 0]
            await client.send(name, "v", partition=1)
            described = await client.topics.describe(name)
            assert [each.end_offset for each in described.partitions] == [0, 1]
            assert name in await client.topics.list()
            await client.topics.delete(name)
            assert name not in await client.topics.list()
            with pytest.raises(UnknownTopic, match=name):
                await client.topics.describe(name)

    asyncio.run(run())
