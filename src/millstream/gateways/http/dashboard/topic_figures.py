"""All topics in a few numbers each, cheap enough to be looked at every other second.

How much a topic takes up on disk is asked of its segments only where its offsets have moved since
the last look, and now and then for all, because compaction moves none.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from millstream.broker.topics import Topic, Topics

_SIZES_EVERY = 15
_LONGEST_S = 10.0
"""Nobody looked for a while: what came meanwhile does not come now."""
_ONE_TURN = 500
"""Partitions that are looked at before others have their turn."""


class Figures(NamedTuple):
    """A topic, in numbers."""

    partitions: int
    messages: int
    size_bytes: int
    end_offsets: int
    """The sum of them: it only grows, by what is sent."""
    rate: int
    """Messages that came in a second, since the look before."""
    stopped: int
    """Partitions that take no messages."""
    is_internal: bool


class TopicFigures:
    """What the last look has found. One may look at a time."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._known: dict[str, Figures] = {}
        self._starts: dict[str, int] = {}
        self._looks = 0
        self._looked_s = 0.0
        self._turn = asyncio.Lock()

    async def look(self, *, no_older_than_s: float) -> dict[str, Figures]:
        """By name. Who asks again within a time gets what was found before."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            since_s = loop.time() - self._looked_s
            if self._known and since_s < no_older_than_s:
                return self._known
            self._looked_s = loop.time()
            self._known = await self._look(since_s)
            return self._known

    async def _look(self, since_s: float) -> dict[str, Figures]:
        is_thorough = self._looks % _SIZES_EVERY == 0
        self._looks += 1
        found: dict[str, Figures] = {}
        looked_at = 0
        for topic in tuple(self._topics.all()):
            found[topic.name] = self._figures(topic, since_s, is_thorough=is_thorough)
            looked_at += len(topic.partitions)
            if looked_at >= _ONE_TURN:
                looked_at = 0
                await asyncio.sleep(0)
        for name in self._starts.keys() - found.keys():
            del self._starts[name]
        return found

    def _figures(self, topic: Topic, since_s: float, *, is_thorough: bool) -> Figures:
        logs = [each.log for each in topic.partitions if each.failure is None]
        start = sum(log.start_offset for log in logs)
        end = sum(log.end_offset for log in logs)
        before = self._known.get(topic.name)
        moved = before is None or before.end_offsets != end or self._starts.get(topic.name) != start
        self._starts[topic.name] = start
        if before is None or moved or is_thorough:
            size = sum(segment.size for log in logs for segment in log.segments())
        else:
            size = before.size_bytes
        came = 0
        if before is not None and since_s <= _LONGEST_S:
            came = max(end - before.end_offsets, 0)
        stopped = sum(
            each.failure is not None or each.is_refusing or each.log.failure is not None
            for each in topic.partitions
        )
        return Figures(
            partitions=len(topic.partitions),
            messages=end - start,
            size_bytes=size,
            end_offsets=end,
            rate=round(came / since_s) if since_s > 0 else 0,
            stopped=stopped,
            is_internal=topic.is_internal,
        )
