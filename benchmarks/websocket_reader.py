"""A WebSocket client that costs as little as it can: a hundred of them share one process."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from typing import Any, cast

import orjson

_OK = b" 101 "
_END = b"\r\n\r\n"
_TEXT = 0x81
_MASKED = 0x80
_NO_MASK = bytes(4)


class WebSocketReader(asyncio.Protocol):
    """Gives each frame that it receives to a function, as what its JSON says."""

    def __init__(self, path: str, on_frame: Callable[[Any], None]) -> None:
        self._path = path
        self._on_frame = on_frame
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        key = base64.b64encode(os.urandom(16)).decode()
        self._transport.write(
            f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if not self.opened.done():
            end = received.find(_END)
            if end < 0:
                return
            assert _OK in received[:end], bytes(received[:end])
            del received[: end + len(_END)]
            self.opened.set_result(None)
        at = 0
        while (found := _frame(received, at)) is not None:
            start, at = found
            self._on_frame(orjson.loads(memoryview(received)[start:at].tobytes()))
        del received[:at]

    def send(self, shape: Any) -> None:
        """With a mask that changes nothing, which a server cannot mind."""
        assert self._transport is not None
        payload = orjson.dumps(shape)
        size = len(payload)
        if size < 126:
            head = bytes((_TEXT, _MASKED | size))
        elif size < 1 << 16:
            head = bytes((_TEXT, _MASKED | 126)) + size.to_bytes(2, "big")
        else:
            head = bytes((_TEXT, _MASKED | 127)) + size.to_bytes(8, "big")
        self._transport.write(head + _NO_MASK + payload)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _frame(received: bytearray, at: int) -> tuple[int, int] | None:
    """Where the payload of a frame begins and ends, if it is there."""
    if len(received) < at + 2:
        return None
    size, start = received[at + 1], at + 2
    if size == 126:
        size, start = int.from_bytes(received[at + 2 : at + 4], "big"), at + 4
    elif size == 127:
        size, start = int.from_bytes(received[at + 2 : at + 10], "big"), at + 10
    return (start, start + size) if start + size <= len(received) else None
