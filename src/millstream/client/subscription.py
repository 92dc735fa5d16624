"""A subscription, as an asynchronous iterator of messages that outlives connections.

A bounded number of messages is fetched ahead. One that reads a log keeps the position of what it
has handed out and goes on there over a new connection, so that nothing comes twice or never. One
on a queue, or of a group, attaches again: what was not acknowledged may come again, to this
consumer or another.
So does one that the broker ends because it cannot go on just now.

Invariant: messages of a partition are handed out in the order in which the broker sent them.
Once it has failed it stays so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self

from millstream.client.backoff import Backoff
from millstream.client.failures import failure_of, is_passing
from millstream.client.frames import Delivered, Frame, Start, delivered, positions_of, start_of
from millstream.client.link import Link
from millstream.client.messages import Received, Span, span_ms
from millstream.client.plan import GroupPlan, Plan
from millstream.client.requests import Answered
from millstream.client.settling import ACK, Settled, Settlement, Settler
from millstream.errors import AnswerLost, ClientClosed, Conflict, MillstreamError, TimedOut

if TYPE_CHECKING:
    from millstream.client.tracing import ClientTracing

log = logging.getLogger("millstream.client")

_FIRST_RETRY_S = 0.05
_RETRY_LIMIT_S = 1.0
_CLOSE_S = 5.0


class AsyncMessage(Received):
    """A message that was received, and can be acknowledged."""

    __slots__ = ("_subscription",)

    def __init__(self, subscription: AsyncSubscription, parts: Delivered) -> None:
        super().__init__(
            subscription.topic,
            parts.partition,
            parts.offset,
            timestamp_ms=parts.timestamp_ms,
            key=parts.key,
            value=parts.value,
            headers=parts.headers,
            delivery_count=parts.delivery_count,
        )
        self._subscription = subscription

    def ack(self) -> Settled:
        """It is dealt with. With a cursor or a group: so is all before it in its partition.

        Takes effect also if not awaited; awaited, it returns when it is on the broker's disk.
        """
        return self._subscription.ack(self)

    def nack(self, *, delay: Span | None = None, reason: str = "") -> Settled:
        """Let it come again, after a while; after too many times it goes to the dead letters."""
        return self._subscription.nack(self, delay=delay, reason=reason)

    def extend(self, span: Span) -> Settled:
        """Take more time before it is given to another consumer."""
        return self._subscription.extend(self, span)

    def processing(self) -> AbstractContextManager[Any]:
        """For `with`: a span around what you do with it, if the connection has `tracing`."""
        tracing = self._subscription.tracing
        return nullcontext() if tracing is None else tracing.processing(self)


class AsyncSubscription:
    """Messages of one topic. Made by `AsyncConnection.subscribe`."""

    def __init__(
        self, link: Link, plan: Plan, *, timeout_s: float, tracing: ClientTracing | None = None
    ) -> None:
        self.topic = plan.topic
        self.tracing = tracing
        self.skipped_count = 0
        """How many messages retention deleted before they could be read."""
        self.assigned: tuple[int, ...] = ()
        """With a group: the partitions that it has assigned to this member."""
        self._link = link
        self._plan = plan
        self._timeout_s = timeout_s
        self._number = link.number()
        self._ready: deque[AsyncMessage] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._positions: dict[int, int] = {}
        self._topic_id: str | None = None
        self._acked: dict[int, int] = {}
        self._uncredited = 0
        # Messages that a queue brings again before it gets to know that they are dealt with.
        self._settled: set[str] = set()
        self._is_attached = asyncio.Event()
        self._is_interrupted = False
        self._backoff = Backoff(first_s=_FIRST_RETRY_S, limit_s=_RETRY_LIMIT_S)
        self.attachment = 0
        """How often it has been attached to a connection."""
        self._is_closed = False
        self._error: MillstreamError | None = None
        self._settler = Settler(self._ask)
        self._settling = link.spawn(self._settler.run())

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_queue(self) -> bool:
        return not self._plan.has_credit

    @property
    def is_shared(self) -> bool:
        """Whether what was fetched ahead may go to others when the connection is lost."""
        return self._plan.is_shared

    def is_assigned(self, partition: int) -> bool:
        """Whether messages of a partition are still for this subscription."""
        return not isinstance(self._plan, GroupPlan) or partition in self.assigned

    async def begin(self) -> None:
        """Raises what the broker has against it."""
        self._link.stand(self._number, self)
        try:
            await self._until_attached()
            # What went wrong after it had begun is told behind what came until then.
            if self._error is not None and self.attachment == 0:
                raise self._error
        except BaseException:
            self._end()
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncMessage:
        if self._ready:
            return self._hand_out()
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    async def receive(self, timeout_s: float | None = None) -> AsyncMessage | None:
        """The next message. None when none came in time, or the subscription was closed."""
        if not self._ready:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._until_ready()
            except TimeoutError:
                return None
            if not self._ready:
                return None
        return self._hand_out()

    async def receive_many(self, limit: int, timeout_s: float | None = None) -> list[AsyncMessage]:
        """All messages that are there, up to a limit; waits for the first of them."""
        first = await self.receive(timeout_s)
        if first is None:
            return []
        count = min(limit - 1, len(self._ready))
        return [first, *(self._hand_out() for _ in range(count))]

    def ack(self, *messages: Received) -> Settled:
        """As `ack` of each message. Raises ValueError where there is nothing to acknowledge."""
        self._plan.check("ack")
        for message in messages:
            if not (self._plan.is_cumulative and self._is_covered(message)):
                self._settler.add(ACK, message.id)
        return self._settler.latest

    def nack(self, *messages: Received, delay: Span | None = None, reason: str = "") -> Settled:
        """As `nack` of each message."""
        delay_ms = None if delay is None else span_ms(delay)
        return self._settle(messages, Settlement("nack", delay_ms, reason))

    def extend(self, message: Received, span: Span) -> Settled:
        return self._settle([message], Settlement("extend", span_ms(span)))

    async def seek(self, start: Start, *, partition: int | None = None) -> None:
        """Go on elsewhere: in one partition, or in all. What was fetched ahead is let go."""
        self._plan.check("seek")
        frame: Frame = {"op": "seek", "to": start_of(start)}
        if partition is not None:
            frame["partition"] = partition

        def moved(result: Frame) -> None:
            positions = positions_of(result)
            if partition is not None:
                # The others stay where this side is, which is behind where the broker has read.
                positions = {partition: positions[partition]}
            self._positions.update(positions)
            self._ready = deque(m for m in self._ready if m.partition not in positions)
            for each in positions:
                self._acked.pop(each, None)
            self._uncredited = -len(self._ready)

        await self._ask(frame, on_result=moved)

    async def close(self) -> None:
        """Send what was acknowledged, and end. Iterators of it end too."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._error is None:
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await self._settler.flush()
                    if self._is_attached.is_set():
                        frame = {"op": "unsubscribe", "subscription": self._number}
                        await self._link.ask(frame, is_bound=True)
            except (MillstreamError, TimeoutError) as error:
                log.info("the end of a subscription to %s was not told: %s", self.topic, error)
        self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # What the link calls.

    def deliver(self, frame: Frame) -> None:
        if "messages" in frame:
            if self._is_attached.is_set():
                self._backoff.reset()
                messages = [AsyncMessage(self, delivered(each)) for each in frame["messages"]]
                self._ready.extend(self._without_settled(messages) if self._settled else messages)
        elif "skipped" in frame:
            gap = frame["skipped"]
            self.skipped_count += gap["to"] - gap["from"]
            log.warning(
                "topic %s partition %d: offsets %d to %d were deleted before they were read",
                *(self.topic, gap["partition"], gap["from"], gap["to"] - 1),
            )
        elif "assigned" in frame:
            self._on_assigned(frame["assigned"])
        elif "error" in frame:
            error = failure_of(frame["error"])
            if is_passing(error):
                self._interrupt(error)
            else:
                self.fail(error)
        self._wake()

    def _on_assigned(self, numbers: list[int]) -> None:
        """The group has assigned partitions: of others nothing is handed out any more."""
        self.assigned = tuple(numbers)
        kept = deque(message for message in self._ready if message.partition in numbers)
        self._uncredited += len(self._ready) - len(kept)
        self._ready = kept
        for number in [each for each in self._acked if each not in numbers]:
            del self._acked[number]

    async def attach(self) -> None:
        if self._is_interrupted:
            self._is_interrupted = False
            await asyncio.sleep(self._backoff.next_s())
        while True:
            try:
                await self._attach_once()
                return
            except AnswerLost:
                return  # A new connection attaches anew.
            except Conflict as error:
                # The broker may not have noticed yet that our connection before this one is gone.
                if self.attachment == 0:
                    self.fail(error)
                    return
            except MillstreamError as error:
                if self.attachment == 0 or not is_passing(error):
                    self.fail(error)
                    return
            await asyncio.sleep(self._backoff.next_s())

    def detached(self) -> None:
        self._is_attached.clear()
        self._is_interrupted = False

    def _interrupt(self, error: MillstreamError) -> None:
        """As if the connection were lost: attach again, after a while."""
        if self._is_attached.is_set():
            log.warning("a subscription to %s was interrupted: %s", self.topic, error)
            self._is_attached.clear()
            self._is_interrupted = True
            self._link.attach_again(self)

    def fail(self, error: MillstreamError) -> None:
        if self._error is None:
            self._error = error
        self._link.leave(self._number)
        self._settling.cancel()
        self._settler.fail(self._error)
        # Whoever waits for it to be attached looks at the error first.
        self._is_attached.set()
        self._wake()

    async def _attach_once(self) -> None:
        steps = self._plan.steps(self._positions, is_first=self.attachment == 0)
        for place, step in enumerate(steps, start=1):
            on_result = self._attached if place == len(steps) else None
            if step["op"] == "seek":
                frame = {**step, "subscription": self._number}
                await self._link.ask(frame, is_bound=True, on_result=on_result)
                continue
            # The subscription has the number of the request that makes it.
            result = await self._link.ask(
                step, number=self._number, is_bound=True, on_result=on_result
            )
            if self._is_other_topic(result):
                log.warning("topic %s was deleted and created again: from its start", self.topic)
                steps[-1]["to"] = "earliest"
                self._positions.clear()
                self._acked.clear()

    def _is_other_topic(self, result: Frame) -> bool:
        """Whether another topic has the name now than when it was attached last."""
        before, self._topic_id = self._topic_id, result.get("topic_id")
        return before not in {None, self._topic_id}

    def _attached(self, result: Frame) -> None:
        """From here on deliveries count. What was fetched ahead before will come again."""
        if "positions" in result:
            self._positions.update(positions_of(result))
        self._ready.clear()
        self._uncredited = 0
        if self._plan.is_shared:
            self._acked.clear()
        self._settled = self._settler.unanswered() if self.is_queue else set()
        self.attachment += 1
        self._is_attached.set()

    async def _until_attached(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._is_attached.wait()
        except TimeoutError:
            timeout_ms = round(self._timeout_s * 1000)
            raise TimedOut(operation="subscribe", timeout_ms=timeout_ms) from None

    async def _until_ready(self) -> None:
        while not self._ready and not self._is_closed:
            if self._error is not None:
                if isinstance(self._error, ClientClosed):
                    return
                raise self._error
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    def _hand_out(self) -> AsyncMessage:
        message = self._ready.popleft()
        if self._plan.has_credit:
            self._positions[message.partition] = message.offset + 1
            self._uncredited += 1
            if self._uncredited >= self._plan.credit_messages:
                frame = {"op": "credit", "subscription": self._number}
                self._link.tell({**frame, "messages": self._uncredited})
                self._uncredited = 0
        return message

    def _without_settled(self, messages: list[AsyncMessage]) -> list[AsyncMessage]:
        kept = [each for each in messages if each.id not in self._settled]
        self._settled.difference_update(each.id for each in messages)
        return kept

    def _is_covered(self, message: Received) -> bool:
        """Whether it was acknowledged with a later one: going back would forget that one."""
        if message.offset < self._acked.get(message.partition, 0):
            return True
        self._acked[message.partition] = message.offset + 1
        return False

    def _settle(self, messages: Iterable[Received], what: Settlement) -> Settled:
        self._plan.check(what.operation)
        for message in messages:
            self._settler.add(what, message.id)
        return self._settler.latest

    async def _ask(self, frame: Frame, *, on_result: Answered | None = None) -> Frame:
        """Until it is answered, over as many connections as that takes."""
        frame = {**frame, "subscription": self._number}
        backoff = Backoff(first_s=_FIRST_RETRY_S, limit_s=_RETRY_LIMIT_S)
        waited_s = 0.0
        while True:
            await self._until_attached()
            if self._error is not None:
                raise self._error
            try:
                return await self._link.ask(frame, is_bound=True, on_result=on_result)
            except AnswerLost:
                continue
            except MillstreamError as error:
                if not is_passing(error) or waited_s >= self._timeout_s:
                    raise
            # A broker that stops answers so until it hangs up.
            pause_s = backoff.next_s()
            waited_s += pause_s
            await asyncio.sleep(pause_s)

    def _end(self) -> None:
        self._is_closed = True
        self._settling.cancel()
        self._link.leave(self._number)
        # What was fetched ahead from a queue is given to others.
        self._ready.clear()
        self._settler.fail(ClientClosed(what=f"subscription to {self.topic!r}"))
        self._wake()
