"""What the HTTP door tells of itself, and how its requests are measured.

A request counts when its answer has ended, by the group of routes that it belongs to; what no route
is for counts as `other`. Streams count when they end. A WebSocket is a connection, and no request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.types import Message, Scope, Send

from millstream.broker.memory_budget import HTTP_BODIES, WEBSOCKET_MESSAGES
from millstream.clock import ticks_ns
from millstream.gateways.door_metrics import add_connections
from millstream.telemetry import catalogue as known
from millstream.telemetry.latencies import Latencies
from millstream.telemetry.metric import Reading

if TYPE_CHECKING:
    from millstream.gateways.http.context import Context

GROUP = "millstream.group"
"""Where a scope tells the group of routes, if no route is asked."""
MESSAGES = "messages"
OTHER = "other"

_DOOR = "http"
_HUNG_UP = 499
"""What proxies note for a client that went away before it was answered."""
_FAILED = 500
_STREAM = b"text/event-stream"


class Measured:
    """One request: knows when it came, and learns how it is answered."""

    __slots__ = ("_began_ns", "_is_stream", "_scope", "_send", "code")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._began_ns = ticks_ns()
        self._is_stream = False
        self.code = 0

    async def send(self, message: Message) -> None:
        if not self.code and message["type"] == "http.response.start":
            self.code = message["status"]
            self._is_stream = any(value.startswith(_STREAM) for _, value in message["headers"])
        await self._send(message)

    def end(self, latencies: Latencies, *, has_failed: bool) -> None:
        """It was answered, or will not be."""
        route = self._scope.get("route")
        tags = getattr(route, "tags", None)
        group = self._scope.get(GROUP) or (str(tags[0]) if tags else OTHER)
        elapsed_ns = ticks_ns() - self._began_ns
        code = self.code or (_FAILED if has_failed else _HUNG_UP)
        latencies.observe_http(group, code, elapsed_ns)
        if elapsed_ns > latencies.slow_ns and not self._may_take_long:
            name = f"{self._scope['method']} {getattr(route, 'path', group)}"
            host, port = self._scope.get("client") or ("?", 0)
            latencies.on_slow(name, elapsed_ns, f"{host}:{port}", "")

    @property
    def _may_take_long(self) -> bool:
        """Whether it lasts for as long as its client wants."""
        path: str = self._scope["path"]
        return self._is_stream or b"wait_ms" in self._scope["query_string"] or "receive" in path


def figures(context: Context, reading: Reading) -> Iterator[None]:
    """All of it, which is quick."""
    add_connections(
        reading,
        _DOOR,
        open_now=len(context.open_connections),
        accepted=context.accepted_connections,
    )
    reading.add(known.PENDING_REQUESTS, context.pending_requests, _DOOR)
    memory = context.broker.memory
    used_bytes = memory.used[HTTP_BODIES] + memory.used[WEBSOCKET_MESSAGES]
    reading.add(known.MEMORY_USED, used_bytes, _DOOR)
    waiting = memory.waiting(HTTP_BODIES) + memory.waiting(WEBSOCKET_MESSAGES)
    reading.add(known.MEMORY_WAITING, waiting, _DOOR)
    latencies = context.latencies
    for group, times in sorted(latencies.http.items()):
        reading.add_histogram(known.HTTP_REQUESTS, times, group)
    for (group, code), count in sorted(latencies.http_codes.items()):
        reading.add(known.HTTP_ANSWERS, count, group, str(code))
    yield
