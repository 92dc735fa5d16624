"""Server-sent events of a running broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson
import pytest

from millstream.broker.sending import NewRecord
from millstream.broker.topics import Topic
from millstream.gateways.http import streams
from millstream.gateways.http.context import Context
from millstream.gateways.http.feed import Feed
from millstream.gateways.http.tail import Tails
from millstream.settings.http import HttpSettings
from tests.clients.broker_process import BrokerProcess
from tests.fakes.open_door import open_door, run
from tests.fakes.patience import HANG_S
from tests.fakes.streaming_door import socket_client


class Event(NamedTuple):
    kind: str
    number: str
    data: Any


class EventStream:
    """Reads events as a browser does."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def events(self, wanted: int) -> list[Event]:
        return await asyncio.wait_for(self._events(wanted), HANG_S)

    async def _events(self, wanted: int) -> list[Event]:
        found: list[Event] = []
        fields: dict[str, str] = {}
        while len(found) < wanted:
            line = await anext(self._lines)
            name, _, content = line.partition(": ")
            if line and name:
                fields[name] = content
            elif not line and "data" in fields:
                found.append(
                    Event(
                        fields.get("event", "message"),
                        fields.get("id", ""),
                        orjson.loads(fields["data"]),
                    )
                )
                fields = {}
            elif not line:
                fields = {}
        return found

    async def rest(self) -> list[str]:
        """All that comes until the stream ends."""
        return [line async for line in self._lines]


@asynccontextmanager
async def stream(
    broker: BrokerProcess, topic: str, *, last: str | None = None, query: Any = None
) -> AsyncIterator[EventStream]:
    headers = {} if last is None else {"Last-Event-ID": last}
    async with (
        httpx.AsyncClient(base_url=broker.url, timeout=HANG_S) as client,
        client.stream(
            "GET", f"/topics/{topic}/stream", params=query or {}, headers=headers
        ) as response,
    ):
        yield EventStream(response)


async def send(broker: BrokerProcess, topic: str, *values: str, partition: int = 0) -> None:
    async with socket_client(f"127.0.0.1:{broker.http_port}") as client:
        many = [{"value": value, "partition": partition} for value in values]
        await client.result("send", topic=topic, messages=many)


async def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    async with socket_client(f"127.0.0.1:{broker.http_port}") as client:
        await client.result("create_topic", topic=topic, partitions=partitions)


