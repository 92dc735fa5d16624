"""Connections of the HTTP door, as people are told of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from millstream.broker.connections import ConnectionDescription
from millstream.gateways.http.connection import Connection, SocketConnection

_LONGEST = 200


def described(connections: Iterable[object], *, epoch_ms: int) -> Iterator[ConnectionDescription]:
    """`epoch_ms` is the time of day at which the event loop's clock stood at 0."""
    for each in tuple(connections):
        if isinstance(each, Connection | SocketConnection):
            yield _description(each, epoch_ms)


def _description(connection: Connection | SocketConnection, epoch_ms: int) -> ConnectionDescription:
    host, port = connection.client or ("?", 0)
    scope = _scope(connection)
    agent = _header(scope, b"user-agent")
    return ConnectionDescription(
        number=f"{host}:{port}",
        peer=f"{host}:{port}",
        client=agent[:_LONGEST],
        since_ms=epoch_ms + round(connection.since_s * 1000),
        last_used_ms=epoch_ms + round(connection.heard_s * 1000),
        use=_use(connection, scope)[:_LONGEST],
    )


def _scope(connection: Connection | SocketConnection) -> Any:
    """Of the last request; before the first one there is none."""
    return getattr(connection, "scope", None) or {}


def _use(connection: Connection | SocketConnection, scope: Any) -> str:
    if isinstance(connection, SocketConnection):
        return f"WebSocket {scope.get('path', '')}"
    return f"{scope['method']} {scope['path']}" if "method" in scope else ""


def _header(scope: Any, wanted: bytes) -> str:
    for name, value in scope.get("headers", ()):
        if name == wanted:
            return str(value, "latin-1")
    return ""
