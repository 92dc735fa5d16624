"""A broker that does what a test tells it to: for faults that no real one can be brought to.

It speaks the WebSocket protocol (docs/formats/websocket.md) as far as a test needs it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.fakes.patience import HANG_S

Frame = dict[str, Any]


class Talk:
    """One connection, as the broker sees it."""

    def __init__(self, socket: ServerConnection, number: int) -> None:
        self.number = number
        """How many connections there were before this one."""
        self._socket = socket

    async def next(self) -> Frame:
        """The next request of the client, but for its greeting."""
        while True:
            frame: Frame = json.loads(await self._socket.recv())
            if frame["op"] != "ping":
                return frame
            await self.answer(frame, {"time": 0})

    async def answer(self, request: Frame, result: Frame) -> None:
        await self.say({"id": request["id"], "result": result})

    async def refuse(self, request: Frame, kind: str, status: int) -> None:
        error = {"type": kind, "status": status, "detail": f"refused as {kind}"}
        await self.say({"id": request["id"], "error": error})

    async def say(self, frame: Frame) -> None:
        await self._socket.send(json.dumps(frame))

    async def say_text(self, text: str) -> None:
        await self._socket.send(text)

    async def hang_up(self) -> None:
        """Break the connection, as a crash does."""
        self._socket.transport.abort()
        await self._socket.wait_closed()

    async def store(self, request: Frame, offset: int = 0) -> None:
        """Answer a request to send as if its messages were stored from an offset on."""
        places = [
            {"partition": 0, "offset": offset + each, "timestamp": 0}
            for each in range(len(request["messages"]))
        ]
        await self.answer(request, {"places": places})


class ScriptedBroker:
    """Listens while it is entered; plays the script to each client that connects."""

    def __init__(self, script: Callable[[Talk], Awaitable[None]]) -> None:
        self._script = script
        self._server: Server | None = None
        self._port = 0
        self.talks = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    async def listen(self) -> None:
        self._server = await serve(self._play, "127.0.0.1", self._port, close_timeout=0.1)
        self._port = next(iter(self._server.sockets)).getsockname()[1]

    async def leave(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _play(self, socket: ServerConnection) -> None:
        talk = Talk(socket, self.talks)
        self.talks += 1
        try:
            await self._script(talk)
            while True:
                # Whatever else the client wants is granted.
                request = await talk.next()
                if "id" in request:
                    await talk.answer(request, {})
        except ConnectionClosed:
            pass


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what nobody tells of."""
    async with asyncio.timeout(HANG_S):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.001)


def message(offset: int, partition: int = 0, **more: object) -> Frame:
    """A message as it is delivered."""
    return {
        "message_id": f"{partition}:{offset}",
        "partition": partition,
        "offset": offset,
        "timestamp": 1000 + offset,
        "key": None,
        "value": f"v{offset}",
        "headers": {},
        **more,
    }
