"""A client for programs with an event loop: `async with connect_async(url) as broker: ...`

One connection carries everything. It is opened again when it breaks: subscriptions go on where they
were, what had not left yet is sent, and what had left without an answer is repeated only if
`retries` allows it. Guide: docs/guides/python_client.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from millstream.client.frames import Start
from millstream.client.groups import AsyncGroups
from millstream.client.link import Link
from millstream.client.messages import (
    Data,
    HeadersLike,
    Moment,
    NewMessage,
    Sent,
    Span,
    outgoing,
)
from millstream.client.options import DEFAULT_URL, ClientSettings, Options, socket_url
from millstream.client.plan import GroupPlan, LogPlan, Plan, QueuePlan, QueueType
from millstream.client.queues import AsyncQueues
from millstream.client.rest import Rest
from millstream.client.sending import Sender
from millstream.client.subscription import AsyncSubscription
from millstream.client.topics import AsyncTopics
from millstream.identity import new_name

if TYPE_CHECKING:
    from millstream.client.tracing import ClientTracing


class AsyncConnection:
    """A connection to a broker. Made by `connect_async`; any number of tasks may share it."""

    def __init__(self, url: str, settings: ClientSettings) -> None:
        self.url = url
        self._settings = settings
        self._link = Link(socket_url(url), settings)
        self._tracing = _new_tracing(settings)
        self._sender = _new_sender(self._link, settings, self._tracing)
        self._subscriptions: set[AsyncSubscription] = set()
        self._rest = Rest(url, timeout_s=settings.timeout_s)
        self.topics = AsyncTopics(self._link, self._rest)
        self.groups = AsyncGroups(self._rest)
        self.queues = AsyncQueues(self._rest)

    @property
    def is_connected(self) -> bool:
        """Whether the broker is there. What is asked while it is not waits for it."""
        return self._link.is_connected

    async def open(self) -> None:
        await self._link.open()

    async def send(
        self,
        topic: str,
        value: Data | None,
        *,
        key: Data | None = None,
        headers: HeadersLike | None = None,
        partition: int | None = None,
        timestamp: Moment | None = None,
        deliver_after: Span | None = None,
        deliver_at: Moment | None = None,
    ) -> Sent:
        """Send a message; return when it is on the broker's disk.

        Raises UnknownTopic, MessageTooLarge and other errors that the broker answers; AnswerLost if
        it may be stored or not; TimedOut.
        """
        message = NewMessage(value, key, headers, partition, timestamp, deliver_after, deliver_at)
        return await self._sender.send(topic, outgoing(message))

    async def send_many(self, topic: str, values: Iterable[Data | NewMessage | None]) -> list[Sent]:
        """Send messages, in order; return when all are on the broker's disk.

        Raises PartlySent if some of them were refused, and what `send` raises.
        """
        return await self._sender.send_many(topic, list(map(outgoing, values)))

    async def subscribe(
        self,
        topic: str,
        *,
        start: Start | None = None,
        group: str | None = None,
        cursor: str | None = None,
        subscription: str | None = None,
        type: QueueType | None = None,  # noqa: A002  # Pulsar's word
        partitions: Sequence[int] | None = None,
        consumer: str | None = None,
        prefetch: int | None = None,
        create: bool = True,
    ) -> AsyncSubscription:
        """Receive messages of a topic.

        Alone or with a `cursor`: all of them, from `start` on, or from where the cursor was moved
        by acknowledgements. As a member of a `group`: those of the partitions that the group
        assigns to it, from where the group has acknowledged. With the name of a `subscription`: as
        a queue, whose messages its consumers share and acknowledge one by one.
        """
        prefetch = prefetch or self._settings.prefetch
        plan: Plan
        if sum(name is not None for name in (group, cursor, subscription)) > 1:
            raise ValueError("group=, cursor= and subscription= exclude each other: give one")
        if subscription is None and (type is not None or consumer is not None):
            raise ValueError("type and consumer are for queues: give subscription= too")
        if partitions is not None and (group is not None or subscription is not None):
            raise ValueError("partitions= is for a reader alone: leave group= or subscription= out")
        if group is not None:
            plan = GroupPlan(
                topic=topic,
                group=group,
                member=new_name("millstream"),
                start=start,
                prefetch=prefetch,
                create=create,
            )
        elif subscription is None:
            plan = LogPlan(
                topic=topic,
                start=start,
                cursor=cursor,
                partitions=partitions,
                prefetch=prefetch,
                create=create,
            )
        else:
            plan = QueuePlan(
                topic=topic,
                name=subscription,
                type=type,
                start=start,
                consumer=consumer,
                prefetch=prefetch,
            )
        begun = AsyncSubscription(
            self._link, plan, timeout_s=self._settings.timeout_s, tracing=self._tracing
        )
        await begun.begin()
        self._subscriptions = {each for each in self._subscriptions if not each.is_closed}
        self._subscriptions.add(begun)
        return begun

    async def close(self) -> None:
        """Bring out what was sent and acknowledged, then end. May be called twice."""
        for subscription in list(self._subscriptions):
            await subscription.close()
        self._subscriptions.clear()
        await self._link.close()
        await self._rest.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _new_tracing(settings: ClientSettings) -> ClientTracing | None:
    if settings.tracing is False:
        return None
    from millstream.client.tracing import ClientTracing

    return ClientTracing(None if settings.tracing is True else settings.tracing)


def _new_sender(link: Link, settings: ClientSettings, tracing: ClientTracing | None) -> Sender:
    most, retries = settings.max_unanswered, settings.retries
    if tracing is None:
        return Sender(link, max_unanswered=most, retries=retries)
    from millstream.client.tracing import TracedSender

    return TracedSender(link, tracing, max_unanswered=most, retries=retries)


class Connecting:
    """What `connect_async` returns: to be awaited, or to be entered."""

    def __init__(self, url: str, settings: ClientSettings) -> None:
        self._url = url
        self._settings = settings
        self._connection: AsyncConnection | None = None

    def __await__(self) -> Generator[Any, None, AsyncConnection]:
        return self.open().__await__()

    async def __aenter__(self) -> AsyncConnection:
        self._connection = await self.open()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        assert self._connection is not None
        await self._connection.close()

    async def open(self) -> AsyncConnection:
        connection = AsyncConnection(self._url, self._settings)
        await connection.open()
        return connection


def connect_async(url: str = DEFAULT_URL, **options: Unpack[Options]) -> Connecting:
    """Connect to the broker whose HTTP door is at an address.

    `async with connect_async() as broker:` closes it at the end; `await connect_async()` leaves
    that to you. Raises ValueError for a bad address or option, Unreachable if nobody answers.
    """
    socket_url(url)
    return Connecting(url, ClientSettings(**options))
