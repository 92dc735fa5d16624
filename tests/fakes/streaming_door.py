"""The HTTP door with a whole broker behind it, in this process, and clients of its WebSocket."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect

from millstream.assembly import assembled
from millstream.broker.broker import Broker
from millstream.gateways.http.door import HttpDoor
from millstream.settings.http import HttpSettings
from millstream.settings.loader import Settings
from millstream.settings.memory import MemorySettings
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S


class SocketClient:
    """Speaks JSON over a WebSocket; knows what it was sent, and nothing else."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._ids = count(1)

    async def say(self, **members: Any) -> None:
        await self.connection.send(json.dumps(members))

    async def hear(self) -> Any:
        """The next frame."""
        return orjson.loads(await asyncio.wait_for(self.connection.recv(), HANG_S))

    async def ask(self, op: str, **members: Any) -> Any:
        """What is answered to a request, which is the next frame."""
        number = next(self._ids)
        await self.say(id=number, op=op, **members)
        answer = await self.hear()
        assert answer["id"] == number, answer
        return answer

    async def result(self, op: str, **members: Any) -> Any:
        answer = await self.ask(op, **members)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, op: str, **members: Any) -> Any:
        answer = await self.ask(op, **members)
        assert "error" in answer, answer
        return answer["error"]

    async def messages(self, wanted: int) -> list[dict[str, Any]]:
        """So many messages, from frames that hold nothing else."""
        found: list[dict[str, Any]] = []
        while len(found) < wanted:
            frame = await self.hear()
            assert "messages" in frame, frame
            found += frame["messages"]
        return found

    async def is_silent(self, seconds: float = 0.2) -> bool:
        try:
            await asyncio.wait_for(self.connection.recv(), seconds)
        except TimeoutError:
            return True
        return False

    async def end(self) -> tuple[int | None, str | None]:
        """Code and reason with which the other side closes."""
        await asyncio.wait_for(self.connection.wait_closed(), HANG_S)
        return self.connection.close_code, self.connection.close_reason


class StreamingDoor:
    """A door that clients can go through."""

    def __init__(self, broker: Broker, door: HttpDoor, address: str) -> None:
        self.broker = broker
        self.door = door
        self.address = address

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @asynccontextmanager
    async def client(self, path: str = "/ws", **options: Any) -> AsyncIterator[SocketClient]:
        async with socket_client(self.address, path, **options) as client:
            yield client

    async def topic(self, name: str, *, partitions: int = 1, **overrides: str) -> None:
        """Create a topic; settings with underscores for dots."""
        await self.broker.topics.create(
            name,
            partitions=partitions,
            overrides={key.replace("_", "."): value for key, value in overrides.items()},
        )


@asynccontextmanager
async def socket_client(
    address: str, path: str = "/ws", **options: Any
) -> AsyncIterator[SocketClient]:
    limits = {"open_timeout": HANG_S, "close_timeout": 1}
    options = {"max_size": None, "compression": None, **limits, **options}
    async with connect(f"ws://{address}{path}", **options) as connection:
        yield SocketClient(connection)


@asynccontextmanager
async def client_of(
    broker: BrokerProcess, path: str = "/ws", **options: Any
) -> AsyncIterator[SocketClient]:
    """A client of a broker in a process of its own."""
    async with socket_client(f"127.0.0.1:{broker.http_port}", path, **options) as client:
        yield client


@asynccontextmanager
async def streaming_door(
    path: Path, *, memory_bytes: int = 0, **http: Any
) -> AsyncIterator[StreamingDoor]:
    """A door on a free port of loopback; `http` are settings of it."""
    settings = Settings(
        http=HttpSettings(listener="127.0.0.1:0", **http),
        memory=MemorySettings(max_bytes=memory_bytes),
    )
    async with assembled(os.fspath(path), settings) as assembly:
        door = HttpDoor(settings.http)
        address = door.open()
        door.serve(assembly.broker)
        try:
            yield StreamingDoor(assembly.broker, door, address)
        finally:
            await door.close()
