"""The door in this process: before the broker has started, and when partitions have stopped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from millstream.assembly import assembled
from millstream.broker.broker import Broker
from millstream.broker.partition import Partition
from millstream.errors import StorageFailure
from millstream.gateways.http.door import HttpDoor
from millstream.settings.http import HttpSettings
from millstream.settings.loader import Settings
from tests.fakes.open_door import run
from tests.fakes.patience import HANG_S

SETTINGS = HttpSettings(listener="127.0.0.1:0")


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[HttpDoor, httpx.AsyncClient]]:
    door = HttpDoor(SETTINGS)
    url = f"http://{door.open()}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=HANG_S) as web:
            yield door, web
    finally:
        await door.close()


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[tuple[Broker, httpx.AsyncClient]]:
    settings = Settings(http=SETTINGS)
    async with (
        opened() as (door, web),
        assembled(os.fspath(path), settings) as assembly,
    ):
        door.serve(assembly.broker)
        try:
            yield assembly.broker, web
        finally:
            await door.close()


def test_broker_that_recovers_is_alive_and_not_ready(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened() as (_, web):
            assert (await web.get("/health/live")).status_code == 200
            ready = await web.get("/health/ready")
            assert ready.status_code == 503
            assert ready.json() == {"status": "not ready", "reasons": ["the broker is starting"]}
            health = await web.get("/health")
            assert (health.status_code, health.json()["status"]) == (200, "starting")
            for answer in (
                await web.post("/topics/t/messages", json={"value": "x"}),
                await web.get("/topics"),
                await web.get("/topics/t/messages?consumer_id=c"),
                await web.put("/topics/t/subscriptions/s", json={}),
            ):
                assert answer.status_code == 503
                assert "is starting" in answer.json()["detail"]

    run(main())


def test_requests_are_carried_out_once_the_broker_has_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (_, web):
            assert (await web.get("/health/ready")).status_code == 200
            sent = await web.post("/topics/t/messages", json={"value": "x"})
            assert sent.status_code == 200

    run(main())


def test_stopped_partition_makes_the_broker_unready(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (broker, web):
            await web.post("/topics/t/messages", json={"value": "x"})
            topic = broker.topics.get("t")
            sound = topic.partitions[0]
            failure = StorageFailure(path="t/0", operation="open", reason="broken")
            topic.partitions[0] = Partition(topic, 0, None, failure)
            ready = await web.get("/health/ready")
            assert ready.status_code == 503
            assert ready.json()["reasons"][0].startswith("t/0 has stopped: ")
            for answer in (
                await web.post("/topics/t/messages", json={"value": "x"}),
                await web.get("/topics/t/messages?offset=0"),
                await web.get("/topics/t/offsets"),
            ):
                assert answer.status_code == 503
                assert "broken" in answer.json()["detail"]
            described = (await web.get("/topics/t")).json()
            assert "broken" in described["details"][0]["failure"]
            topic.partitions[0] = sound

    run(main())


def test_defect_is_told_as_one_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running(tmp_path) as (broker, web):

            def defect(*_: object) -> None:
                raise ZeroDivisionError

            monkeypatch.setattr(broker.topics, "get", defect)
            for answer in (
                await web.post("/topics/t/messages", json={"value": "x"}),
                await web.get("/topics/t/offsets"),
            ):
                assert answer.status_code == 500
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["detail"] == "this is a defect of the broker: see its log"
            monkeypatch.undo()

    run(main())
    assert caplog.text.count("ZeroDivisionError") >= 2


def test_door_that_was_never_opened_closes(tmp_path: Path) -> None:
    run(HttpDoor(SETTINGS).close())


def test_door_closes_while_it_loads() -> None:
    async def main() -> None:
        door = HttpDoor(SETTINGS)
        address = door.open()
        async with httpx.AsyncClient(timeout=HANG_S) as web:
            door._load()
            await door.close()
            with pytest.raises(httpx.TransportError):
                await web.get(f"http://{address}/health")

    run(main())


@pytest.mark.parametrize("has_started", [False, True])
def test_tls_is_recognised_and_logged(
    has_started: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running(tmp_path) if has_started else opened() as (_, web):
            host, port = web.base_url.host, web.base_url.port
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"this looks like TLS; this listener has none" in answer
            assert "the connection is closed: this looks like TLS" in caplog.text

    run(main())
