"""A bare server on uvloop that answers every request with some bytes: the floor under a round trip.

`python -m benchmarks.echo_server PORT REQUEST_BYTES ANSWER_BYTES`
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import cast

import uvloop


class _Echo(asyncio.Protocol):
    """Sends the beginning of each request back."""

    def __init__(self, request_bytes: int, answer_bytes: int) -> None:
        self._request_bytes = request_bytes
        self._answer_bytes = answer_bytes
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # What uvloop gives behaves as one, but does not descend from it.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= self._request_bytes:
            self._transport.write(self._received[: self._answer_bytes])
            self._received = b""


async def _serve(port: int, request_bytes: int, answer_bytes: int) -> None:
    loop = asyncio.get_running_loop()
    protocol = partial(_Echo, request_bytes, answer_bytes)
    server = await loop.create_server(protocol, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(*map(int, sys.argv[1:4])))
