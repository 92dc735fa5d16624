"""The simple form of a WebSocket: one topic, and frames that are nothing but messages and acks.

Frames are carried out one after the other, and so answered in the order in which they came.
Format: docs/formats/websocket.md.
"""

from __future__ import annotations

from typing import Any

from starlette.websockets import WebSocket

from millstream.errors import InvalidRequest, MillstreamError
from millstream.gateways.http.context import Context
from millstream.gateways.http.excerpt import excerpt
from millstream.gateways.http.problems import problem_of
from millstream.gateways.http.socket_fields import Fields
from millstream.gateways.http.socket_operations import send_to
from millstream.gateways.http.socket_session import Session
from millstream.gateways.http.socket_subscriptions import SubscriptionId
from millstream.gateways.http.tail import Tails

_ACK = "ack"
_NACK = "nack"


class SimpleSession(Session):
    """A connection to one topic, with at most one subscription."""

    def __init__(self, socket: WebSocket, context: Context, tails: Tails, *, topic: str) -> None:
        super().__init__(socket, context, tails)
        self._topic = topic

    def check_new(self, number: SubscriptionId) -> None:
        assert number is None, "it has no name"

    async def begin(self, shape: dict[str, Any], size_bytes: int) -> None:  # noqa: ARG002 - one at a time
        fields = Fields(shape)
        try:
            if _ACK in fields:
                await self.ack(None, _ids(fields, _ACK))
            elif _NACK in fields:
                consumer = self.queue_subscription(None).consumer
                delay_ms = fields.optional_whole("delay_ms")
                reason = fields.optional_text("reason") or ""
                await consumer.nack(_ids(fields, _NACK), delay_ms=delay_ms, reason=reason)
            else:
                await self.tell(await send_to(self, self._topic, fields))
        except MillstreamError as error:
            await self.tell({"error": problem_of(error)})


def _ids(fields: Fields, name: str) -> list[str]:
    if type(fields.any(name)) is str:
        return [fields.text(name)]
    if type(fields.any(name)) is list:
        return fields.texts(name)
    raise InvalidRequest(
        f"{name} is {excerpt(fields.any(name))}: expected a message id, or a list of them"
    )
