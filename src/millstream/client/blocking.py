"""A client for programs without an event loop: `with connect(url) as broker: ...`

The same shape as the asynchronous one, which does the work on a thread of its own. Any number of
threads may share it. Every call returns when it is answered. Guide: docs/guides/python_client.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self, Unpack

from millstream.client.asynchronous import connect_async
from millstream.client.blocking_administration import Groups, Queues, Topics
from millstream.client.blocking_subscription import Subscription
from millstream.client.frames import Start
from millstream.client.loop_thread import LoopThread
from millstream.client.messages import Data, HeadersLike, Moment, NewMessage, Sent, Span
from millstream.client.options import DEFAULT_URL, Options
from millstream.client.plan import QueueType


class Connection:
    """A connection to a broker. Made by `connect`."""

    def __init__(self, url: str, options: Options) -> None:
        connecting = connect_async(url, **options)
        self.url = url
        self._thread = LoopThread()
        try:
            self._connection = self._thread.call(connecting.open())
        except BaseException:
            self._thread.close()
            raise
        self.topics = Topics(self._thread, self._connection.topics)
        self.groups = Groups(self._thread, self._connection.groups)
        self.queues = Queues(self._thread, self._connection.queues)

    @property
    def is_connected(self) -> bool:
        """Whether the broker is there. What is asked while it is not waits for it."""
        return self._connection.is_connected

    def send(
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
        return self._thread.call(
            self._connection.send(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp=timestamp,
                deliver_after=deliver_after,
                deliver_at=deliver_at,
            )
        )

    def send_many(self, topic: str, values: Iterable[Data | NewMessage | None]) -> list[Sent]:
        """Send messages, in order; return when all are on the broker's disk.

        Raises PartlySent if some of them were refused, and what `send` raises.
        """
        return self._thread.call(self._connection.send_many(topic, list(values)))

    def subscribe(
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
    ) -> Subscription:
        """Receive messages of a topic.

        Alone or with a `cursor`: all of them, from `start` on, or from where the cursor was moved
        by acknowledgements. As a member of a `group`: those of the partitions that the group
        assigns to it, from where the group has acknowledged. With the name of a `subscription`: as
        a queue, whose messages its consumers share and acknowledge one by one.
        """
        begun = self._thread.call(
            self._connection.subscribe(
                topic,
                start=start,
                group=group,
                cursor=cursor,
                subscription=subscription,
                type=type,
                partitions=partitions,
                consumer=consumer,
                prefetch=prefetch,
                create=create,
            )
        )
        return Subscription(self._thread, begun)

    def close(self) -> None:
        """Bring out what was sent and acknowledged, then end. May be called twice."""
        if not self._thread.is_closed:
            try:
                self._thread.call(self._connection.close())
            finally:
                self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(url: str = DEFAULT_URL, **options: Unpack[Options]) -> Connection:
    """Connect to the broker whose HTTP door is at an address.

    `with connect() as broker:` closes it at the end. Raises ValueError for a bad address or
    option, Unreachable if nobody answers.
    """
    return Connection(url, options)
