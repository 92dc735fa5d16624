"""Batches that unpack to hundreds of mebibytes, read through every listener that unpacks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.fakes.streaming_door import socket_client
from tests.fakes.wire_client import BlockingClient
from tests.fuzz.broker_load import create_topic
from tests.hostile.siege import besieged, open_broker
from tests.hostile.unpack_bomb import MIB, bomb
from tests.seeds.raw_pylogstreams import RawClient

pytestmark = [pytest.mark.system, pytest.mark.hostile]

AT_ONCE, FEW = 20, 4
LARGE, HUGE, WIDE = "large", "huge", "wide"
"""What unpacks within the limit for a batch, what does not, and what has one giant message."""
Attack = Callable[[BrokerProcess, str], Coroutine[Any, Any, str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with open_broker(tmp_path_factory.mktemp("bombs")) as broker:
        bombs = {
            LARGE: bomb(records=120, record_bytes=MIB),
            HUGE: bomb(records=686, record_bytes=MIB),
            WIDE: bomb(records=1, record_bytes=100 * MIB),
        }
        client = BlockingClient(broker.port)
        for name, batch in bombs.items():
            assert len(batch) < 200_000
            create_topic(broker.port, name)
            assert client.produce(name, batch).error_code == 0
        client.close()
        yield broker


async def get(broker: BrokerProcess, topic: str) -> str:
    query = {"offset": 0, "limit": 10_000, "max_bytes": 16 * MIB}
    return await _got(broker, f"/topics/{topic}/messages", query)


async def get_one(broker: BrokerProcess, topic: str) -> str:
    offset = {LARGE: 119, HUGE: 685, WIDE: 0}[topic]
    return await _got(broker, f"/topics/{topic}/messages/0:{offset}", {})


async def search(broker: BrokerProcess, topic: str) -> str:
    return await _got(broker, "/api/search", {"topic": topic, "text": "needle"})


async def follow(broker: BrokerProcess, topic: str) -> str:
    async with (
        httpx.AsyncClient(base_url=broker.url, timeout=HANG_S) as web,
        web.stream("GET", f"/topics/{topic}/stream", params={"from": "earliest"}) as answer,
    ):
        size = 0
        async for line in answer.aiter_lines():
            size += len(line)
            if line.startswith("event: error") or size > 10 * MIB:
                return line if size < MIB else "messages"
    return "nothing"


async def receive(broker: BrokerProcess, topic: str) -> str:
    async with httpx.AsyncClient(base_url=broker.url, timeout=HANG_S) as web:
        queue = f"/topics/{topic}/subscriptions/q"
        assert (await web.put(queue, json={"start": "earliest"})).is_success
        wanted = {"max_messages": 10_000, "wait_ms": 100, "visibility_timeout_ms": 100}
        answer = await web.post(f"{queue}/receive", json=wanted)
        return answer.text[:300]


async def subscribe(broker: BrokerProcess, topic: str) -> str:
    address = f"127.0.0.1:{broker.http_port}"
    async with socket_client(address, max_size=None) as client:
        await client.say(id=1, op="subscribe", topic=topic, **{"from": "earliest"})
        frames = [await client.hear(), await client.hear()]
        return json.dumps(frames[-1])[:300]


ATTACKS: list[Attack] = [get, get_one, search, follow, receive, subscribe]


@pytest.mark.parametrize(
    ("attack", "topic", "count"),
    [
        (get, LARGE, AT_ONCE),
        *((each, LARGE, FEW) for each in ATTACKS[1:]),
        *((each, WIDE, FEW) for each in ATTACKS),
        (get_one, HUGE, FEW),
        (search, HUGE, FEW),
    ],
)
def test_bomb_read_many_times_at_once_costs_bounded_memory(
    broker: BrokerProcess, attack: Attack, topic: str, count: int
) -> None:
    async def main() -> list[str]:
        return await asyncio.gather(*(attack(broker, topic) for _ in range(count)))

    with besieged(broker):
        answers = asyncio.run(main())
    if topic == WIDE and attack in {get, get_one}:
        for answer in answers:
            told = json.loads(answer)
            assert (told["status"], told["offset"], told["next_offset"]) == (422, 0, 1)
            assert "offset 0" in told["detail"]


def test_what_cannot_be_served_is_told_with_its_offset(broker: BrokerProcess) -> None:
    """Of a batch over the limit, what comes before the limit can be read."""
    with httpx.Client(base_url=broker.url, timeout=HANG_S) as web:
        offset, told = 100, {}
        while "detail" not in told:
            query = {"offset": offset, "limit": 10_000, "max_bytes": 16 * MIB}
            told = web.get(f"/topics/{HUGE}/messages", params=query).json()
            offset = told["next_offset"]
        assert "millstream.max.decompressed.bytes" in told["detail"]
        assert f"offset {told['offset']} " in told["detail"]
        assert (told["status"], told["next_offset"]) == (422, 686)
        assert 100 < told["offset"] < 128


def test_bomb_delivered_by_pylogstreams_costs_bounded_memory(broker: BrokerProcess) -> None:
    with besieged(broker):
        clients = [RawClient(broker.pylogstreams_port) for _ in range(AT_ONCE)]
        for client in clients:
            client.register()
            client.subscribe(LARGE)
        for client in clients:
            assert len(client.payloads(LARGE, 1)[0]) == MIB
        for client in clients:
            client.socket.close()


async def _got(broker: BrokerProcess, path: str, query: dict[str, Any]) -> str:
    """The beginning of an answer, of which all is received."""
    head = bytearray()
    async with (
        httpx.AsyncClient(base_url=broker.url, timeout=HANG_S) as web,
        web.stream("GET", path, params=query) as answer,
    ):
        async for chunk in answer.aiter_raw():
            head += chunk[: 1000 - len(head)]
    return head.decode()
