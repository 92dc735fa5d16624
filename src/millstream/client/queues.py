"""Queues: subscriptions whose messages are acknowledged one by one, administered.

Nothing that changes something is repeated when its answer is lost: `AnswerLost` says that it may
have happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.client.dead_letters import (
    DeadLetters,
    LetterState,
    Replayed,
    dead_letters,
    replayed,
)
from millstream.client.messages import Span, span_ms
from millstream.client.plan import QueueType
from millstream.client.rest import Rest, path_part

if TYPE_CHECKING:
    from millstream.client.frames import Start


class QueueDescription(NamedTuple):
    """A queue, and how it is doing."""

    topic: str
    name: str
    type: str
    ack_timeout_ms: int
    max_deliveries: int
    redelivery_min_ms: int
    redelivery_max_ms: int
    dead_letter_topic: str
    consumers: tuple[str, ...]
    backlog: int
    """Messages that are not acknowledged, at most."""
    in_flight: int
    delayed: int
    waiting: int
    """Messages that were refused and will come again."""
    redelivered: int
    dead: int
    lost: int
    """Messages that were deleted before they were acknowledged, at most."""


# Where a method is called list, the type needs another name.
QueueDescriptions = list[QueueDescription]


class AsyncQueues:
    """Queues of a broker."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def list(self, topic: str | None = None) -> QueueDescriptions:
        """Those of a topic, or all. Raises UnknownTopic."""
        path = "/subscriptions" if topic is None else f"{_topic_path(topic)}/subscriptions"
        result = await self._rest.ask("GET", path)
        return [_description(each) for each in result["subscriptions"]]

    async def create(
        self,
        topic: str,
        name: str,
        *,
        type: QueueType = "shared",  # noqa: A002  # Pulsar's word
        start: Start = "earliest",
        ack_timeout: Span | None = None,
        max_deliveries: int | None = None,
        dead_letter_topic: str | None = None,
        redelivery_min: Span | None = None,
        redelivery_max: Span | None = None,
    ) -> QueueDescription:
        """Create a queue on a topic; one with the same settings may be there already.

        `start` is earliest, latest or an offset. What is left out is as the broker has it.
        Raises Conflict if it has other settings.
        """
        settings = {
            "type": type,
            "start": start,
            "ack_timeout_ms": None if ack_timeout is None else span_ms(ack_timeout),
            "max_deliveries": max_deliveries,
            "dead_letter_topic": dead_letter_topic,
            "redelivery_min_ms": None if redelivery_min is None else span_ms(redelivery_min),
            "redelivery_max_ms": None if redelivery_max is None else span_ms(redelivery_max),
        }
        given = {key: value for key, value in settings.items() if value is not None}
        return _description(await self._rest.ask("PUT", _path(topic, name), given))

    async def describe(self, topic: str, name: str) -> QueueDescription:
        """Raises NotFound."""
        return _description(await self._rest.ask("GET", _path(topic, name)))

    async def delete(self, topic: str, name: str) -> None:
        """Forget what was acknowledged; the messages stay in the topic. Raises NotFound."""
        await self._rest.ask("DELETE", _path(topic, name))

    async def browse(
        self,
        topic: str,
        name: str,
        *,
        partition: int | None = None,
        offset: int = 0,
        limit: int = 100,
        state: LetterState = "all",
        counts: bool = False,
    ) -> DeadLetters:
        """Look at dead letters, the oldest first. They stay where they are. Raises NotFound.

        Those of a partition from an offset on, or of all: `next_offsets` says where to go on.
        """
        query: dict[str, str | int] = {"limit": limit, "offset": offset, "encoding": "base64"}
        query["state"] = state
        if counts:
            query["counts"] = "true"
        if partition is not None:
            query["partition"] = partition
        return dead_letters(await self._rest.ask("GET", f"{_path(topic, name)}/dlq", query=query))

    async def replay(
        self,
        topic: str,
        name: str,
        *,
        limit: int = 1000,
        message_ids: Sequence[str] | None = None,
        again: bool = False,
    ) -> Replayed:
        """Send dead letters back to the topic, the oldest first that were not yet, or these.

        Raises Conflict for letters of `message_ids` that were sent back before, unless `again`.
        """
        path = f"{_path(topic, name)}/dlq/replay"
        wanted: dict[str, object] = {"limit": limit}
        if message_ids is not None:
            wanted = {"message_ids": list(message_ids), "again": again}
        return replayed(await self._rest.ask("POST", path, wanted))

    async def purge(self, topic: str) -> int:
        """Delete all messages of a topic, as of one for dead letters; how many. Raises NotFound."""
        answer = await self._rest.ask("DELETE", f"{_topic_path(topic)}/messages")
        return int(answer["deleted"])


def _path(topic: str, name: str) -> str:
    return f"{_topic_path(topic)}/subscriptions/{path_part(name, 'queue')}"


def _topic_path(topic: str) -> str:
    return f"/topics/{path_part(topic, 'topic')}"


def _description(shape: dict[str, Any]) -> QueueDescription:
    known = {field: shape[field] for field in QueueDescription._fields}
    return QueueDescription(**{**known, "consumers": tuple(shape["consumers"])})
