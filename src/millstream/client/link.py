"""The way to the broker: one WebSocket, opened again whenever it breaks.

Requests that have not left wait for the next connection. One that has left and was not answered
when the connection broke is repeated only as often as its maker allowed: the broker may have
carried it out. Those of a subscription belong to one connection and fail with it; the
subscription attaches again and decides for itself.

Invariant: every request is answered, or fails when its connection or its time is over.
After a crash of the broker: waits longer and longer between attempts, then goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, WebSocketException

from millstream.client.backoff import Backoff
from millstream.client.failures import failure_of
from millstream.client.frames import Frame, decode, encode
from millstream.client.options import ClientSettings
from millstream.client.requests import Answered, Request
from millstream.errors import (
    AnswerLost,
    ClientClosed,
    InvalidRequest,
    MalformedMessage,
    MessageTooLarge,
    MillstreamError,
    TimedOut,
    Unreachable,
)

log = logging.getLogger("millstream.client")

_MAX_RECEIVED_BYTES = 256 << 20
_KEEPALIVE_S = 20.0
_CLOSE_S = 5.0


class Standing(Protocol):
    """What lives longer than a connection."""

    def deliver(self, frame: Frame) -> None:
        """Take what the broker sent for it."""

    async def attach(self) -> None:
        """Begin, or go on, over a new connection. Raises nothing; cancelled when that is gone."""

    def detached(self) -> None:
        """The connection is gone."""

    def fail(self, error: MillstreamError) -> None:
        """Nothing will come any more."""


class Link:
    """A connection to one broker. Used within one event loop."""

    def __init__(self, address: str, settings: ClientSettings) -> None:
        self._address = address
        self._settings = settings
        self._backoff = Backoff(first_s=settings.first_backoff_s, limit_s=settings.backoff_limit_s)
        self._outbox: deque[Request] = deque()
        self._on_wire: dict[int, Request] = {}
        self._notes: list[Frame] = []
        self._standing: dict[int, Standing] = {}
        self._attaching: set[asyncio.Task[None]] = set()
        self._last_number = 0
        self._has_work = asyncio.Event()
        self._connected = asyncio.Event()
        self._reason = "nobody was asked yet"
        self._tasks: asyncio.TaskGroup | None = None
        self._main: asyncio.Task[None] | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Raises Unreachable if the broker is not found in time."""
        self._main = asyncio.create_task(self._run(), name="millstream-link")
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await self._connected.wait()
        except TimeoutError:
            await self.close()
            raise Unreachable(address=self._address, reason=self._reason) from None
        except BaseException:
            await self.close()
            raise

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    def number(self) -> int:
        """An id that no request of this link has."""
        self._last_number += 1
        return self._last_number

    def ask(
        self,
        frame: Frame,
        *,
        number: int | None = None,
        repeats: int = 0,
        is_bound: bool = False,
        on_result: Answered | None = None,
    ) -> asyncio.Future[Frame]:
        """Send a request as soon as there is a connection. Its result comes later.

        Raises ClientClosed. The future raises what the broker answers, AnswerLost, TimedOut.
        """
        if self._is_closed:
            raise ClientClosed(what="connection to the broker")
        loop = asyncio.get_running_loop()
        request = Request(
            self.number() if number is None else number,
            frame,
            answer=loop.create_future(),
            repeats=repeats,
            is_bound=is_bound,
            on_result=on_result,
        )
        if is_bound and not self._connected.is_set():
            request.fail(AnswerLost(operation=request.operation))
            return request.answer
        request.deadline = loop.call_later(self._settings.timeout_s, self._expire, request)
        request.answer.add_done_callback(lambda _: self._forget(request))
        self._outbox.append(request)
        self._has_work.set()
        return request.answer

    def tell(self, frame: Frame) -> None:
        """Send what needs no answer, and has no meaning for another connection."""
        if self._connected.is_set():
            self._notes.append(frame)
            self._has_work.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let it run as long as the link is open. Raises ClientClosed."""
        if self._is_closed:
            work.close()
            raise ClientClosed(what="connection to the broker")
        assert self._tasks is not None
        return self._tasks.create_task(work)

    def stand(self, number: int, standing: Standing) -> None:
        """Attach it to the connection, and again to each new one; deliver to it."""
        self._standing[number] = standing
        if self._connected.is_set():
            self._attach(standing)

    def attach_again(self, standing: Standing) -> None:
        """The broker has ended it and kept the connection. Without one, the next will do it."""
        if self._connected.is_set():
            self._attach(standing)

    def leave(self, number: int) -> None:
        self._standing.pop(number, None)

    async def close(self) -> None:
        """Wait for what is unanswered while there is a connection, then end everything."""
        if not self._is_closed:
            self._is_closed = True
            waiting = [each.answer for each in (*self._outbox, *self._on_wire.values())]
            if waiting and self._connected.is_set():
                await asyncio.wait(waiting, timeout=_CLOSE_S)
        if self._main is not None:
            self._main.cancel()
            await asyncio.wait([self._main])

    async def _run(self) -> None:
        error: MillstreamError = ClientClosed(what="connection to the broker")
        try:
            async with asyncio.TaskGroup() as self._tasks:
                while True:
                    await self._connect_once()
                    await asyncio.sleep(self._backoff.next_s())
        except* Exception as group:
            # Outer edge of the client: a defect of ours must not leave anyone waiting.
            log.exception("the client stopped", exc_info=group)
        finally:
            self._is_closed = True
            for request in (*self._outbox, *self._on_wire.values()):
                request.fail(error)
            for standing in list(self._standing.values()):
                standing.fail(error)

    async def _connect_once(self) -> None:
        try:
            socket = await connect_socket(
                self._address,
                compression=None,
                max_size=_MAX_RECEIVED_BYTES,
                open_timeout=self._settings.connect_timeout_s,
                ping_interval=_KEEPALIVE_S,
                ping_timeout=_KEEPALIVE_S,
                close_timeout=_CLOSE_S,
                proxy=None,
            )
        except (OSError, WebSocketException, TimeoutError) as error:
            self._reason = str(error) or type(error).__name__
            return
        try:
            await self._serve(socket)
        except MalformedMessage as error:
            self._reason = str(error)
            log.warning("left the broker at %s: %s", self._address, error)
        except (ConnectionClosed, OSError) as error:
            self._reason = str(error)
            log.info("lost the broker at %s: %s", self._address, error)
        finally:
            self._lose()
            await socket.close()

    async def _serve(self, socket: ClientConnection) -> None:
        """Until the connection breaks, which raises."""
        await _greet(socket)
        self._backoff.reset()
        self._connected.set()
        self._has_work.set()
        writer = self.spawn(self._write(socket))
        for standing in self._standing.values():
            self._attach(standing)
        try:
            while True:
                frame = decode(await socket.recv(decode=False))
                try:
                    self._take(frame)
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    raise MalformedMessage(f"the broker sent {frame!r:.200}: {error!r}") from error
        finally:
            for task in (writer, *self._attaching):
                task.cancel()

    def _attach(self, standing: Standing) -> None:
        task = self.spawn(standing.attach())
        self._attaching.add(task)
        task.add_done_callback(self._attaching.discard)

    def _take(self, frame: Frame) -> None:
        if "subscription" in frame:
            standing = self._standing.get(frame["subscription"])
            if standing is not None:
                standing.deliver(frame)
            return
        request = self._on_wire.pop(frame.get("id", 0), None)
        if request is None:
            if "error" in frame and "id" not in frame:
                # A note about what the broker has ended meanwhile, and tells of by itself.
                log.info("the broker refused: %s", frame["error"].get("detail"))
        elif "error" in frame:
            request.fail(failure_of(frame["error"]))
        else:
            request.succeed(frame.get("result", {}))

    async def _write(self, socket: ClientConnection) -> None:
        """Send what waits, in order. Ends with the connection."""
        with suppress(ConnectionClosed):
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                while self._outbox or self._notes:
                    # Notes first: what is asked for next may end what they are about.
                    notes, self._notes = self._notes, []
                    for note in notes:
                        await socket.send(encode(note), text=True)
                    if self._outbox:
                        await self._write_request(socket, self._outbox.popleft())

    async def _write_request(self, socket: ClientConnection, request: Request) -> None:
        if request.is_done:
            return
        try:
            data = encode({"id": request.number, **request.frame})
        except TypeError as error:
            request.fail(InvalidRequest(f"{request.operation} was given what is no text: {error}"))
            return
        limit_bytes = self._settings.max_frame_bytes
        if len(data) > limit_bytes:
            request.fail(MessageTooLarge(size_bytes=len(data), limit_bytes=limit_bytes))
            return
        # From here on it may be carried out, whatever becomes of the connection.
        self._on_wire[request.number] = request
        await socket.send(data, text=True)

    def _lose(self) -> None:
        """The connection is gone: decide what becomes of what it carried."""
        self._connected.clear()
        self._notes.clear()
        sent, self._on_wire = self._on_wire, {}
        again = []
        for request in sent.values():
            if request.is_bound or request.repeats == 0:
                request.fail(AnswerLost(operation=request.operation))
            else:
                request.repeats -= 1
                again.append(request)
        unsent, self._outbox = self._outbox, deque(again)
        for request in unsent:
            if request.is_bound:
                request.fail(AnswerLost(operation=request.operation))
            else:
                self._outbox.append(request)
        for standing in self._standing.values():
            standing.detached()

    def _expire(self, request: Request) -> None:
        timeout_ms = round(self._settings.timeout_s * 1000)
        request.fail(TimedOut(operation=request.operation, timeout_ms=timeout_ms))

    def _forget(self, request: Request) -> None:
        if request.deadline is not None:
            request.deadline.cancel()
        self._on_wire.pop(request.number, None)


async def _greet(socket: ClientConnection) -> None:
    """Find out whether a broker is there that is ready. Raises ConnectionClosed if it is not yet.

    It lets go of who comes too early. Had something been sent already, nobody could say what became
    of it.
    """
    await socket.send(encode({"id": 0, "op": "ping"}), text=True)
    if "result" not in decode(await socket.recv(decode=False)):
        raise MalformedMessage("what answers is no broker that this client knows")
