"""One subscription at work: its queues, its consumers, and those who wait for messages.

Invariant: whoever waits has got nothing; while somebody does, an append to the topic wakes this.
There is a timer at or before the next thing that time brings.
After a crash: nobody waits, and nothing is in flight; see `progress`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from millstream.broker.partition import Partition
from millstream.broker.reading import Reader
from millstream.broker.steady_clock import SteadyClock
from millstream.broker.subscription_reading import MOST_WORK, fill, has_unread, look_ahead
from millstream.broker.subscription_store import Name, SubscriptionStore
from millstream.broker.topics import Topic
from millstream.clock import Clock
from millstream.errors import MillstreamError
from millstream.records import Record
from millstream.records.record import Headers, content_bytes
from millstream.settings.subscriptions import SubscriptionLimits
from millstream.subscriptions.lanes import Lanes
from millstream.subscriptions.partition_queue import NOBODY, PartitionQueue, Tally
from millstream.subscriptions.progress import Head, Progress
from millstream.subscriptions.subscription import SubscriptionSettings, SubscriptionType

_log = logging.getLogger(__name__)

_RETRY_MS = 1000
"""After a partition that could not be read."""
_MOST_DUE = 2000
"""What the time brings is done in pieces of so many."""
ANSWER_BYTES = 10 << 20
"""Nobody is given more at once, but for a single message that is larger."""
_IDLE_MS = 10_000
"""After this time without anyone who receives, what was read ahead is dropped."""


class Delivery(NamedTuple):
    """A message, as it is handed out."""

    message_id: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    delivery_count: int


@dataclass(slots=True)
class Tools:
    """What every subscription works with. Only the limits may become others."""

    reader: Reader
    store: SubscriptionStore
    limits: SubscriptionLimits
    clock: SteadyClock
    wall: Clock
    bury: Callable[[HostedSubscription], None]
    """Sees to it that the dead are sent to the dead letters."""
    queues: int = 0
    """How many there are, of all subscriptions: they share the memory for what is read ahead."""


class Waiter:
    """Somebody who waits for messages."""

    __slots__ = (
        "answer",
        "consumer",
        "is_patient",
        "limit",
        "max_bytes",
        "max_in_flight",
        "timeout_ms",
    )

    def __init__(
        self,
        consumer: int,
        limit: int,
        *,
        max_in_flight: int,
        timeout_ms: int | None,
        max_bytes: int = ANSWER_BYTES,
    ) -> None:
        self.consumer = consumer
        self.limit = limit
        self.max_bytes = max_bytes
        self.max_in_flight = max_in_flight
        self.timeout_ms = timeout_ms
        self.is_patient = True
        """False for one who takes what there is, once all that there is was looked at."""
        self.answer: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()


class HostedSubscription:
    """A subscription, and what runs it."""

    def __init__(
        self,
        topic: Topic,
        name: str,
        settings: SubscriptionSettings,
        tools: Tools,
        progress_of: Callable[[int], Progress],
    ) -> None:
        self.topic = topic
        self.name = name
        self.settings = settings
        self.tally = Tally()
        self.consumers: dict[int, str] = {}
        """By number, in the order in which they came, what they are called."""
        self.is_gone = False
        self.is_burying = False
        self.replaying = asyncio.Lock()
        """Held by who sends dead letters back: two at once would send the same ones."""
        self.failure: MillstreamError | None = None
        """Why a partition could not be read when that was last tried."""
        self._tools = tools
        self._lanes = Lanes() if settings.type == SubscriptionType.KEY_SHARED else None
        self.queues: list[PartitionQueue] = []
        self._waiters: dict[Waiter, None] = {}
        self._listening: list[Partition] = []
        self._turn = 0
        self._is_called = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._last_used = 0.0
        for number in range(len(topic.partitions)):
            self._add_queue(progress_of(number))

    @property
    def full_name(self) -> Name:
        return self.topic.name, self.name

    @property
    def receivers(self) -> int:
        """How many wait for messages."""
        return len(self._waiters)

    def _add_queue(self, progress: Progress) -> None:
        lane_of = None if self._lanes is None else self._lanes.lane_of
        self._tools.queues += 1
        started_ms = self._tools.clock.started_ms
        self.queues.append(
            PartitionQueue(self.settings, progress, self.tally, lane_of, started_ms=started_ms)
        )

    def grow(self) -> None:
        """The topic may have more partitions."""
        for _ in range(len(self.queues), len(self.topic.partitions)):
            # Whatever is in there came after the subscription.
            self._add_queue(Progress(Head(0)))
        if self._waiters:
            self._listen()
            self.wake()

    # Consumers

    def join(self, consumer: int, name: str) -> None:
        self.consumers[consumer] = name
        self._rearrange()

    def leave(self, consumer: int) -> None:
        """What it has is delivered to others at once."""
        if self.consumers.pop(consumer, None) is None or self.is_gone:
            return
        for waiter in [w for w in self._waiters if w.consumer == consumer]:
            self._answer(waiter, [])
        for queue in self.queues:
            queue.release(consumer)
        self.tally.by_consumer.pop(consumer, None)
        self._rearrange()
        self._tools.store.touch(self)
        self.wake()

    def is_active(self, consumer: int) -> bool:
        """Whether a consumer is one that gets messages."""
        if self.settings.type in {SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER}:
            return next(iter(self.consumers), None) == consumer
        return True

    def _rearrange(self) -> None:
        if self._lanes is not None:
            self._lanes.change(list(self.consumers))
            for queue in self.queues:
                queue.ready.rearrange()
            self.wake()

    # Receiving

    async def receive(self, waiter: Waiter, wait_ms: int) -> list[Delivery]:
        """Messages as soon as there are any; none after a time. Raises MillstreamError."""
        self._last_used = asyncio.get_running_loop().time()
        self._waiters[waiter] = None
        waiter.is_patient = wait_ms > 0
        try:
            self.serve()
            if not waiter.answer.done():
                self._listen()
                timeout_s = wait_ms / 1000 if wait_ms > 0 else None
                await asyncio.wait([waiter.answer], timeout=timeout_s)
        except asyncio.CancelledError:
            self._give_back(waiter)
            raise
        finally:
            self._forget(waiter)
        if waiter.answer.done():
            return waiter.answer.result()
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        return []

    def _give_back(self, waiter: Waiter) -> None:
        """Whoever waited has hung up."""
        if waiter.answer.done() and waiter.answer.exception() is None:
            self.undo(waiter.answer.result())

    def undo(self, deliveries: Iterable[Delivery]) -> None:
        """Messages have reached nobody: it is as if they had not been received."""
        if not self.is_gone:
            for delivery in deliveries:
                self.queues[delivery.partition].undo([delivery.offset])
            self.wake()

    def _answer(self, waiter: Waiter, deliveries: list[Delivery]) -> None:
        if not waiter.answer.done():
            waiter.answer.set_result(deliveries)
        self._forget(waiter)

    def _forget(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)
        if not self._waiters:
            self._stop_listening()

    def _listen(self) -> None:
        for partition in self.topic.partitions[len(self._listening) :]:
            partition.waiters[self] = None
            self._listening.append(partition)

    def _stop_listening(self) -> None:
        for partition in self._listening:
            partition.waiters.pop(self, None)
        self._listening.clear()

    # Running

    def wake_waiters(self) -> None:
        """Some may get more now."""
        if self._waiters:
            self.wake()

    def wake(self) -> None:
        """Look soon what there is to do: once, however much happens until then."""
        if not self._is_called and not self.is_gone:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._on_call)

    def _on_call(self) -> None:
        self._is_called = False
        self.serve()

    def serve(self) -> None:
        """Let time do what it does, and give those who wait what there is."""
        if self.is_gone:
            return
        now_ms, wall_ms = self._tools.clock.now_ms(), self._tools.wall.now_ms()
        is_more_due = not self._tick(now_ms, wall_ms)
        if is_more_due:
            self.wake()
        if self._waiters:
            # While some are out of time nothing is handed out: they are older than what is ready.
            if not any(queue.is_out_of_time(now_ms) for queue in self.queues):
                self._serve_waiters(now_ms, wall_ms, is_more_due=is_more_due)
        elif asyncio.get_running_loop().time() >= self._last_used + _IDLE_MS / 1000:
            for queue in self.queues:
                queue.forget_ready()
        if any(queue.progress.has_new_failures for queue in self.queues):
            self._tools.store.touch(self)
        if not self.is_burying and any(queue.dead for queue in self.queues):
            self._tools.bury(self)
        self._set_timer(now_ms, wall_ms)

    def on_clock_set(self) -> None:
        """The wall clock was set: judge again what was sent for a date."""
        for queue in self.queues:
            queue.forget_ready()
        self.wake()

    def _tick(self, now_ms: int, wall_ms: int) -> bool:
        """Let the time do what it does; False if there is more of that."""
        left = _MOST_DUE
        for queue in self.queues:
            left -= queue.tick(now_ms, wall_ms, left)
        return left > 0

    def _serve_waiters(self, now_ms: int, wall_ms: int, *, is_more_due: bool) -> None:
        if self._hand_out(now_ms, wall_ms):
            self.wake()
        elif not is_more_due:
            for waiter in [waiter for waiter in self._waiters if not waiter.is_patient]:
                self._answer(waiter, [])

    def _hand_out(self, now_ms: int, wall_ms: int) -> bool:
        """Give messages to those who wait; True if more is to be read for them."""
        room = self._tools.limits.max_in_flight - self.tally.total
        wants = [
            (waiter, want) for waiter in self._waiters if (want := min(self._want(waiter), room))
        ]
        if not wants or room <= 0:
            return False
        has_read = self._read(min(sum(want for _, want in wants), room), now_ms, wall_ms)
        ready = min(sum(queue.ready_count for queue in self.queues), room)
        is_missing = has_given = False
        for index, (waiter, want) in enumerate(wants):
            share = ready if self._lanes is not None else -(-ready // (len(wants) - index))
            deliveries = self._take(waiter, min(want, share), now_ms) if share else []
            ready -= len(deliveries)
            if deliveries:
                has_given = True
                self._answer(waiter, deliveries)
            else:
                is_missing = True
        # What was given has made room to read more.
        return is_missing and (has_read or has_given)

    def _want(self, waiter: Waiter) -> int:
        """How much somebody may be given."""
        if waiter.consumer == NOBODY:
            return waiter.limit
        if not self.is_active(waiter.consumer):
            return 0
        held = self.tally.by_consumer.get(waiter.consumer, 0)
        return max(min(waiter.limit, waiter.max_in_flight - held), 0)

    def _read(self, wanted: int, now_ms: int, wall_ms: int) -> bool:
        limits = self._tools.limits
        ready = sum(queue.ready_count for queue in self.queues if not queue.is_behind)
        work = skipped = 0
        failure: MillstreamError | None = None
        for number in self._in_turn():
            queue, partition = self.queues[number], self.topic.partitions[number]
            is_behind = queue.is_behind
            if work >= MOST_WORK or (ready >= wanted and self._lanes is None and not is_behind):
                # Another time, when what is ready has been taken.
                skipped += 1
                continue
            before = 0 if is_behind else queue.ready_count
            try:
                if not has_unread(queue, partition):
                    continue
                work += fill(
                    self._tools.reader,
                    queue,
                    partition,
                    read_ahead=limits.read_ahead,
                    queues=self._tools.queues,
                    max_delayed=limits.max_delayed,
                    now_ms=now_ms,
                    wall_ms=wall_ms,
                )
            except MillstreamError as error:
                failure = error
            ready += (0 if queue.is_behind else queue.ready_count) - before
        if failure is not None or not skipped:
            # A partition that was not looked at may still fail.
            self._note(failure)
        return work + skipped > 0

    def look_ahead(self) -> bool:
        """While nobody receives, find some of what is for later; True if there may be more."""
        if self._waiters or self.is_gone:
            return False
        limits = self._tools.limits
        now_ms, wall_ms = self._tools.clock.now_ms(), self._tools.wall.now_ms()
        work = 0
        for queue, partition in zip(self.queues, self.topic.partitions, strict=False):
            # Who receives is told of what cannot be read.
            with suppress(MillstreamError):
                work += look_ahead(
                    self._tools.reader,
                    queue,
                    partition,
                    read_ahead=limits.read_ahead,
                    max_delayed=limits.max_delayed,
                    now_ms=now_ms,
                    wall_ms=wall_ms,
                )
            if work >= MOST_WORK:
                break
        return work > 0

    def _note(self, failure: MillstreamError | None) -> None:
        if failure is not None and self.failure is None:
            _log.error(
                "subscription %(subscription)r of topic %(topic)s: a partition cannot be "
                "read: %(error)s",
                {"subscription": self.name, "topic": self.topic.name, "error": failure},
            )
        self.failure = failure

    def _in_turn(self) -> Iterable[int]:
        """The numbers of the partitions, another one first each time."""
        count = len(self.queues)
        self._turn += 1
        return [(self._turn + number) % count for number in range(count)]

    def _take(self, waiter: Waiter, limit: int, now_ms: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        left_bytes = waiter.max_bytes
        for number in self._in_turn():
            if len(deliveries) >= limit or left_bytes <= 0:
                break
            ready = self.queues[number].ready
            before_bytes = ready.size_bytes
            taken = self.queues[number].take(
                limit - len(deliveries),
                waiter.consumer,
                now_ms,
                timeout_ms=waiter.timeout_ms,
                max_bytes=left_bytes,
            )
            left_bytes -= before_bytes - ready.size_bytes
            deliveries += [self._delivery(number, record, count) for record, count in taken]
        size_bytes = sum(content_bytes(each.key, each.value, each.headers) for each in deliveries)
        self.topic.traffic.sent(len(deliveries), size_bytes)
        return deliveries

    def _delivery(self, number: int, record: Record, count: int) -> Delivery:
        offset, timestamp_ms, key, value, headers = record
        return Delivery(
            f"{number}:{offset}",
            self.topic.name,
            number,
            offset,
            key,
            value,
            headers,
            timestamp_ms,
            count,
        )

    def end_burial(self) -> None:
        """All that were dead are buried; others may have died meanwhile."""
        self.is_burying = False
        self.wake()

    # Time

    def _set_timer(self, now_ms: int, wall_ms: int) -> None:
        delays = [at - now_ms for queue in self.queues if (at := queue.next_ms()) is not None]
        if self._waiters:
            for queue in self.queues:
                if (at := queue.next_delayed_ms()) is not None:
                    delays.append(at - now_ms)
                if (at := queue.next_later_ms()) is not None:
                    delays.append(at - wall_ms)
            if self.failure is not None:
                delays.append(_RETRY_MS)
        elif any(queue.ready_count for queue in self.queues):
            delays.append(_IDLE_MS)
        if not delays:
            return
        loop = asyncio.get_running_loop()
        timer_at = loop.time() + max(min(delays), 1) / 1000
        if self._timer is None or timer_at < self._timer_at:
            self._cancel_timer()
            self._timer_at = timer_at
            self._timer = loop.call_at(timer_at, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        try:
            self.serve()
        except Exception:  # Outer edge of a timer: without it no message would be out of time.
            _log.exception(
                "subscription %(subscription)r: the passing of time went wrong",
                {"subscription": self.name},
            )
            loop = asyncio.get_running_loop()
            self._timer_at = loop.time() + _RETRY_MS / 1000
            self._timer = loop.call_at(self._timer_at, self._on_time)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The end

    def end(self, error: MillstreamError) -> None:
        """Send all who wait away; nothing happens any more."""
        self._tools.queues -= 0 if self.is_gone else len(self.queues)
        self.is_gone = True
        self._cancel_timer()
        self._tools.store.forget(self)
        for waiter in list(self._waiters):
            if not waiter.answer.done():
                waiter.answer.set_exception(error)
            self._forget(waiter)
