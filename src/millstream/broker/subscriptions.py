"""Subscriptions: every use case of topics as queues.

What happens to messages is decided by pure code (`subscriptions.partition_queue`). This finds the
subscription, reads and stores for it, keeps its time, and answers.

Invariant: an acknowledgement or a refusal is answered when it is on disk. No message is forgotten
before it is acknowledged, deleted from its log, or on disk among the dead letters.
After a crash: `start` replays the log. What was acknowledged stays so; all else is delivered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any

from millstream.broker.dead_letters import DeadLetters
from millstream.broker.message_ids import message_id_of, places_of
from millstream.broker.reading import Reader
from millstream.broker.sending import Sender
from millstream.broker.state_log import StateLog
from millstream.broker.steady_clock import SteadyClock
from millstream.broker.subscription_consumer import Consumer, check_whole
from millstream.broker.subscription_description import SubscriptionDescription, describe
from millstream.broker.subscription_host import Delivery, HostedSubscription, Tools, Waiter
from millstream.broker.subscription_store import Name, Part, Replayed, SubscriptionStore
from millstream.broker.topics import Topic, Topics
from millstream.clock import Clock
from millstream.errors import (
    InvalidName,
    InvalidSetting,
    LimitReached,
    MillstreamError,
    NotInFlight,
    SubscriptionConflict,
    Unavailable,
    UnknownSubscription,
    UnknownTopic,
)
from millstream.records.record import Headers
from millstream.settings.domain import INT_MAX
from millstream.settings.subscriptions import SubscriptionLimits
from millstream.subscriptions.delivery_time import delay_headers
from millstream.subscriptions.partition_queue import NOBODY
from millstream.subscriptions.progress import Head, Progress
from millstream.subscriptions.subscription import (
    EARLIEST,
    LATEST,
    SubscriptionSettings,
    SubscriptionType,
    check_subscription_name,
    dead_letter_topic,
)

__all__ = [
    "Consumer",
    "Delivery",
    "SubscriptionDescription",
    "SubscriptionSettings",
    "Subscriptions",
]

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
_LOOK_S = 1.0
_STEP_MS = 250
"""By how much the wall clock may drift before dates are judged again."""

# Where a method is called list, the type needs another name.
Ids = list[str]


class Subscriptions:
    """All subscriptions of the broker. Lives on the event loop."""

    def __init__(
        self,
        state_log: StateLog,
        topics: Topics,
        sender: Sender,
        reader: Reader,
        *,
        limits: SubscriptionLimits,
        clock: Clock,
    ) -> None:
        self._topics = topics
        # No message is out of time because somebody sets the machine's clock.
        self._clock = SteadyClock(clock)
        self._wall = clock
        self._store = SubscriptionStore(state_log, self._clock)
        self._dead_letters = DeadLetters(topics, sender, reader, self._store)
        self._tools = Tools(reader, self._store, limits, self._clock, clock, self._bury)
        self._hosted: dict[Name, HostedSubscription] = {}
        self._under_way: set[asyncio.Task[Any]] = set()
        self._last_consumer = NOBODY
        self._is_closed = False

    # Life

    def reconfigure(self, limits: SubscriptionLimits) -> None:
        """What is over a new limit stays; no more comes to it."""
        self._tools.limits = limits

    async def start(self) -> None:
        """Bring back what the log holds. Call once, first, when all topics are known."""
        orphans = []
        for name, stored in self._store.replayed().items():
            try:
                topic = self._topics.get(name[0])
            except UnknownTopic:
                # A crash came between the end of the topic and that of its subscriptions.
                orphans.append((name, stored.parts()))
                continue
            self._host(topic, name[1], stored)
        # Durable before anyone can create a topic of such a name.
        self._store.delete(orphans)
        await self._store.settled()
        self._topics.on_changed.append(self._topic_changed)
        self._topics.on_deleted.append(self._topic_gone)
        self._topics.forgetting.append(self._topic_deleted)

    def _host(self, topic: Topic, name: str, stored: Replayed) -> None:
        hosted = HostedSubscription(topic, name, stored.settings, self._tools, stored.progress)
        for queue, partition in zip(hosted.queues, topic.partitions, strict=True):
            # A crash may have cut the log: what comes to lie there now is new.
            if partition.failure is None and queue.progress.cut(partition.log.end_offset):
                queue.position = queue.progress.floor
                self._store.touch(hosted)
        self._hosted[hosted.full_name] = hosted

    async def run(self) -> None:
        """Find out what is for later where nobody receives, until cancelled."""
        ahead_ms = self._clock.wall_ahead_ms
        while True:
            stepped_ms = self._clock.wall_ahead_ms - ahead_ms
            if abs(stepped_ms) >= _STEP_MS:
                ahead_ms += stepped_ms
                self._on_clock_set(stepped_ms)
            for hosted in tuple(self._hosted.values()):
                is_more = True
                while is_more:
                    is_more = hosted.look_ahead()
                    # Other work comes first, however much there is.
                    await asyncio.sleep(0)
            await asyncio.sleep(_LOOK_S)

    def _on_clock_set(self, stepped_ms: int) -> None:
        _log.warning(
            "the wall clock was set %(direction)s by %(ms)d ms: messages with deliver_at follow it",
            {"direction": "ahead" if stepped_ms > 0 else "back", "ms": abs(stepped_ms)},
        )
        for hosted in self._hosted.values():
            hosted.on_clock_set()

    def delay_headers(self, delay_ms: int) -> Headers:
        """Headers of a message that subscriptions deliver after a delay from now."""
        return delay_headers(
            delay_ms,
            wall_ms=self._wall.now_ms(),
            steady_ms=self._clock.now_ms(),
            started_ms=self._clock.started_ms,
        )

    async def close(self) -> None:
        """Send all who wait away, and return when nothing is under way."""
        self._is_closed = True
        self._store.close()
        for hosted in self._hosted.values():
            hosted.end(Unavailable())
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # Creating and deleting

    async def create(
        self, topic: str, name: str, settings: SubscriptionSettings | None = None
    ) -> None:
        """Create a subscription; one that is there must be of the same settings.

        Creates the topic if that is allowed. Raises UnknownTopic, InvalidName, InvalidSetting,
        SubscriptionConflict, Unavailable.
        """
        settings = settings or SubscriptionSettings()
        check_subscription_name(name)
        dead_letter_topic(topic, settings)
        found = await self._topic(topic)
        hosted = self._hosted.get((topic, name))
        if hosted is None:
            self._create(found, name, settings)
        elif hosted.settings != settings:
            raise SubscriptionConflict(
                topic=topic, name=name, reason="exists, and has other settings"
            )
        # Durable: from here on the subscription is there after any crash.
        await self._store.settled()

    async def _topic(self, name: str) -> Topic:
        self._check_open()
        try:
            topic = self._topics.get(name)
        except UnknownTopic:
            if not self._topics.settings.auto_create:
                raise
            topic = await self._topics.ensure(name)
        if topic.is_internal:
            raise InvalidName(kind="topic", name=name, expected="a topic that is not the broker's")
        return topic

    def _create(self, topic: Topic, name: str, settings: SubscriptionSettings) -> None:
        limit = self._tools.limits.max_count
        if len(self._hosted) >= limit:
            setting = "subscription.max.count"
            raise LimitReached(kind="subscriptions", limit=limit, setting=setting)
        floors = _floors(topic, settings.start)
        self._store.create((topic.name, name), settings, floors)
        hosted = HostedSubscription(
            topic,
            name,
            settings,
            self._tools,
            lambda number: Progress(Head(floors.get(number, 0))),
        )
        self._hosted[hosted.full_name] = hosted

    async def delete(self, topic: str, name: str) -> None:
        """Durably forget a subscription. Raises UnknownSubscription, Unavailable."""
        hosted = self.find(topic, name)
        self._store.delete([_parts(hosted)])
        del self._hosted[hosted.full_name]
        hosted.end(UnknownSubscription(topic, name))
        await self._store.settled()

    # Receiving

    def attach(
        self, topic: str, name: str, consumer_name: str, *, max_in_flight: int = 1000
    ) -> Consumer:
        """A consumer that stands until it is detached.

        Raises UnknownSubscription, and SubscriptionConflict for the second of an exclusive one.
        """
        hosted = self.find(topic, name)
        if max_in_flight < 1:
            raise InvalidSetting(
                name="max_in_flight", value=max_in_flight, expected="a whole number from 1"
            )
        if hosted.settings.type == SubscriptionType.EXCLUSIVE and hosted.consumers:
            [other] = hosted.consumers.values()
            raise SubscriptionConflict(
                topic=topic, name=name, reason=f"is exclusive, and {other!r} has it"
            )
        self._last_consumer += 1
        hosted.join(self._last_consumer, consumer_name)
        return Consumer(self, hosted, self._last_consumer, consumer_name, max_in_flight)

    async def receive(
        self,
        topic: str,
        name: str,
        max_messages: int,
        wait_ms: int,
        *,
        timeout_ms: int | None = None,
    ) -> list[Delivery]:
        """Messages of a shared subscription, without a consumer; none if there are none in time.

        They must be acknowledged within `timeout_ms`, or the subscription's own timeout.
        Raises UnknownSubscription, SubscriptionConflict, InvalidSetting.
        """
        hosted = self.find(topic, name)
        if hosted.settings.type != SubscriptionType.SHARED:
            raise SubscriptionConflict(
                topic=topic,
                name=name,
                reason=f"is {hosted.settings.type}: attach a consumer to receive from it",
            )
        check_whole("max_messages", max_messages)
        if timeout_ms is not None:
            check_whole("timeout_ms", timeout_ms)
        waiter = Waiter(NOBODY, max_messages, max_in_flight=max_messages, timeout_ms=timeout_ms)
        return await hosted.receive(waiter, wait_ms)

    # Settling

    async def ack(self, topic: str, name: str, message_ids: Iterable[str]) -> Ids:
        """Messages are done; answered when that is on disk. Raises InvalidMessageId.

        Whoever has them, and whether they were delivered or not: after a restart of the broker
        nobody could tell. Returns those that were done before.
        """
        return await self.acknowledge(self.find(topic, name), message_ids)

    async def nack(
        self,
        topic: str,
        name: str,
        message_ids: Iterable[str],
        delay_ms: int | None = None,
        reason: str = "",
    ) -> Ids:
        """Messages are to be delivered again, after a while. Raises InvalidMessageId.

        Returns those that are in nobody's hands, to which nothing happens.
        """
        return await self.refuse(
            self.find(topic, name), message_ids, None, delay_ms=delay_ms, reason=reason
        )

    async def extend(
        self, topic: str, name: str, message_ids: Iterable[str], timeout_ms: int
    ) -> None:
        """Give messages more time, from now. Raises NotInFlight, InvalidMessageId."""
        self.prolong(self.find(topic, name), message_ids, None, timeout_ms)

    async def acknowledge(self, hosted: HostedSubscription, message_ids: Iterable[str]) -> Ids:
        """`ack` of a subscription that was found."""
        self.check_alive(hosted)
        were_done: Ids = []
        for number, offsets in places_of(hosted, message_ids).items():
            done = hosted.queues[number].acknowledge(offsets)
            were_done += [message_id_of(number, offset) for offset in done]
        self._store.touch(hosted)
        hosted.wake_waiters()
        await self._store.settled()
        return were_done

    async def refuse(
        self,
        hosted: HostedSubscription,
        message_ids: Iterable[str],
        consumer: int | None,
        *,
        delay_ms: int | None,
        reason: str,
    ) -> Ids:
        """`nack` of a subscription that was found; with a consumer, of what it has."""
        self.check_alive(hosted)
        if delay_ms is not None and not 0 <= delay_ms <= INT_MAX:
            expected = f"a whole number from 0 to {INT_MAX}"
            raise InvalidSetting(name="delay_ms", value=delay_ms, expected=expected)
        now_ms = self._clock.now_ms()
        missing: Ids = []
        for number, offsets in places_of(hosted, message_ids).items():
            gone = hosted.queues[number].refuse(
                offsets, now_ms, consumer=consumer, delay_ms=delay_ms, reason=reason or "refused"
            )
            missing += [message_id_of(number, offset) for offset in gone]
        self._store.touch(hosted)
        hosted.wake()
        await self._store.settled()
        return missing

    def prolong(
        self,
        hosted: HostedSubscription,
        message_ids: Iterable[str],
        consumer: int | None,
        timeout_ms: int,
    ) -> None:
        """`extend` of a subscription that was found; with a consumer, of what it has."""
        self.check_alive(hosted)
        check_whole("timeout_ms", timeout_ms)
        now_ms = self._clock.now_ms()
        missing: list[str] = []
        for number, offsets in places_of(hosted, message_ids).items():
            gone = hosted.queues[number].extend(offsets, now_ms, timeout_ms, consumer=consumer)
            missing += [message_id_of(number, offset) for offset in gone]
        hosted.wake()
        if missing:
            raise NotInFlight(missing)

    # What happens to topics

    def _topic_changed(self, topic: Topic) -> None:
        for hosted in self._of_topic(topic.name):
            hosted.grow()

    def _topic_gone(self, topic: Topic) -> None:
        for hosted in self._of_topic(topic.name):
            hosted.end(UnknownTopic(topic.name))

    async def _topic_deleted(self, name: str) -> None:
        """Durably forget the subscriptions of a topic that is gone. Raises Unavailable."""
        gone = self._of_topic(name)
        self._store.delete([_parts(hosted) for hosted in gone])
        for hosted in gone:
            hosted.end(UnknownTopic(name))
            del self._hosted[hosted.full_name]
        await self._store.settled()

    def _of_topic(self, name: str) -> Sequence[HostedSubscription]:
        return [hosted for hosted in self._hosted.values() if hosted.topic.name == name]

    # What there is

    def list(self, topic: str | None = None) -> list[SubscriptionDescription]:
        """All subscriptions, or those of one topic. Raises UnknownTopic."""
        if topic is not None:
            self._topics.get(topic)
        return [
            describe(hosted)
            for (of_topic, _), hosted in sorted(self._hosted.items())
            if topic in {None, of_topic}
        ]

    def described(self) -> Iterator[SubscriptionDescription]:
        """All subscriptions, one after the other: whoever goes through them may pause between."""
        return (describe(each) for each in tuple(self._hosted.values()) if not each.is_gone)

    def describe(self, topic: str, name: str) -> SubscriptionDescription:
        """Raises UnknownTopic, UnknownSubscription."""
        return describe(self.find(topic, name))

    # How it is done

    def find(self, topic: str, name: str) -> HostedSubscription:
        """Raises UnknownTopic, UnknownSubscription, Unavailable."""
        self._check_open()
        hosted = self._hosted.get((topic, name))
        if hosted is None or hosted.is_gone:
            self._topics.get(topic)
            raise UnknownSubscription(topic, name)
        self._check_topic(hosted.topic)
        return hosted

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable

    def _check_topic(self, topic: Topic) -> None:
        if self._topics.get(topic.name) is not topic:
            raise UnknownTopic(topic.name)

    def check_alive(self, hosted: HostedSubscription) -> None:
        """Raises UnknownSubscription, Unavailable."""
        self._check_open()
        if hosted.is_gone:
            raise UnknownSubscription(*hosted.full_name)

    def _bury(self, hosted: HostedSubscription) -> None:
        hosted.is_burying = True

        def end(burial: asyncio.Task[Any]) -> None:
            if burial.cancelled() or burial.exception() is None:
                hosted.end_burial()
            else:
                # A defect, which may come again: not all the time.
                asyncio.get_running_loop().call_later(_RETRY_S, hosted.end_burial)

        self._begin(self._dead_letters.bury(hosted)).add_done_callback(end)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._settle)
        return task

    def _settle(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, MillstreamError):
            # A defect: who asked hears of it too, unless they are gone.
            _log.error("a subscription failed", exc_info=failure)


def _floors(topic: Topic, start: str | int) -> dict[int, int]:
    """Where a new subscription begins, by partition."""
    floors = {}
    for number, partition in enumerate(topic.partitions):
        if partition.failure is not None:
            continue
        log = partition.log
        if start == EARLIEST:
            floors[number] = log.start_offset
        elif start == LATEST:
            floors[number] = log.last_stable_offset
        else:
            floors[number] = min(max(int(start), log.start_offset), log.end_offset)
    return floors


def _parts(hosted: HostedSubscription) -> tuple[Name, list[Part]]:
    return hosted.full_name, [
        (number, queue.progress.blocks()) for number, queue in enumerate(hosted.queues)
    ]