def test_events_have_ids_and_whole_messages_as_they_come(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        await send(broker, topic, "a", "two\nlines")
        async with stream(broker, topic, query={"from": "earliest"}) as reading:
            assert reading.response.headers["content-type"].startswith("text/event-stream")
            first, second = await reading.events(2)
            assert (first.kind, first.number, first.data["value"]) == ("message", "0:0", "a")
            assert second.data["value"] == "two\nlines"
            assert second.data["message_id"] == second.number == "0:1"
            await send(broker, topic, "c")
            [third] = await reading.events(1)
            assert third.number == "0:2"

    run(main())


def test_latest_is_the_default_and_answered_before_any_message(
    broker: BrokerProcess, topic: str
) -> None:
    async def main() -> None:
        await send(broker, topic, "old")
        async with stream(broker, topic) as reading:
            await send(broker, topic, "new")
            [event] = await reading.events(1)
            assert event.data["value"] == "new"

    run(main())


def test_last_event_id_goes_on_after_it_in_every_partition(
    broker: BrokerProcess, topic: str
) -> None:
    async def main() -> None:
        await create(broker, topic, partitions=3)
        await send(broker, topic, "a", "b", partition=0)
        await send(broker, topic, "c", "d", partition=1)
        async with stream(broker, topic) as reading:
            # From the latest on: nothing of before, in no partition.
            await send(broker, topic, "e", partition=1)
            [event] = await reading.events(1)
            assert event.number == "1:2,0:1,2:-1"
        await send(broker, topic, "f", partition=0)
        await send(broker, topic, "g", partition=2)
        async with stream(broker, topic, last=event.number) as reading:
            events = await reading.events(2)
            assert {each.data["value"] for each in events} == {"f", "g"}
        async with stream(
            broker, topic, last=events[-1].number, query={"from": "earliest"}
        ) as reading:
            await send(broker, topic, "h", partition=1)
            [event] = await reading.events(1)
            assert event.data["value"] == "h"

    run(main())


def test_one_partition_alone(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        await create(broker, topic, partitions=2)
        async with stream(broker, topic, query={"partition": 1, "from": 0}) as reading:
            await send(broker, topic, "no", partition=0)
            await send(broker, topic, "yes", partition=1)
            [event] = await reading.events(1)
            assert (event.number, event.data["value"]) == ("1:0", "yes")

    run(main())


def test_group_begins_where_it_has_committed(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        await send(broker, topic, "a", "b", "c")
        async with stream(broker, topic, query={"group": topic}) as reading:
            [event] = await reading.events(1)
            assert event.number == "0:0"
        async with socket_client(f"127.0.0.1:{broker.http_port}") as client:
            await client.say(id="s", op="subscribe", topic=topic, group=topic)
            await client.hear()
            await client.messages(3)
            await client.result("ack", subscription="s", ids=["0:1"])
        async with stream(broker, topic, query={"group": topic}) as reading:
            [event] = await reading.events(1)
            assert event.number == "0:2"

    run(main())


@pytest.mark.parametrize(
    ("name", "query", "last", "status"),
    [
        ("never-made", {}, None, 404),
        ("known", {"partition": 5}, None, 404),
        ("known", {"partition": -1}, None, 422),
        ("known", {"partition": "x"}, None, 422),
        ("known", {"from": "now"}, None, 422),
        ("known", {"from": "99"}, None, 416),
        ("known", {"group": ""}, None, 422),
        ("known", {}, "nonsense", 422),
        ("known", {}, "0:99", 416),
        ("known", {}, "0:-5", 422),
    ],
)
def test_bad_request_is_answered_by_a_problem(
    broker: BrokerProcess, name: str, query: dict[str, Any], last: str | None, status: int
) -> None:
    async def main() -> None:
        await send(broker, "known", "x")
        async with stream(broker, name, last=last, query=query) as reading:
            assert reading.response.status_code == status
            assert reading.response.headers["content-type"] == "application/problem+json"

    run(main())


def test_partition_that_the_topic_has_not_is_told(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        await send(broker, topic, "x")
        async with stream(broker, topic, query={"partition": 9}) as reading:
            told = orjson.loads(await reading.response.aread())
        assert told["type"] == "urn:millstream:unknown-partition"
        assert told["detail"] == f"topic {topic!r} has no partition 9: it has 1 (0 to 0)"

    run(main())


def test_deleted_topic_ends_the_stream_with_an_error(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        await create(broker, topic)
        async with stream(broker, topic) as reading:
            async with socket_client(f"127.0.0.1:{broker.http_port}") as client:
                await client.result("delete_topic", topic=topic)
            [event] = await reading.events(1)
            assert (event.kind, event.data["status"]) == ("error", 404)
            assert await reading.rest() == []

    run(main())


def test_a_stopping_broker_ends_its_streams(tmp_path: Path) -> None:
    async def main(own: BrokerProcess) -> None:
        await send(own, "t", "a")
        async with stream(own, "t", query={"from": 0}) as reading:
            await reading.events(1)
            await asyncio.to_thread(own.stop)
            assert await reading.rest() == []

    with BrokerProcess(tmp_path, http="127.0.0.1:0") as own:
        run(main(own))
        assert own.complaints() == []


def test_silence_is_broken_by_comments_and_skipped_messages_are_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as door:
            await door.topic("t")
            found: Topic = door.broker.topics.get("t")
            tails = Tails(door.broker)
            feed = Feed(tails, found, {0: 0})
            context = Context(HttpSettings())
            events = streams._events(feed, context, heartbeat_s=0.01)
            assert [await anext(events) for _ in range(3)] == [b": still here\n\n"] * 3
            await door.broker.sender.send_many("t", [NewRecord(str(n).encode()) for n in range(5)])
            await door.broker.topics.delete_records(found.partitions[0], 3)
            told = await anext(events)
            assert told == b'event: skipped\ndata: {"partition":0,"from":0,"to":3}\n\n'
            assert (await anext(events)).startswith(b"id: 0:3\n")
            context.closing.set()
            assert [each async for each in events] in ([], [b": still here\n\n"])
            feed.close()
            assert tails.count == 0

    run(main())
