"""Subscriptions of one WebSocket: to a log, and to a queue.

Each has a task that delivers. A log is read only when the connection takes another frame, and so a
client that does not read keeps its place in the log, not messages in memory.

Invariant: a subscription that was told to be ended delivers nothing any more.
After a crash: positions that were answered are committed; the rest is delivered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import orjson

from millstream.broker.broker import Broker
from millstream.broker.subscriptions import Consumer, Delivery
from millstream.errors import InvalidRequest, MillstreamError
from millstream.gateways.http import cursors
from millstream.gateways.http.excerpt import excerpt
from millstream.gateways.http.feed import Feed, Skipped
from millstream.gateways.http.problems import problem_of
from millstream.gateways.http.tail import delivered_shape
from millstream.records import Record

SubscriptionId = int | str | None
"""None in the simple form, where there is only one."""

_QUEUE_BYTES = 1 << 20
_FIRST_MESSAGES = 10
_FRAME_MESSAGES = 100
_RECEIVE_MS = 30_000
_LONGEST_ID = 40


class Line(Protocol):
    """A connection, as those see it who have something to deliver."""

    @property
    def turn(self) -> asyncio.Lock:
        """To be held by who writes, and while what is written is chosen."""

    async def write(self, text: str) -> None:
        """Returns when the client keeps up."""


class LogSubscription:
    """Reads a topic from some position on."""

    def __init__(
        self,
        number: SubscriptionId,
        feed: Feed,
        line: Line,
        *,
        queue_messages: int,
        prefetch: int | None = None,
    ) -> None:
        self.number = number
        self.feed = feed
        self._line = line
        self._queue_messages = queue_messages
        self._prefetch = prefetch
        self._credit = prefetch
        self._begin, self._end = _envelope(number)

    async def run(self) -> None:
        """Deliver, until cancelled. Raises what is wrong with the topic or its log."""
        feed, line = self.feed, self._line
        while True:
            await feed.ready()
            async with line.turn:
                taken = feed.take(limit=self._room(), max_bytes=_QUEUE_BYTES)
                if taken is None:
                    continue
                for skipped in taken.skipped:
                    await line.write(self._skipped_text(skipped))
                if self._credit is not None:
                    self._credit -= taken.messages
                if taken.stretches:
                    content = ",".join([each.text for each in taken.stretches])
                    await line.write(f"{self._begin}{content}{self._end}")
            if feed.is_behind:
                # Who has much to catch up with must not keep the others waiting.
                await asyncio.sleep(0)

    def grant(self, messages: int) -> None:
        """The client has dealt with more messages."""
        if self._credit is None or self._prefetch is None:
            raise InvalidRequest("this subscription has no prefetch, and so needs no credit")
        self._credit = min(self._credit + messages, self._prefetch)
        self.feed.wake()

    def seek(self, positions: dict[int, int]) -> dict[int, int]:
        """Go on from somewhere else; returns all positions."""
        self._credit = self._prefetch
        self.feed.seek(positions)
        return self.feed.positions

    def close(self) -> None:
        self.feed.close()

    def _room(self) -> int:
        if self._credit is None:
            return self._queue_messages
        return min(self._credit, self._queue_messages)

    def _skipped_text(self, skipped: Skipped) -> str:
        told = {
            "partition": skipped.partition,
            "from": skipped.from_offset,
            "to": skipped.to_offset,
        }
        return frame(self.number, skipped=told)


class Positions(Protocol):
    """Positions of a group that acknowledgements move."""

    async def ack(self, ids: Sequence[str]) -> list[str]:
        """Commit all up to and with some messages; returns those to which nothing happened."""

    def forget(self) -> None:
        """The client goes on elsewhere: from now on positions may move back, too."""


class GroupPositions:
    """What a group has done with a topic: acks move its committed positions."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        self._broker = broker
        self._group = group
        self._topic = topic
        # By partition, where the group is to go on.
        self._acked: dict[int, int] = {}

    async def ack(self, ids: Sequence[str]) -> list[str]:
        """Commit all up to and with some messages. Raises InvalidRequest, NonEmptyGroup.

        Returns those to which nothing happened: none.
        """
        nexts: dict[int, int] = {}
        for each in ids:
            number, offset = place_of_text(each)
            log = self._broker.topics.partition(self._topic, number).log
            if offset >= log.end_offset:
                raise InvalidRequest(f"there is no message {excerpt(each)} to be acknowledged")
            nexts[number] = max(nexts.get(number, 0), offset + 1)
        for number, to in nexts.items():
            self._acked[number] = max(to, self._acked.get(number, 0))
        await cursors.move(
            self._broker, self._group, self._topic, {n: self._acked[n] for n in nexts}
        )
        return []

    def forget(self) -> None:
        """The client goes on elsewhere: from now on positions may move back, too."""
        self._acked.clear()


class QueueSubscription:
    """Receives messages of a queue, each of which is to be acknowledged."""

    def __init__(self, number: SubscriptionId, consumer: Consumer, line: Line) -> None:
        self.number = number
        self.consumer = consumer
        self._line = line
        self._begin, self._end = _envelope(number)
        self._limit = _FIRST_MESSAGES

    async def run(self) -> None:
        """Deliver, until cancelled. Raises what is wrong with the subscription."""
        line = self._line
        while True:
            deliveries = await self.consumer.receive(self._limit, _RECEIVE_MS)
            is_late = bool(deliveries) and line.turn.locked()
            if is_late:
                # Another frame is on its way, perhaps to a client that does not read: messages wait
                # in the queue for their turn, and not in memory.
                self.consumer.give_back(deliveries)
                deliveries = []
            if deliveries or is_late:
                async with line.turn:
                    await self._write(deliveries or await self.consumer.receive(self._limit, 0))

    async def _write(self, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        content = ",".join([_delivery_text(each) for each in deliveries])
        # As many as fit, if the next ones are as large as these.
        fitting = _QUEUE_BYTES * len(deliveries) // len(content)
        self._limit = max(1, min(fitting, _FRAME_MESSAGES))
        await self._line.write(f"{self._begin}{content}{self._end}")

    def close(self) -> None:
        self.consumer.detach()


Subscription = LogSubscription | QueueSubscription


def frame(number: SubscriptionId, **members: Any) -> str:
    """A frame of a subscription."""
    told = members if number is None else {"subscription": number, **members}
    return orjson.dumps(told).decode()


def ended_text(number: SubscriptionId, error: MillstreamError) -> str:
    return frame(number, error=problem_of(error))


def place_of_text(message_id: str) -> tuple[int, int]:
    """Partition and offset. Raises InvalidRequest."""
    number, _, offset = message_id.partition(":")
    is_number = number.isdecimal() and offset.isdecimal() and message_id.isascii()
    if not is_number or len(message_id) > _LONGEST_ID:
        raise InvalidRequest(f"{excerpt(message_id)} is no message id: expected PARTITION:OFFSET")
    return int(number), int(offset)


def _envelope(number: SubscriptionId) -> tuple[str, str]:
    """What comes before and after the messages in a frame."""
    whole = frame(number, messages=[])
    return whole[:-2], whole[-2:]


def _delivery_text(delivery: Delivery) -> str:
    record = Record(
        delivery.offset, delivery.timestamp_ms, delivery.key, delivery.value, delivery.headers
    )
    shape = delivered_shape(record, delivery.partition)
    shape["message_id"] = delivery.message_id
    shape["delivery_count"] = delivery.delivery_count
    return orjson.dumps(shape).decode()
