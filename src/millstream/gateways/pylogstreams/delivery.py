"""What one client gets: the messages of its topics, each partition in order.

A client has at most one write under way, of at most `outgoing.max.messages` messages. The next one
begins when its socket has taken all of that, and only then does its position move. So who does not
read is held back, costs one page of memory, and delays nobody; nothing is dropped.

Invariant: every cursor stands in the waiters of its partition. A cursor is in `_ready` exactly if
it may have something to deliver.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from millstream.broker.partition import Partition
from millstream.broker.topics import Topic, Topics
from millstream.errors import (
    InvalidRequest,
    MillstreamError,
    OffsetOutOfRange,
    RecordTooLarge,
    UnknownTopic,
)
from millstream.gateways.pylogstreams.pages import Pages
from millstream.gateways.pylogstreams.sessions import Session, Sessions
from millstream.groups.offsets import TopicPartition
from millstream.telemetry.client_log import ClientLog

_log = logging.getLogger(__name__)

LATEST = -1

Subscribers = dict[str, set["Delivery"]]
"""By topic, whether it exists or not."""


class _Cursor:
    """One client's place in one partition."""

    __slots__ = ("_delivery", "is_ready", "key", "partition", "position")

    def __init__(self, delivery: Delivery, partition: Partition, position: int) -> None:
        self._delivery = delivery
        self.partition = partition
        self.key: TopicPartition = (partition.topic.name, partition.number)
        self.position = position
        self.is_ready = False

    def wake(self) -> None:
        """There may be more. Called for every append."""
        if not self.is_ready:
            self.is_ready = True
            self._delivery.begin(self)


