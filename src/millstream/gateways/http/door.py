"""The door itself: listens from the start, and loads the rest when the first client comes.

FastAPI and what it needs take memory and most of a second to import, which a broker that serves
Kafka clients alone never pays. Until the first connection there is only a listening socket.

Invariant: a client that connects is answered, also while the broker recovers: by a refusal that
says so.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

from millstream.broker.broker import Broker
from millstream.broker.connections import ConnectionDescription
from millstream.settings.domain import split_address
from millstream.settings.http import HttpSettings

if TYPE_CHECKING:
    from uvicorn import Server

    from millstream.gateways.http.context import Context

_log = logging.getLogger(__name__)

_BACKLOG = 4096
_FINISH_S = 3
_PING_S = 30.0
_MISSED_PINGS = 4


class HttpDoor:
    """Listens for HTTP clients."""

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self._broker: Broker | None = None
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self._context: Context | None = None
        self._server: Server | None = None
        self._is_closing = False
        self._epoch_ms = 0

    def described(self) -> list[ConnectionDescription]:
        """Who is connected now."""
        if self._server is None:
            return []
        from millstream.gateways.http.connection_list import described

        return list(described(self._server.server_state.connections, epoch_ms=self._epoch_ms))

    def open(self) -> str:
        """Begin to listen; returns the address as HOST:PORT. Raises OSError."""
        address = split_address(self.settings.listener)
        assert address is not None, "the settings are checked"
        host, port = address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)  # noqa: FBT003 - it takes no keyword
        asyncio.get_running_loop().add_reader(self._socket, self._load)
        bound = self._socket.getsockname()[1]
        return f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"

    def serve(self, broker: Broker) -> None:
        """The broker has started: from now on requests are carried out."""
        self._broker = broker
        self._epoch_ms = broker.clock.now_ms() - round(asyncio.get_running_loop().time() * 1000)
        broker.connections.add("http", self.described)
        if self._context is not None:
            self._context.serve(broker)

    def reconfigure(self, settings: HttpSettings) -> None:
        """Work with other settings, which connections that are there may only take in part."""
        self.settings = settings
        if self._context is not None:
            self._context.settings = settings

    async def close(self) -> None:
        """Take no more requests, answer those that were begun, and hang up. Safe to call twice."""
        self._is_closing = True
        if self._serving is not None:
            if self._context is not None and self._server is not None:
                self._context.closing.set()
                self._server.should_exit = True
            await asyncio.wait([self._serving], timeout=_FINISH_S - 1)
            self._abandon()
            await asyncio.wait([self._serving])
            self._serving = None
        elif self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _abandon(self) -> None:
        """Hang up on clients that do not read what they were sent: they would hold us up."""
        if self._server is not None:
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()

    def _load(self) -> None:
        """The first client is here."""
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        self._serving = loop.create_task(self._run(self._socket))

    async def _run(self, listening: socket.socket) -> None:
        try:
            # In a thread: clients of other doors are served meanwhile.
            server, context = await asyncio.to_thread(_new_server, self.settings)
            self._server, self._context = server, context
            context.open_connections = server.server_state.connections
            # They may have become others while a thread loaded it.
            context.settings = self.settings
            if self._broker is not None:
                context.serve(self._broker)
            if not self._is_closing:
                await server.serve(sockets=[listening])
        except Exception:  # Outer edge of the door: the others stay open.
            _log.exception("the HTTP door has failed")


def _new_server(settings: HttpSettings) -> tuple[Server, Context]:
    import uvicorn

    from millstream.gateways.http.application import new_application
    from millstream.gateways.http.connection import Connection, SocketConnection
    from millstream.gateways.http.context import Context

    class Guest(uvicorn.Server):
        """A server that leaves the signals to the broker."""

        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield

    context = Context(settings)
    config = uvicorn.Config(
        new_application(context),
        http=cast("type[asyncio.Protocol]", partial(Connection, context=context)),
        ws=SocketConnection,
        ws_max_size=settings.request_max_bytes,
        ws_per_message_deflate=False,
        # A client that is held back answers no ping until it reads on.
        ws_ping_interval=_PING_S,
        ws_ping_timeout=_MISSED_PINGS * _PING_S,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=_FINISH_S,
        backlog=_BACKLOG,
    )
    config.load()
    return Guest(config), context
