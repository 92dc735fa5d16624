"""What comes to partitions, unpacked and put into JSON once for all who follow them.

A follower reads pages: some records of a partition in a row. The newest pages are kept, so that
the others who follow find them there; who is far behind reads pages of its own.

Followers are woken in rounds: at once when nothing came for a while, and else with a pause that
grows with how many they are, so that a round carries several messages rather than that every
message costs a round.

Invariant: a page never changes; where it ends the next one begins. Pages that are kept take
bounded memory, and none for a partition that nobody follows.
Cost: benchmarks/websocket.py.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import orjson
from starlette.requests import HTTPConnection

from millstream.broker.broker import Broker
from millstream.broker.partition import Partition
from millstream.broker.reading import Reader
from millstream.broker.topics import Topic
from millstream.gateways.http.context import Context
from millstream.gateways.http.message_shapes import message_shape
from millstream.records import Record

_PAGE_BYTES = 256 << 10
"""A page has at least one record, and no more than that."""
_PAGE_RECORDS = 10_000
_KEPT_BYTES = 1 << 20
_RECORD_OVERHEAD_BYTES = 150
_PAUSE_PER_FOLLOWER_S = 0.0001
_LONGEST_PAUSE_S = 0.02


class Follower(Protocol):
    """Who wants to know that there is more."""

    def wake(self) -> None: ...


class Page:
    """Some records of a partition in a row."""

    __slots__ = ("_joined", "_sizes", "_texts", "next_offset", "partition", "records")

    def __init__(self, partition: int, records: Sequence[Record], next_offset: int) -> None:
        self.partition = partition
        self.records = records
        self.next_offset = next_offset
        self._texts: list[str] = []
        # Sizes of the records up to and with each.
        self._sizes = list(accumulate(map(_size_bytes, records)))
        # The last stretch that was joined, which most likely the next follower wants too.
        self._joined = (0, 0, "")

    @property
    def size_bytes(self) -> int:
        return self._sizes[-1] if self._sizes else 0

    def content_bytes(self, start: int, end: int) -> int:
        """Keys, values and headers of a stretch."""
        before_bytes = self._sizes[start - 1] if start else 0
        return self._sizes[end - 1] - before_bytes - (end - start) * _RECORD_OVERHEAD_BYTES

    def end_of(self, start: int, *, limit: int, max_bytes: int) -> int:
        """Where a stretch ends that begins with one record; it has at least that."""
        before_bytes = self._sizes[start - 1] if start else 0
        end = bisect_right(self._sizes, before_bytes + max_bytes, start)
        return min(max(end, start + 1), start + limit)

    def text(self, number: int) -> str:
        """The JSON of a record."""
        texts = self._texts
        if number >= len(texts):
            partition = self.partition
            texts += [_text(record, partition) for record in self.records[len(texts) : number + 1]]
        return texts[number]

    def joined(self, start: int, end: int) -> str:
        """The JSON of several records, with commas between them."""
        if self._joined[:2] != (start, end):
            self.text(end - 1)
            self._joined = (start, end, ",".join(self._texts[start:end]))
        return self._joined[2]


class Tail:
    """One partition, followed by somebody."""

    def __init__(self, partition: Partition, reader: Reader) -> None:
        self.partition = partition
        self.followers: dict[Follower, None] = {}
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._pages: dict[int, Page] = {}
        self._kept_bytes = 0
        self._is_called = False
        self._next_round_s = 0.0

    def page(self, offset: int) -> Page:
        """What begins at an offset; without records, and ending there, at the end of the log.

        Raises OffsetOutOfRange, CorruptData, StorageFailure.
        """
        page = self._pages.get(offset)
        if page is not None and offset >= self.partition.log.start_offset:
            return page
        found = self._reader.read(
            self.partition, offset, limit=_PAGE_RECORDS, max_bytes=_PAGE_BYTES
        )
        page = Page(self.partition.number, found.records, found.next_offset)
        if page.records:
            self._keep(offset, page)
        return page

    def wake(self) -> None:
        """There is more: tell the followers, together, and soon."""
        if self._is_called:
            return
        self._is_called = True
        if self._next_round_s <= self._loop.time():
            self._loop.call_soon(self._round)
        else:
            self._loop.call_at(self._next_round_s, self._round)

    def _round(self) -> None:
        self._is_called = False
        pause_s = min(len(self.followers) * _PAUSE_PER_FOLLOWER_S, _LONGEST_PAUSE_S)
        self._next_round_s = self._loop.time() + pause_s
        for follower in tuple(self.followers):
            follower.wake()

    def _keep(self, offset: int, page: Page) -> None:
        self._pages[offset] = page
        self._kept_bytes += page.size_bytes
        while self._kept_bytes > _KEPT_BYTES and len(self._pages) > 1:
            oldest = next(iter(self._pages))
            self._kept_bytes -= self._pages.pop(oldest).size_bytes


class Tails:
    """All partitions that somebody follows."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._tails: dict[Partition, Tail] = {}
        broker.topics.on_changed.append(self._wake)
        broker.topics.on_deleted.append(self._wake)

    def follow(self, partition: Partition, follower: Follower) -> Tail:
        tail = self._tails.get(partition)
        if tail is None:
            tail = self._tails[partition] = Tail(partition, self.broker.reader)
            partition.waiters[tail] = None
        tail.followers[follower] = None
        return tail

    def unfollow(self, tail: Tail, follower: Follower) -> None:
        """Safe to call twice."""
        tail.followers.pop(follower, None)
        if not tail.followers and self._tails.get(tail.partition) is tail:
            del self._tails[tail.partition]
            tail.partition.waiters.pop(tail, None)

    @property
    def count(self) -> int:
        return len(self._tails)

    def _wake(self, topic: Topic) -> None:
        """It has more partitions, or is gone."""
        for partition in topic.partitions:
            if (tail := self._tails.get(partition)) is not None:
                tail.wake()


def tails_of(connection: HTTPConnection) -> Tails:
    """The application's. Raises Unavailable while the broker recovers."""
    state = connection.app.state
    context: Context = state.context
    if not hasattr(state, "tails"):
        state.tails = Tails(context.broker)
    tails: Tails = state.tails
    return tails


def delivered_shape(record: Record, partition: int) -> dict[str, object]:
    """A message as it is delivered."""
    shape = message_shape(record, partition)
    shape["message_id"] = f"{partition}:{record.offset}"
    return shape


def _text(record: Record, partition: int) -> str:
    return orjson.dumps(delivered_shape(record, partition)).decode()


def _size_bytes(record: Record) -> int:
    size = _RECORD_OVERHEAD_BYTES + len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size
