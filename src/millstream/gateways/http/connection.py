"""One client's connection: uvicorn's, with bounds on what it holds and how long it may take.

The head of a request is limited in size and in time. Who is one too many is told so, and whatever
is refused before a request begins is told as a problem document, as everywhere else.

Invariant: a connection on which nothing is being answered has a timer that ends it. So has one
whose answer is whole, and is not taken.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import TimerHandle
from collections.abc import Coroutine, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame

from millstream.broker.memory_budget import WEBSOCKET_MESSAGES
from millstream.gateways.http.context import CONNECTION, FREE_BYTES, Context
from millstream.gateways.http.problems import plain_problem
from millstream.gateways.tls_hello import HINT as TLS_HINT
from millstream.gateways.tls_hello import is_tls_hello

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGISendEvent

_log = logging.getLogger(__name__)

_LINGER_S = 1.0
"""Who is refused gets to read why, also if it has not stopped to send."""
_MOST_FRAGMENTS = 10_000
_MOST_HEADERS = 128
_MOST_PIPELINED = 32
"""Requests that wait behind the one at work. A client with more has its connection closed."""
_UNREAD = "memory is short (max.memory.bytes), and the client leaves answers unread"
_BAD_HANDSHAKE = (
    "this is no handshake of a WebSocket: expected a GET of HTTP/1.1 without a body, with at most "
    "128 headers and no line longer than 8192 bytes"
)


class Connection(HttpToolsProtocol):
    """A connection of HTTP, until it becomes a WebSocket."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        context: Context,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._context = context
        self._settings = context.settings
        self.since_s = self.heard_s = self.loop.time()
        self._is_heard = False
        """Whether the client has sent anything."""
        self._is_over = False
        self._is_in_head = False
        self._refusal: tuple[HTTPStatus, str] | None = None
        """What to tell to whatever is asked."""
        self._timer: TimerHandle | None = None
        self._stall_timer: TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        self.is_endless = False
        """Whether it is used for a stream that its client may read as slowly as it likes."""
        # A head may begin anywhere in the first of its chunks, and end anywhere in the last.
        self._chunk_bytes = 0
        self._first_bytes = 0
        self._more_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most = self._settings.max_connections
        if len(self.connections) > most:
            self.connections.discard(self)
            # Clients expect no answer before they have asked.
            self._refusal = (
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"there are {most} connections, as http.max.connections allows: try again later",
            )
            self._timer = self.loop.call_later(_LINGER_S, self._time_out)
            return
        self._context.accepted_connections += 1
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self._cancel_stall_timer()
        self._context.resume(self)
        self._tell_running()
        # It does so itself only after an end without an error.
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self._is_heard:
            self._is_heard = True
            if is_tls_hello(data):
                self._refuse_tls()
                return
        self._chunk_bytes = len(data)
        self.heard_s = self.loop.time()
        if self._is_in_head:
            self._more_bytes += len(data)
        super().data_received(data)
        self._look_at_head()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise ValueError("too many requests at once")
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        self._is_in_head = True
        self._first_bytes = self._chunk_bytes
        self._more_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # trailers are ignored: nothing bounds their size
        if len(self.headers) >= _MOST_HEADERS:
            told = f"more than {_MOST_HEADERS} headers"
            self._refusal = (HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, told)
            raise ValueError(told)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        limit = self._settings.request_header_max_bytes
        if self._first_bytes + self._more_bytes > limit and self._head_bytes() > limit:
            self._refusal = self._too_large()
        if self._refusal is not None:
            # The parser stops, and has `send_400_response` called.
            raise ValueError
        self._cancel_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - ours says more
        unreadable = (HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1 that can be read")
        self._refuse(*(self._refusal or unreadable))

    def handle_websocket_upgrade(self) -> None:
        self._is_over = True
        self._cancel_timer()
        super().handle_websocket_upgrade()
        socket = self.transport.get_protocol()
        assert isinstance(socket, SocketConnection)
        socket.since_s = socket.heard_s = self.heard_s
        socket.context = self._context
        if not socket.handshake_initiated:
            # It could not read the request, says nothing, and would wait for ever.
            self.transport.set_protocol(self)
            self.connections.discard(socket)
            self._refuse(HTTPStatus.BAD_REQUEST, _BAD_HANDSHAKE)

    def pause_writing(self) -> None:
        super().pause_writing()
        unsent_bytes = self.transport.get_write_buffer_size()
        if self._stall_timer is None:
            self._watch_writing(unsent_bytes)
        self._context.stall(self, unsent_bytes)

    def resume_writing(self) -> None:
        self._cancel_stall_timer()
        self._context.resume(self)
        super().resume_writing()

    def give_up_unread(self) -> None:
        """Hang up on a client that does not read, while others need the memory."""
        _warn(self._context, self.client, _UNREAD)
        self._abort()

    async def drained(self) -> None:
        """Return when the client has taken its answers, or is gone."""
        while self.flow.write_paused and not self.transport.is_closing():
            await self.flow.drain()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _tell_running(self) -> None:
        """Stop the running request from writing: uvicorn stops only the newest pipelined one."""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _abort(self) -> None:
        self._tell_running()
        self.transport.abort()

    def _watch_writing(self, left_bytes: int) -> None:
        self._stall_timer = self.loop.call_later(
            self._settings.body_timeout_s, self._look_at_writing, left_bytes
        )

    def _look_at_writing(self, before_bytes: int) -> None:
        """Of a stream without end, little is held, and who is slow may be so."""
        left_bytes = self.transport.get_write_buffer_size()
        if not self.is_endless and left_bytes >= before_bytes:
            self._stall_timer = None
            self._abort()
        else:
            self._watch_writing(left_bytes)

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _look_at_head(self) -> None:
        """What comes may have no end."""
        if self._is_over:
            return
        if self._is_in_head and self._more_bytes > self._settings.request_header_max_bytes:
            self._refuse(*self._too_large())
        elif self._timer is None and not self._is_answering:
            self._timer = self.loop.call_later(
                self._settings.request_header_timeout_s, self._time_out
            )

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _time_out(self) -> None:
        self._timer = None
        limit = self._settings.request_header_timeout_s
        late = (
            HTTPStatus.REQUEST_TIMEOUT,
            f"the request has not come whole in {limit} s: http.request.header.timeout.seconds",
        )
        if not self._is_answering and not self.transport.is_closing():
            self._refuse(*(self._refusal or late))

    def _too_large(self) -> tuple[HTTPStatus, str]:
        limit = self._settings.request_header_max_bytes
        told = f"path and headers are larger than {limit} bytes: http.request.header.max.bytes"
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, told

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Tell why, read on without looking, and hang up."""
        self._is_over = True
        self._cancel_timer()
        self._unset_keepalive_if_required()
        # Not one of those that are waited for, or counted.
        self.connections.discard(self)
        if self._is_answering:
            # In the midst of another answer there is no place for this one.
            self.transport.close()
            return
        response = plain_problem(status, detail)
        lines = [STATUS_LINE[status]]
        for name, value in (*response.raw_headers, (b"connection", b"close")):
            lines += [name, b": ", value, b"\r\n"]
        self.transport.write(b"".join([*lines, b"\r\n", response.body]))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(_LINGER_S, self.transport.close)

    def _refuse_tls(self) -> None:
        _warn(self._context, self.client, TLS_HINT)
        self._refuse(HTTPStatus.BAD_REQUEST, TLS_HINT)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SocketConnection(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket."""

    context: Context
    _late_pongs: Sequence[bytes] = ()
    since_s = heard_s = 0.0
    # What has come of a message that is not whole; what is reserved for it; who looks after it.
    _partial_bytes = 0
    _held_bytes = 0
    _watch: TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        self.heard_s = self.loop.time()
        self._partial_bytes += len(data)
        super().data_received(data)
        if self._partial_bytes > FREE_BYTES and self._watch is None and self.handshake_complete:
            self._look_at_partial()
            self._hold()

    def send_receive_event_to_app(self) -> None:
        self._let_go()
        super().send_receive_event_to_app()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        self.context.resume(self)
        super().connection_lost(exc)

    def _hold(self) -> None:
        """Reserve memory for the rest of a message, and read none of it before there is some."""
        size_bytes = self.context.settings.request_max_bytes
        memory = self.context.broker.memory
        if memory.take(WEBSOCKET_MESSAGES, size_bytes):
            self._held_bytes = size_bytes
            if self.read_paused:
                self.read_paused = False
                self.transport.resume_reading()
        else:
            memory.wait(WEBSOCKET_MESSAGES, self._hold)
            if not self.read_paused:
                self.read_paused = True
                self.transport.pause_reading()

    def _let_go(self) -> None:
        """There is no partial message any more. Safe to call twice."""
        self._partial_bytes = 0
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
            self.context.broker.memory.leave(self._hold)
        held_bytes, self._held_bytes = self._held_bytes, 0
        if held_bytes:
            self.context.broker.memory.give_back(WEBSOCKET_MESSAGES, held_bytes)

    def _look_at_partial(self) -> None:
        """End a connection whose message does not get on, for want of memory or of bytes."""
        timeout_s = self.context.settings.body_timeout_s
        left_s = self.heard_s + timeout_s - self.loop.time()
        if self._watch is not None and left_s <= 0:
            reason = "nothing of a message came" if self._held_bytes else "there is no memory"
            self._let_go()
            self.conn.fail(CloseCode.TRY_AGAIN_LATER, f"{reason} for {timeout_s} s")
            self.handle_parser_exception()
        else:
            self._watch = self.loop.call_later(max(left_s, 0.1), self._look_at_partial)

    def send(self, message: ASGISendEvent) -> Coroutine[Any, Any, None]:
        """Hot: every frame goes through here."""
        if message["type"] == "websocket.http.response.body":
            return self._send_refusal(message)
        return super().send(message)

    async def _send_refusal(self, message: ASGISendEvent) -> None:
        await super().send(message)
        # It would report as a defect that nothing else comes after a refusal.
        self.handshake_complete = True

    def handle_cont(self, event: Frame) -> None:
        """A message is limited in bytes; pieces without any must have an end as well."""
        super().handle_cont(event)
        if len(self.frames) > _MOST_FRAGMENTS and not self.close_sent:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"more than {_MOST_FRAGMENTS} fragments")
            self.handle_parser_exception()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.context.stall(self, self.transport.get_write_buffer_size())

    def give_up_unread(self) -> None:
        """Hang up on a client that does not read, while others need the memory."""
        _warn(self.context, self.client, _UNREAD)
        self.transport.abort()

    def handle_pong(self, event: Frame) -> None:
        if not self.frames:
            self._partial_bytes = 0
        super().handle_pong(event)

    def handle_ping(self) -> None:
        """Who does not read is owed the answer to the last ping alone (RFC 6455, 5.5.3)."""
        if not self.frames:
            self._partial_bytes = 0
        if self.writable.is_set():
            super().handle_ping()
        else:
            self._late_pongs = self.conn.data_to_send() or self._late_pongs

    def resume_writing(self) -> None:
        self.context.resume(self)
        pongs, self._late_pongs = self._late_pongs, ()
        if not self.transport.is_closing():
            self.transport.write(b"".join(pongs))
        super().resume_writing()


def _warn(context: Context, client: tuple[str, int] | None, reason: str) -> None:
    """Log why a connection is closed."""
    host, port = client or ("?", 0)
    context.client_log.write(
        _log,
        logging.WARNING,
        "http: %(peer)s: the connection is closed: %(reason)s",
        {"peer": f"{host}:{port}", "reason": reason},
        kind=reason,
        host=host,
    )
