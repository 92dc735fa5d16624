"""A response whose body is made while the client takes it.

The next piece is asked for when the client has taken the last one. For a client that does not read,
the connection holds one piece, which is charged to the memory budget, and nobody holds another:
a generator that yields large pieces should not keep them in a variable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from millstream.gateways.http.context import CONNECTION

if TYPE_CHECKING:
    from millstream.gateways.http.connection import Connection


class StreamedAnswer(StreamingResponse):
    """Takes its body from an asynchronous generator of bytes."""

    connection: Connection | None = None
    """The client's; None for an application that is called without a server."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.connection = scope.get(CONNECTION)
        await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        status = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **status})
        async for piece in self.body_iterator:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            del piece
            if self.connection is not None:
                await self.connection.drained()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
