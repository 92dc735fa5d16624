"""The Kafka door with a whole broker behind it, in this process: real sockets, real files.

Wired by the composition root, as in `millstream serve`, without its signals and its upkeep.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from millstream.assembly import Dependencies, assembled
from millstream.broker.broker import Broker
from millstream.gateways.kafka.listener import Door
from millstream.settings.kafka import KafkaSettings
from millstream.settings.loader import Settings
from tests.fakes.patience import HANG_S
from tests.fakes.wire_client import WireClient

_Result = TypeVar("_Result")
Runner = Callable[[Coroutine[Any, Any, None]], None]

# Of a whole test, not of one event. Just below pytest's own limit, which cannot interrupt uvloop.
RUN_S = 570.0
_PAUSE_S = 0.001


class OpenDoor:
    """A door that clients can go through."""

    def __init__(self, broker: Broker, door: Door, port: int) -> None:
        self.broker = broker
        self.door = door
        self.port = port
        self._clients: list[WireClient] = []

    async def connect(self) -> WireClient:
        """A client of its own, closed with the door."""
        client = await WireClient.connect("127.0.0.1", self.port)
        self._clients.append(client)
        return client

    async def topic(self, name: str, *, partitions: int = 1, **overrides: str) -> None:
        """Create a topic; settings with underscores for dots."""
        await self.broker.topics.create(
            name,
            partitions=partitions,
            overrides={key.replace("_", "."): value for key, value in overrides.items()},
        )

    async def hang_up(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def open_door(
    path: Path,
    settings: Settings | None = None,
    dependencies: Dependencies | None = None,
    **kafka: Any,
) -> AsyncIterator[OpenDoor]:
    """A door on a free port of loopback; `kafka` are settings of it."""
    settings = settings or Settings(kafka=KafkaSettings(listener="127.0.0.1:0", **kafka))
    async with assembled(os.fspath(path), settings, dependencies) as assembly:
        broker = assembly.broker
        door = Door(broker, settings.kafka)
        address = await door.open()
        upkeep = asyncio.get_running_loop().create_task(door.run())
        opened = OpenDoor(broker, door, int(address.rpartition(":")[2]))
        try:
            yield opened
        finally:
            upkeep.cancel()
            await opened.hang_up()
            # The listener waits for requests that wait for these.
            await broker.subscriptions.close()
            broker.groups.close()
            await door.close()


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Let the loop turn until something has happened: `what`, or the condition itself."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + HANG_S
    while not condition():
        assert loop.time() < deadline_s, f"waited {HANG_S:.0f} s for {what or _place(condition)}"
        await asyncio.sleep(_PAUSE_S)


def _place(condition: Callable[[], object]) -> str:
    code = getattr(condition, "__code__", None)
    return f"the condition at {code.co_filename}:{code.co_firstlineno}" if code else f"{condition}"


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run on the event loop that the broker uses."""
    return uvloop.run(asyncio.wait_for(main, RUN_S))


def run_plainly(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run on the event loop that Python comes with."""
    return asyncio.run(main)