class Delivery:
    """Writes to one client."""

    def __init__(
        self,
        *,
        topics: Topics,
        sessions: Sessions,
        pages: Pages,
        subscribers: Subscribers,
        max_messages: int,
        max_topics: int,
        fail: Callable[[MillstreamError], None],
        client_log: ClientLog,
    ) -> None:
        """`fail` is told of what keeps a partition from being read."""
        self._client_log = client_log
        self._topics = topics
        self._sessions = sessions
        self._pages = pages
        self._subscribers = subscribers
        self._max_messages = max_messages
        self._max_topics = max_topics
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._write: Callable[[bytes], None] = _ignore
        self._session: Session | None = None
        self._names: set[str] = set()
        self._cursors: dict[TopicPartition, _Cursor] = {}
        self._ready: deque[_Cursor] = deque()
        self._is_called = False
        self._is_held = False
        # Whose page is on its way, and where it will be then.
        self._unsent: tuple[_Cursor, int] | None = None

    def start(self, write: Callable[[bytes], None]) -> None:
        """`write` calls `hold` before it returns if the socket has not taken everything."""
        self._write = write

    # What the client asks for

    def log_in(self, session: Session) -> None:
        """From now on deliver to this id, which has subscribed to nothing yet."""
        self.close()
        self._session = session

    def subscribe(self, name: str) -> int:
        """Deliver what the client has not had yet of a topic, whenever it comes to be; returns how
        many partitions it has.

        Raises InvalidRequest for one topic too many.
        """
        if name not in self._names and len(self._names) >= self._max_topics:
            raise InvalidRequest(
                f"a subscription to {name!r}, the {self._max_topics + 1}th topic, where "
                f"max.subscriptions is {self._max_topics}"
            )
        self._names.add(name)
        self._subscribers.setdefault(name, set()).add(self)
        try:
            topic = self._topics.get(name)
        except UnknownTopic:
            return 1
        self.topic_changed(topic)
        return len(topic.partitions)

    def move(self, name: str, offset: int) -> int:
        """Go on from an offset, or the nearest there is; LATEST is what comes next.

        Returns how many partitions the topic has.
        """
        assert self._session is not None, "who is not logged in has no position"
        try:
            topic = self._topics.get(name)
        except UnknownTopic:
            # All that will ever come is still to come.
            return 1
        for partition in topic.partitions:
            log = partition.log
            end_offset = log.last_stable_offset
            target = end_offset if offset == LATEST else min(offset, end_offset)
            target = max(target, log.start_offset)
            key = (name, partition.number)
            self._sessions.note(self._session, key, target)
            cursor = self._cursors.get(key)
            if cursor is not None:
                if self._unsent is not None and self._unsent[0] is cursor:
                    self._unsent = None
                cursor.position = target
                cursor.wake()
        return len(topic.partitions)

    # What happens to topics

    def topic_changed(self, topic: Topic) -> None:
        """A topic that the client has subscribed to has come to be, or has more partitions."""
        assert self._session is not None, "who is not logged in has no subscription"
        for partition in topic.partitions:
            key = (topic.name, partition.number)
            if key in self._cursors or partition.failure is not None:
                continue
            position = self._session.positions.get(key, partition.log.start_offset)
            cursor = self._cursors[key] = _Cursor(self, partition, position)
            partition.waiters[cursor] = None
            cursor.wake()

    def topic_deleted(self, topic: Topic) -> None:
        for partition in topic.partitions:
            cursor = self._cursors.pop((topic.name, partition.number), None)
            if cursor is not None:
                self._remove(cursor)

    # Flow

    def begin(self, cursor: _Cursor) -> None:
        self._ready.append(cursor)
        self._call()

    def hold(self) -> None:
        """The client does not read as fast as we write."""
        self._is_held = True

    def go_on(self) -> None:
        """The client's socket has taken everything."""
        self._is_held = False
        if self._unsent is not None:
            cursor, offset = self._unsent
            self._unsent = None
            self._note(cursor, offset)
        self._call()

    def close(self) -> None:
        """Deliver nothing more of what was subscribed to."""
        for cursor in self._cursors.values():
            self._remove(cursor)
        for name in self._names:
            subscribers = self._subscribers[name]
            subscribers.discard(self)
            if not subscribers:
                del self._subscribers[name]
        self._names.clear()
        self._cursors.clear()
        self._ready.clear()

    def _remove(self, cursor: _Cursor) -> None:
        cursor.partition.waiters.pop(cursor, None)
        if self._unsent is not None and self._unsent[0] is cursor:
            self._unsent = None
        if cursor.is_ready:
            self._ready.remove(cursor)
            # Whoever has it in a list to be woken will find nothing to do.
        cursor.is_ready = True

    def _call(self) -> None:
        if self._ready and not (self._is_called or self._is_held):
            self._is_called = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Deliver one page, then let others have their turn."""
        self._is_called = False
        if self._is_held or not self._ready:
            return
        cursor = self._ready.popleft()
        try:
            has_more = self._deliver(cursor)
        except MillstreamError as error:
            cursor.is_ready = False
            self._fail(error)
            return
        if has_more:
            self._ready.append(cursor)
        else:
            cursor.is_ready = False
        self._call()

    def _deliver(self, cursor: _Cursor) -> bool:
        """Write one page; returns whether there is more."""
        partition = cursor.partition
        try:
            part = self._pages.part(partition, cursor.position, self._max_messages)
        except OffsetOutOfRange as error:
            # Retention has taken what came next, or a crash did.
            is_before = cursor.position < error.start_offset
            cursor.position = error.start_offset if is_before else error.end_offset
            return True
        except RecordTooLarge as error:
            # A client that connects again would find it again, and never what comes behind it.
            self._client_log.write(
                _log,
                logging.ERROR,
                "pylogstreams: topic %(topic)s, partition %(partition)d: a message is passed over: "
                "%(error)s",
                {"topic": cursor.key[0], "partition": cursor.key[1], "error": error},
                kind=cursor.key[0],
                host="",
            )
            cursor.position = error.next_offset
            return True
        if part is None:
            return False
        cursor.position = part.next_offset
        if part.frames:
            partition.topic.traffic.sent(part.messages, part.payload_bytes)
            self._write(part.frames)
        if self._is_held:
            self._unsent = (cursor, part.next_offset)
        else:
            self._note(cursor, part.next_offset)
        return cursor.position < partition.log.last_stable_offset

    def _note(self, cursor: _Cursor, offset: int) -> None:
        # Delivered before committed: a crash in between delivers again.
        if self._session is not None:
            self._sessions.note(self._session, cursor.key, offset)


def _ignore(_: bytes) -> None:
    """Before there is anyone to write to."""
