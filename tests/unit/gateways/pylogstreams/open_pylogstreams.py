"""The PyLogStreams door with a whole broker behind it, in this process."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from millstream.assembly import assembled
from millstream.broker.broker import Broker
from millstream.gateways.pylogstreams.door import Door
from millstream.identity import new_client_id
from millstream.settings.loader import Settings
from millstream.settings.pylogstreams import PyLogStreamsSettings
from millstream.settings.topics import TopicSettings


class OpenDoor:
    """A door that clients can go through."""

    def __init__(self, broker: Broker, door: Door, port: int) -> None:
        self.broker = broker
        self.door = door
        self.port = port

    async def connect(self, client_id: str = "") -> StreamClient:
        """A client that is logged in."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = StreamClient(reader, writer)
        client.send(f"CID {client_id}" if client_id else "REG")
        if not client_id:
            await client.receive()
        return client


class StreamClient:
    """Sends and receives frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, command: str) -> None:
        self.writer.write(command_frame(command))

    def publish(self, topic: str, *payloads: bytes) -> None:
        self.writer.write(b"".join(publish_frame(topic, payload) for payload in payloads))

    async def receive(self) -> bytes | None:
        try:
            (size,) = struct.unpack(">I", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def frames(self, count: int) -> list[bytes | None]:
        return [await self.receive() for _ in range(count)]

    async def close(self) -> None:
        self.writer.close()


def command_frame(command: str) -> bytes:
    content = command.encode()
    return struct.pack(">I", len(content)) + content


def publish_frame(topic: str, payload: bytes) -> bytes:
    content = f"PUB {topic} ".encode() + payload
    checksum = struct.pack(">I", zlib.crc32(payload))
    return struct.pack(">I", len(content)) + content + checksum


@asynccontextmanager
async def open_pylogstreams(
    path: Path, *, topics: TopicSettings | None = None, **own: Any
) -> AsyncIterator[OpenDoor]:
    """A door on a free port of loopback; `own` are settings of it."""
    settings = Settings(
        topics=topics or TopicSettings(),
        pylogstreams=PyLogStreamsSettings(listener="127.0.0.1:0", **own),
    )
    async with assembled(os.fspath(path), settings) as assembly:
        broker = assembly.broker
        door = Door(broker, settings.pylogstreams, new_client_id=new_client_id)
        address = await door.open()
        upkeep = asyncio.get_running_loop().create_task(door.run())
        try:
            yield OpenDoor(broker, door, int(address.rpartition(":")[2]))
        finally:
            upkeep.cancel()
            await door.close()
