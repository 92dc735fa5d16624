"""Bodies of requests: read whole up to a limit, or line by line with no more than that held.

Of a large body nothing more is read until there is room for all of it, among those of all clients.
Who stops in the midst of one is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Scope

from millstream.broker.memory_budget import HTTP_BODIES
from millstream.errors import BodyStalled, BodyTooLarge, UnsupportedMediaType
from millstream.gateways.http import json_text
from millstream.gateways.http.context import FREE_BYTES, Context, context_of
from millstream.gateways.http.parameters import StrictRoute

HELD: Final = "millstream.held_bytes"
"""What a request has of the room for bodies, in its scope."""

_PAUSE_S = 0.1
_MOST_OF_A_ROUTE = 1 << 20
_MOST_VALUES_OF_A_ROUTE = 60_000


async def whole_body(request: Request, limit_bytes: int) -> bytes:
    """Raises BodyTooLarge, before the rest is read; BodyStalled; Unavailable without room."""
    context = context_of(request)
    timeout_s = context.settings.body_timeout_s
    # Almost always all of it, and there already. Who has sent none yet makes us hold none.
    message = await request.receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        size_bytes = _announced_bytes(request, limit_bytes)
        if size_bytes > FREE_BYTES:
            await _hold(request, context, size_bytes)
        chunks = [body]
        size_bytes = len(body)
        while message.get("more_body", False):
            message = await _next(request, timeout_s)
            chunks.append(message.get("body", b""))
            size_bytes += len(chunks[-1])
            if size_bytes > limit_bytes:
                raise BodyTooLarge(limit_bytes)
        body = b"".join(chunks)
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    if len(body) > limit_bytes:
        raise BodyTooLarge(limit_bytes)
    return body


async def lines_of(request: Request, limit_bytes: int) -> AsyncIterator[list[bytes]]:
    """Lines as they come, some at a time; none for a moment in which nothing comes.

    Raises BodyTooLarge for a long one, BodyStalled if the rest of one does not come.
    """
    context = context_of(request)
    rest: list[bytes] = []
    rest_bytes = 0
    silent_s = 0.0
    is_last = False
    while not is_last:
        try:
            message = await _next(request, _PAUSE_S)
        except BodyStalled:
            silent_s += _PAUSE_S
            # Between lines there is nothing to be held, and so no hurry.
            if rest_bytes and silent_s >= context.settings.body_timeout_s:
                raise BodyStalled(context.settings.body_timeout_s) from None
            yield []
            continue
        silent_s = 0.0
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        is_last = not message.get("more_body", False)
        lines = message.get("body", b"").split(b"\n")
        if len(lines) > 1:
            lines[0] = b"".join([*rest, lines[0]])
            rest, rest_bytes = [], 0
            let_go(request.scope, context)
        rest.append(lines.pop())
        rest_bytes += len(rest[-1])
        if rest_bytes > limit_bytes:
            raise BodyTooLarge(limit_bytes)
        if rest_bytes > FREE_BYTES and HELD not in request.scope:
            await _hold(request, context, limit_bytes)
        yield [line for line in lines if line and not line.isspace()]
    last = b"".join(rest)
    if last and not last.isspace():
        yield [last]


def let_go(scope: Scope, context: Context) -> None:
    """Give back what a request has of the room for bodies. Safe to call twice."""
    held_bytes = scope.pop(HELD, 0)
    if held_bytes:
        context.broker.memory.give_back(HTTP_BODIES, held_bytes)


def check_not_encoded(request: Request) -> None:
    """Raises UnsupportedMediaType for a body that is compressed."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", ""}:
        raise UnsupportedMediaType(
            f"Content-Encoding: {encoding[:100]}", expected="it as it is, without an encoding"
        )


async def _hold(request: Request, context: Context, size_bytes: int) -> None:
    await context.broker.memory.reserve(
        HTTP_BODIES, size_bytes, timeout_s=context.settings.body_timeout_s
    )
    request.scope[HELD] = size_bytes


async def _next(request: Request, timeout_s: float) -> Message:
    """What comes next of a body. Raises BodyStalled."""
    try:
        async with asyncio.timeout(timeout_s):
            return await request.receive()
    except TimeoutError:
        raise BodyStalled(round(timeout_s)) from None


def _announced_bytes(request: Request, limit_bytes: int) -> int:
    """How large a body is at most. Raises BodyTooLarge."""
    announced = request.headers.get("content-length", "")
    if not announced.isdigit():
        return limit_bytes
    if int(announced) > limit_bytes:
        raise BodyTooLarge(limit_bytes)
    return int(announced)


class LimitedRoute(StrictRoute):
    """A route whose body FastAPI reads, and no more of it than is allowed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def limited(request: Request) -> Response:
            check_not_encoded(request)
            setting_bytes = context_of(request).settings.request_max_bytes
            limit_bytes = min(setting_bytes, _MOST_OF_A_ROUTE)
            try:
                body = await whole_body(request, limit_bytes)
            except BodyTooLarge:
                is_set = limit_bytes == setting_bytes
                raise BodyTooLarge(limit_bytes, is_set=is_set) from None
            if len(body) > FREE_BYTES:
                # It is parsed and checked at once, and everybody waits for that.
                await json_text.check(body, most_values=_MOST_VALUES_OF_A_ROUTE)
            unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> Message:
                return unread.pop() if unread else await request.receive()

            return await handle(Request(request.scope, receive))

        return limited
