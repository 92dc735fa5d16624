"""A subscription as an iterator of messages, for programs without an event loop.

Messages are brought over from the thread of the client some at a time.

Invariant: what was brought over from a queue and not handed out is let go when the connection broke
since: the broker gives it to someone again.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from millstream.client.frames import Start
from millstream.client.loop_thread import LoopThread
from millstream.client.messages import Received, Span
from millstream.client.subscription import AsyncSubscription

_BROUGHT_MESSAGES = 100


class Message(Received):
    """A message that was received, and can be acknowledged."""

    __slots__ = ("_subscription",)

    def __init__(self, subscription: Subscription, received: Received) -> None:
        super().__init__(
            received.topic,
            received.partition,
            received.offset,
            timestamp_ms=received.timestamp_ms,
            key=received.key,
            value=received.value,
            headers=received.headers,
            delivery_count=received.delivery_count,
        )
        self._subscription = subscription

    def ack(self) -> None:
        """It is dealt with. With a group: so is all before it in its partition.

        Returns when it is on the broker's disk.
        """
        self._subscription.ack(self)

    def nack(self, *, delay: Span | None = None, reason: str = "") -> None:
        """Let it come again, after a while; after too many times it goes to the dead letters."""
        self._subscription.nack(self, delay=delay, reason=reason)

    def extend(self, span: Span) -> None:
        """Take more time before it is given to another consumer."""
        self._subscription.extend(self, span)

    def processing(self) -> AbstractContextManager[Any]:
        """For `with`: a span around what you do with it, if the connection has `tracing`."""
        tracing = self._subscription.tracing
        return nullcontext() if tracing is None else tracing.processing(self)


class Subscription:
    """Messages of one topic. Made by `Connection.subscribe`."""

    def __init__(self, thread: LoopThread, subscription: AsyncSubscription) -> None:
        self.topic = subscription.topic
        self.tracing = subscription.tracing
        self._thread = thread
        self._subscription = subscription
        self._brought: deque[Message] = deque()
        self._bringing = threading.Lock()
        self._attachment = subscription.attachment

    @property
    def skipped_count(self) -> int:
        """How many messages retention deleted before they could be read."""
        return self._subscription.skipped_count

    @property
    def assigned(self) -> tuple[int, ...]:
        """With a group: the partitions that it has assigned to this member."""
        return self._subscription.assigned

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message. None when none came in time, or the subscription was closed."""
        subscription = self._subscription
        if subscription.is_shared and self._attachment != subscription.attachment:
            self._brought.clear()
        try:
            while not subscription.is_assigned((message := self._brought.popleft()).partition):
                # Meanwhile the group has given it to another member.
                pass
        except IndexError:
            return self._wait(timeout_s)
        return message

    def receive_many(self, limit: int, timeout_s: float | None = None) -> list[Message]:
        """All messages that are there, up to a limit; waits for the first of them."""
        first = self.receive(timeout_s)
        if first is None:
            return []
        messages = [first]
        while self._brought and len(messages) < limit:
            messages.append(self._brought.popleft())
        return messages

    def ack(self, *messages: Received) -> None:
        """As `ack` of each message. Raises ValueError where there is nothing to acknowledge."""

        async def work() -> None:
            await self._subscription.ack(*messages)

        self._thread.call(work())

    def nack(self, *messages: Received, delay: Span | None = None, reason: str = "") -> None:
        """As `nack` of each message."""

        async def work() -> None:
            await self._subscription.nack(*messages, delay=delay, reason=reason)

        self._thread.call(work())

    def extend(self, message: Received, span: Span) -> None:
        """As `extend` of the message."""

        async def work() -> None:
            await self._subscription.extend(message, span)

        self._thread.call(work())

    def seek(self, start: Start, *, partition: int | None = None) -> None:
        """Go on elsewhere: in one partition, or in all. What was fetched ahead is let go."""
        self._thread.call(self._subscription.seek(start, partition=partition))
        kept = [each for each in self._brought if partition not in (None, each.partition)]
        self._brought = deque(kept)

    def close(self) -> None:
        """End it. Iterators of it end too."""
        self._brought.clear()
        if not self._thread.is_closed:
            self._thread.call(self._subscription.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, timeout_s: float | None) -> Message | None:
        """One thread brings messages for all that wait."""
        end_s = None if timeout_s is None else self._thread.time_s() + timeout_s
        if not self._bringing.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0)):
            return None
        try:
            if not self._brought:
                left_s = None if end_s is None else max(end_s - self._thread.time_s(), 0)
                self._brought.extend(self._bring(_BROUGHT_MESSAGES, left_s))
            return self._brought.popleft() if self._brought else None
        finally:
            self._bringing.release()

    def _bring(self, limit: int, timeout_s: float | None) -> list[Message]:
        if self._thread.is_closed:
            return []
        messages = self._thread.call(self._subscription.receive_many(limit, timeout_s))
        self._attachment = self._subscription.attachment
        return [Message(self, each) for each in messages]
