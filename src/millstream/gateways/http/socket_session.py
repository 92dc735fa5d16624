"""One client's WebSocket: reads requests, carries many out at once, writes answers and deliveries.

Whatever is written waits for its turn and then for the client: there is never more than one frame
in memory besides what the socket holds. Requests are limited too, in number and in bytes, so a
client that reads no answers is not read.

Invariant: requests are begun in the order in which they came. When the client is gone, so are its
tasks and subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from sys import getsizeof
from typing import Any

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from millstream.broker.broker import Broker
from millstream.broker.memory_budget import WEBSOCKET_MESSAGES
from millstream.errors import (
    AlreadyExists,
    InvalidRequest,
    MalformedMessage,
    MillstreamError,
    NotFound,
    Unavailable,
)
from millstream.gateways.http import json_text
from millstream.gateways.http.context import FREE_BYTES, Context
from millstream.gateways.http.excerpt import excerpt
from millstream.gateways.http.problems import problem_of
from millstream.gateways.http.socket_fields import Fields
from millstream.gateways.http.socket_operations import OPERATIONS, Answer
from millstream.gateways.http.socket_room import Room
from millstream.gateways.http.socket_subscriptions import (
    LogSubscription,
    Positions,
    QueueSubscription,
    Subscription,
    SubscriptionId,
    ended_text,
)
from millstream.gateways.http.tail import Tails

_log = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS = 1000
MAX_REQUESTS = 1000
GOING_AWAY = 1001
NOT_JSON = 1007
TOO_BIG = 1009
_ABNORMAL = 1006
_REASON_BYTES = 123
"""What a close frame has room for."""
_CLOSE_S = 0.5


class Session:
    """A connection with requests and subscriptions."""

    def __init__(self, socket: WebSocket, context: Context, tails: Tails) -> None:
        self.tails = tails
        self.turn = asyncio.Lock()
        self.queue_messages = context.settings.stream_queue_messages
        self._socket = socket
        self._context = context
        self._room = Room(
            requests=MAX_REQUESTS, size_bytes=context.settings.socket_requests_max_bytes
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._positions: dict[SubscriptionId, Positions] = {}
        self._delivering: dict[SubscriptionId, asyncio.Task[None]] = {}

    @property
    def client_host(self) -> str:
        client = self._socket.client
        return "" if client is None else f"/{client.host}"

    @property
    def broker(self) -> Broker:
        return self.tails.broker

    async def run(self) -> None:
        """Serve the client until it goes, or the broker stops."""
        closing = self.spawn(self._close_with_broker())
        try:
            await self._read()
        except WebSocketDisconnect:
            pass
        finally:
            closing.cancel()
            for number in list(self._subscriptions):
                self.end(number)
            running = tuple(self._tasks)
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something for as long as the client is there."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Frames

    async def write(self, text: str) -> None:
        """Call it only in turn."""
        try:
            await self._socket.send({"type": "websocket.send", "text": text})
        except RuntimeError:
            # The server has closed the connection, and its end is not yet told.
            raise WebSocketDisconnect(_ABNORMAL) from None

    async def begin(self, shape: dict[str, Any], size_bytes: int) -> None:
        """Carry out a request, or begin to."""
        await self._room.enter(size_bytes)
        held_bytes = size_bytes if size_bytes > FREE_BYTES else 0
        memory, timeout_s = self.broker.memory, self._context.settings.body_timeout_s
        if held_bytes:
            try:
                await memory.reserve(WEBSOCKET_MESSAGES, held_bytes, timeout_s=timeout_s)
            except Unavailable as error:
                self._room.leave(size_bytes)
                await self.tell({**_envelope(shape), "error": problem_of(error)})
                return

        def leave(_: object) -> None:
            self._room.leave(size_bytes)
            if held_bytes:
                memory.give_back(WEBSOCKET_MESSAGES, held_bytes)

        task = self.spawn(self._serve(shape))
        task.add_done_callback(leave)
        if shape.get("op") == "send" and not self._is_known(shape.get("topic")):
            # It may be created now. What comes after it must not be stored before it.
            await asyncio.wait([task])

    async def refuse(self, shape: Any) -> None:
        error = InvalidRequest(f"a frame is a JSON object with an op: {excerpt(shape)}")
        async with self.turn:
            await self.write(_text({"error": problem_of(error)}))

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            raw = message.get("text")
            if raw is None:
                raw = message["bytes"]
            size_bytes = getsizeof(raw)
            try:
                shape = await json_text.parse(raw, what="frame")
            except MalformedMessage as error:
                await self._close(NOT_JSON, str(error))
                return
            except InvalidRequest as error:
                # Whose answer this would be stands in what was not parsed.
                await self._close(TOO_BIG, str(error))
                return
            if type(shape) is dict:
                await self.begin(shape, size_bytes)
            else:
                await self.refuse(shape)

    async def _serve(self, shape: dict[str, Any]) -> None:
        number, name, envelope = shape.get("id"), shape.get("op"), _envelope(shape)
        try:
            answer = await self._answer(number, name, Fields(shape))
            async with self.turn:
                # Also where nobody wants to hear of it, this is when it happens.
                result = answer() if callable(answer) else answer
                if not isinstance(result, dict):
                    result = await result
                if number is not None:
                    await self.write(_text({"id": number, "result": result}))
        except MillstreamError as error:
            await self.tell({**envelope, "error": problem_of(error)})
        except WebSocketDisconnect:
            pass
        except Exception:  # Outer edge of a request: the others go on.
            _log.exception("a request over a WebSocket failed")
            await self.tell({**envelope, "error": problem_of(_defect())})

    async def _answer(self, number: Any, name: Any, fields: Fields) -> Answer:
        if number is not None and type(number) not in {int, str}:
            raise InvalidRequest(f"id is {excerpt(number)}: expected a number or text")
        operation = OPERATIONS.get(name) if type(name) is str else None
        if operation is None:
            raise InvalidRequest(f"op is {excerpt(name)}: expected one of {', '.join(OPERATIONS)}")
        return await operation(self, fields, number)

    async def tell(self, shape: dict[str, Any]) -> None:
        """Write something, if the client is still there."""
        try:
            async with self.turn:
                await self.write(_text(shape))
        except WebSocketDisconnect:
            pass

    def _is_known(self, topic: Any) -> bool:
        if type(topic) is not str:
            return True
        try:
            self.broker.topics.get(topic)
        except MillstreamError:
            return False
        return True

    # Subscriptions

    def check_new(self, number: SubscriptionId) -> None:
        """Raises what keeps a subscription from being added."""
        if number is None:
            raise InvalidRequest("id is missing: a subscription is known by its request's")
        if number in self._subscriptions:
            raise AlreadyExists(kind="subscription", name=str(number))
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise InvalidRequest(f"a connection has at most {MAX_SUBSCRIPTIONS} subscriptions")

    def add(self, subscription: Subscription, positions: Positions | None = None) -> None:
        number = subscription.number
        self._subscriptions[number] = subscription
        if positions is not None:
            self._positions[number] = positions
        self._delivering[number] = self.spawn(self._deliver(subscription))

    def end(self, number: SubscriptionId) -> None:
        """Deliver nothing more of a subscription. Safe to call twice."""
        subscription = self._subscriptions.pop(number, None)
        if subscription is not None:
            self._positions.pop(number, None)
            self._delivering.pop(number).cancel()
            subscription.close()

    def subscription(self, number: SubscriptionId) -> Subscription:
        found = self._subscriptions.get(number)
        if found is None:
            raise NotFound(kind="subscription", name=str(number))
        return found

    def log_subscription(self, number: SubscriptionId) -> tuple[LogSubscription, Positions | None]:
        found = self.subscription(number)
        if not isinstance(found, LogSubscription):
            raise InvalidRequest(f"subscription {number!r} is to a queue, which cannot do this")
        return found, self._positions.get(number)

    def queue_subscription(self, number: SubscriptionId) -> QueueSubscription:
        found = self.subscription(number)
        if not isinstance(found, QueueSubscription):
            raise InvalidRequest(f"subscription {number!r} is to no queue, so it cannot do this")
        return found

    async def ack(self, number: SubscriptionId, ids: list[str]) -> list[str]:
        """Returns when it is on disk, those of a queue's messages that were done before."""
        found = self.subscription(number)
        if isinstance(found, QueueSubscription):
            return await found.consumer.ack(ids)
        positions = self._positions.get(number)
        if positions is None:
            raise InvalidRequest(
                f"subscription {number!r} has no group whose position could be moved"
            )
        return await positions.ack(ids)

    async def _deliver(self, subscription: Subscription) -> None:
        number = subscription.number
        error: MillstreamError
        try:
            await subscription.run()
        except WebSocketDisconnect:
            return
        except MillstreamError as failure:
            if isinstance(failure, Unavailable) and self.broker.subscriptions.is_closed:
                # The broker stops. That ends the connection, not what the client subscribed to.
                return
            error = failure
        except Exception:  # Outer edge of a subscription: the others go on.
            _log.exception("a subscription over a WebSocket failed")
            error = _defect()
        # Forgotten first: whoever hears of its end can use its id again.
        self._delivering.pop(number, None)
        self._subscriptions.pop(number, None)
        self._positions.pop(number, None)
        subscription.close()
        await self._tell_end(number, error)

    async def _tell_end(self, number: SubscriptionId, error: MillstreamError) -> None:
        try:
            async with self.turn:
                await self.write(ended_text(number, error))
        except WebSocketDisconnect:
            pass

    # Ends

    async def _close_with_broker(self) -> None:
        await self._context.closing.wait()
        await self._close(GOING_AWAY, "the broker stops")

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._socket.close(code, closing_reason(reason))
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            pass


def closing_reason(reason: object) -> str:
    """As much of a reason as a close frame has room for."""
    return str(reason).encode(errors="replace")[:_REASON_BYTES].decode(errors="ignore")


def _envelope(shape: dict[str, Any]) -> dict[str, Any]:
    """What tells the client which of its requests an answer is for."""
    number, name = shape.get("id"), shape.get("op")
    if type(number) in {int, str}:
        return {"id": number}
    return {"op": name if type(name) is str else None}


def _text(shape: dict[str, Any]) -> str:
    return orjson.dumps(shape).decode()


def _defect() -> MillstreamError:
    return Unavailable("this is a defect of the broker: see its log")
