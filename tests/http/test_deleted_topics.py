"""Whoever waits for messages of a topic hears at once that it is deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.fakes.open_door import run, until
from tests.fakes.patience import HANG_S
from tests.fakes.streaming_door import StreamingDoor, streaming_door

LONG_MS = 600_000
"""Longer than any test may take: who waits so long has failed."""


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/messages?offset=0&partition=0&wait_ms=600000"),
        ("GET", "/messages?consumer_id=c&wait_ms=600000"),
        ("POST", "/subscriptions/s/receive"),
    ],
    ids=["offset", "cursor", "queue"],
)
def test_long_poll_of_a_deleted_topic_ends_with_a_problem(
    tmp_path: Path, verb: str, path: str, partitions: int
) -> None:
    async def main() -> None:
        async with (
            streaming_door(tmp_path, long_poll_max_ms=LONG_MS) as door,
            httpx.AsyncClient(base_url=door.url, timeout=HANG_S) as web,
        ):
            await door.topic("t", partitions=partitions)
            (await web.put("/topics/t/subscriptions/s")).raise_for_status()
            body = {"wait_ms": LONG_MS} if verb == "POST" else None
            asked = asyncio.get_running_loop().create_task(
                web.request(verb, f"/topics/t{path}", json=body)
            )
            await until(lambda: is_waited_for(door))
            (await web.delete("/topics/t")).raise_for_status()
            answer = await asked
            assert answer.status_code == 404
            assert answer.json()["type"] == "urn:millstream:unknown-topic"
            assert door.door._context is not None
            assert door.door._context._ends == {}

    run(main())


def is_waited_for(door: StreamingDoor) -> bool:
    hosted = door.broker.subscriptions.find("t", "s")
    waiting = door.broker.topics.get("t").partitions[0].waiters
    return bool(waiting or hosted._waiters)


def test_long_poll_outlasts_the_deletion_of_other_topics(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            streaming_door(tmp_path, long_poll_max_ms=LONG_MS) as door,
            httpx.AsyncClient(base_url=door.url, timeout=HANG_S) as web,
        ):
            await door.topic("t")
            await door.topic("other")
            asked = asyncio.get_running_loop().create_task(
                web.get(f"/topics/t/messages?offset=0&wait_ms={LONG_MS}")
            )
            await until(lambda: door.broker.topics.get("t").partitions[0].waiters)
            (await web.delete("/topics/other")).raise_for_status()
            (await web.post("/topics/t/messages", json={"value": "x"})).raise_for_status()
            assert [each["value"] for each in (await asked).json()["messages"]] == ["x"]

    run(main())


def test_events_of_a_deleted_topic_end_with_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            streaming_door(tmp_path) as door,
            httpx.AsyncClient(base_url=door.url, timeout=HANG_S) as web,
        ):
            await door.topic("t", partitions=2)
            async with web.stream("GET", "/topics/t/stream") as events:
                lines = events.aiter_lines()
                assert await anext(lines) == ": still here"
                (await web.delete("/topics/t")).raise_for_status()
                rest = [line async for line in lines if line]
            assert rest[0] == "event: error"
            assert "unknown-topic" in rest[1]

    run(main())


@pytest.mark.parametrize(
    "path", ["/topics/t/ws", "/topics/t/ws?queue=q", "/topics/t/ws?queue=q&type=failover"]
)
def test_sockets_of_a_deleted_topic_are_told(tmp_path: Path, path: str) -> None:
    async def main() -> None:
        async with streaming_door(tmp_path) as door:
            await door.topic("t")
            async with door.client(path) as client, door.client() as other:
                await until(lambda: is_subscribed(door))
                await other.result("delete_topic", topic="t")
                told = await client.hear()
                assert told["error"]["type"] == "urn:millstream:unknown-topic"

    run(main())


def is_subscribed(door: StreamingDoor) -> bool:
    queues = door.broker.subscriptions.list("t")
    followers = door.broker.topics.get("t").partitions[0].waiters
    return bool(followers) or any(each.consumers for each in queues)
