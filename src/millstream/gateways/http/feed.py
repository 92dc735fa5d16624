"""One subscriber's places in the partitions of a topic, and what comes next there.

A feed reads when it is asked to, and only as much: who asks for nothing costs nothing but the page
that it stopped in. So a slow client waits in the log, not in memory.

Invariant: every record from a position on is given once, in order within its partition. What was
deleted before it could be given is told as skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millstream.broker.topics import Topic
from millstream.errors import OffsetOutOfRange, UnknownTopic
from millstream.gateways.http.tail import Page, Tail, Tails

_EMPTY_PAGES = 16
"""Pages of nothing but markers that are read at once, before others have their turn."""


class Stretch(NamedTuple):
    """Records of one page, to be delivered together."""

    page: Page
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.page.joined(self.start, self.end)


class Skipped(NamedTuple):
    """Records that are not there any more."""

    partition: int
    from_offset: int
    to_offset: int


class Taken(NamedTuple):
    """What is to be delivered now."""

    stretches: list[Stretch]
    skipped: list[Skipped]
    messages: int


class _Cursor:
    """A place in one partition."""

    __slots__ = ("_at", "_page", "position", "tail")

    def __init__(self, tail: Tail, position: int) -> None:
        self.tail = tail
        self.move(position)

    def move(self, position: int) -> None:
        self.position = position
        self._page: Page | None = None
        self._at = 0

    @property
    def is_behind(self) -> bool:
        return self._page is not None or self.position < self.tail.partition.log.last_stable_offset

    def take(self, *, limit: int, max_bytes: int) -> Stretch | Skipped | None:
        try:
            page = self._page or self._next_page()
        except OffsetOutOfRange as error:
            if self.position >= error.start_offset:
                raise
            skipped = Skipped(self.tail.partition.number, self.position, error.start_offset)
            self.move(error.start_offset)
            return skipped
        if page is None:
            return None
        start = self._at
        end = page.end_of(start, limit=limit, max_bytes=max_bytes)
        if end >= len(page.records):
            end = len(page.records)
            self.move(page.next_offset)
        else:
            self._page = page
            self._at = end
            self.position = page.records[end].offset
        traffic = self.tail.partition.topic.traffic
        traffic.sent(end - start, page.content_bytes(start, end))
        return Stretch(page, start, end)

    def _next_page(self) -> Page | None:
        for _ in range(_EMPTY_PAGES):
            page = self.tail.page(self.position)
            if page.records:
                return page
            if page.next_offset == self.position:
                return None
            self.position = page.next_offset
        self.tail.wake()
        return None


class Feed:
    """Gives a subscriber the records of a topic."""

    def __init__(self, tails: Tails, topic: Topic, positions: Mapping[int, int]) -> None:
        """Follows the partitions that have a position."""
        self.topic = topic
        self._tails = tails
        self._cursors: dict[int, _Cursor] = {}
        # New partitions are followed too, unless somebody chose.
        self._is_whole = len(positions) == len(topic.partitions)
        self._more = asyncio.Event()
        self._more.set()
        for number, position in positions.items():
            self._follow(number, position)

    def wake(self) -> None:
        self._more.set()

    async def ready(self) -> None:
        """Return when there may be something to take."""
        await self._more.wait()

    def take(self, *, limit: int, max_bytes: int) -> Taken | None:
        """What there is, up to a limit; None for nothing, until `ready` returns again.

        Raises UnknownTopic when the topic is gone, CorruptData, StorageFailure, OffsetOutOfRange.
        """
        self._more.clear()
        self._look_at_topic()
        stretches: list[Stretch] = []
        skipped: list[Skipped] = []
        count = 0
        for number in tuple(self._cursors):
            if count >= limit or max_bytes <= 0:
                break
            cursor = self._cursors.pop(number)
            # The last one next time, so that none goes short.
            self._cursors[number] = cursor
            found = cursor.take(limit=limit - count, max_bytes=max_bytes)
            if isinstance(found, Skipped):
                skipped.append(found)
            elif found is not None:
                stretches.append(found)
                count += found.end - found.start
                max_bytes -= found.page.size_bytes
        if not (stretches or skipped):
            return None
        if self.is_behind:
            self._more.set()
        return Taken(stretches, skipped, count)

    @property
    def is_behind(self) -> bool:
        """Whether there is more to take right now."""
        return any(cursor.is_behind for cursor in self._cursors.values())

    @property
    def positions(self) -> dict[int, int]:
        """By partition, the offset of what comes next."""
        return {number: self._cursors[number].position for number in sorted(self._cursors)}

    def seek(self, positions: Mapping[int, int]) -> None:
        """Go on from other places, in partitions that it follows."""
        for number, position in positions.items():
            self._cursors[number].move(position)
        self.wake()

    def follow(self, positions: Mapping[int, int]) -> None:
        """Give the records of more partitions, from these positions on."""
        for number, position in positions.items():
            self._follow(number, position)
        self.wake()

    def unfollow(self, numbers: Iterable[int]) -> None:
        """Give nothing of some partitions any more."""
        for number in numbers:
            cursor = self._cursors.pop(number, None)
            if cursor is not None:
                self._tails.unfollow(cursor.tail, self)

    def close(self) -> None:
        """Follow nothing any more. Safe to call twice."""
        for cursor in self._cursors.values():
            self._tails.unfollow(cursor.tail, self)
        self._cursors.clear()

    def _look_at_topic(self) -> None:
        if self._tails.broker.topics.get(self.topic.name) is not self.topic:
            raise UnknownTopic(self.topic.name)
        if self._is_whole and len(self._cursors) < len(self.topic.partitions):
            self._follow_all(range(len(self._cursors), len(self.topic.partitions)))

    def _follow_all(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._follow(number, 0)

    def _follow(self, number: int, position: int) -> None:
        tail = self._tails.follow(self.topic.partitions[number], self)
        self._cursors[number] = _Cursor(tail, position)
