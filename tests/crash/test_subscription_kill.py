"""`kill -9` of a broker while clients receive and acknowledge over HTTP, again and again.

No message whose acknowledgement was answered is delivered to anyone who asks later, every message
that was stored is delivered until it is acknowledged, and none for later comes too early.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.open_door import until
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

QUEUE = "/topics/work/subscriptions/s"
RECEIVERS = 4
CYCLES = 4
MAX_ACKS = 400
ACK_TIMEOUT_MS = 1500
DELAY_MS = 700


class Load:
    """Clients that outlive the broker, and what they were told."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self.broker = broker
        self.random = Random(seed)
        self.web = httpx.AsyncClient(base_url=broker.url, timeout=HANG_S)
        self.stored: set[str] = set()
        """Ids of messages that were surely stored."""
        self.acked: set[str] = set()
        """Whose acknowledgement was answered."""
        self.asked: set[str] = set()
        """Whose acknowledgement was asked for: it may have happened without an answer."""
        self.due_ms: dict[str, int] = {}
        self.is_sending = True
        self.is_receiving = True

    async def ask(self, path: str, **body: Any) -> dict[str, Any] | None:
        """The answer; None where there was none, or the broker is not ready."""
        try:
            answer = await self.web.post(path, json=body)
        except httpx.TransportError:
            await asyncio.sleep(0.02)
            return None
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            await asyncio.sleep(0.02)
            return None
        assert answer.status_code < httpx.codes.BAD_REQUEST, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def send(self) -> None:
        while self.is_sending:
            body: dict[str, Any] = {"value": "v"}
            if self.random.random() < 0.1:
                body["deliver_after"] = DELAY_MS
            due_ms = round(time.time() * 1000) + body.get("deliver_after", 0)
            answer = await self.ask("/topics/work/messages", **body)
            if answer is not None:
                message_id = f"{answer['partition']}:{answer['offset']}"
                self.stored.add(message_id)
                self.due_ms[message_id] = due_ms

    async def receive(self) -> None:
        while self.is_receiving:
            # What is answered from here on may cross what is delivered.
            acked_before = frozenset(self.acked)
            limit = self.random.randint(1, 30)
            answer = await self.ask(QUEUE + "/receive", max_messages=limit, wait_ms=100)
            if answer is None:
                continue
            now_ms = round(time.time() * 1000)
            ids = [each["message_id"] for each in answer["messages"]]
            assert not acked_before & set(ids), "acknowledged, and delivered again"
            assert all(self.due_ms.get(each, 0) <= now_ms for each in ids), "too early"
            done = [each for each in ids if self.random.random() < 0.9]
            refused = [each for each in ids if each not in done and self.random.random() < 0.5]
            self.asked.update(done)
            if done and await self.ask(QUEUE + "/ack", message_ids=done) is not None:
                self.acked.update(done)
            if refused:
                await self.ask(QUEUE + "/nack", message_ids=refused, delay_ms=50)

    async def run(self, kill: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.send())
            tasks.create_task(self.send())
            for _ in range(RECEIVERS):
                tasks.create_task(self.receive())
            for _ in range(CYCLES):
                wanted = len(self.acked) + self.random.randint(1, MAX_ACKS)
                await until(partial(self._has_acked, wanted))
                await kill()
            self.is_sending = False
            await self._until_all_is_done()
            self.is_receiving = False
        await self.web.aclose()
        # Those that were stored without an answer are as good as any.
        assert self.stored <= self.asked

    def _has_acked(self, wanted: int) -> bool:
        return len(self.acked) >= wanted

    async def _until_all_is_done(self) -> None:
        async with asyncio.timeout(HANG_S):
            while (described := (await self.web.get(QUEUE)).json())["backlog"]:
                pass
        names = ("backlog", "lost", "dead", "in_flight")
        assert [described[name] for name in names] == [0, 0, 0, 0]


async def kill_again_and_again(broker: BrokerProcess, seed: int) -> None:
    load = Load(broker, seed)

    async def kill() -> None:
        broker.kill()
        if load.random.random() < 0.3:
            broker.start_and_kill(load.random.random() * 0.5)
        await asyncio.to_thread(broker.start)

    settings = {
        "type": "shared",
        "ack_timeout_ms": ACK_TIMEOUT_MS,
        "max_deliveries": 0,
        "redelivery_min_ms": 10,
    }
    answer = await load.web.put(QUEUE, json=settings)
    assert answer.status_code == httpx.codes.OK, answer.text
    await load.run(kill)
    assert len(load.acked) > CYCLES


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(1, 10))]
)
def test_queue_loses_nothing_and_repeats_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        asyncio.run(kill_again_and_again(broker, seed))
        broker.stop()
        assert broker.complaints() == []
