"""How far data pipelines have come, as they tell it themselves in a topic of their own.

A pipeline writes its progress as JSON under its name to `__millstream_pipelines`, now and then
while it runs; the newest record of a name is all there is to know of it, and an empty one says
that it is forgotten. The topic is an ordinary, compacted one, which the first pipeline creates.

Invariant: what is told is what the topic said when it was asked; it is read from where the last
question ended. Memory is bounded in names and in bytes, of each and of all, work by how far it
reads back; what a pipeline told is taken apart once. Anybody can write to the topic, so that
may be anything that JSON can say.
After a crash: nothing is kept; the topic is read again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from millstream.broker.partition import Partition
from millstream.broker.reading import Reader
from millstream.broker.topics import Topics
from millstream.clock import Clock
from millstream.errors import CorruptData, NotFound, RecordTooLarge, UnknownTopic
from millstream.records import Record
from millstream.settings.names import PIPELINES_TOPIC

MAX_PIPELINES = 1000
MAX_PROGRESS_BYTES = 64 * 1024
MAX_TOLD_BYTES = 8 << 20
_FARTHEST_BACK = 200_000
"""Offsets: a topic that was not compacted for so long is not read from its start."""
_PAGE_RECORDS = 1000
STALE_MS = 30_000
"""A pipeline that runs writes far more often."""
_RATES = {"rows_in_per_s", "rows_out_per_s"}
_LIVE_STATES = frozenset({"starting", "running", "stopping"})

Progress = dict[str, Any]


class Pipelines:
    """What is known of all pipelines. Lives on the event loop."""

    def __init__(self, topics: Topics, reader: Reader, *, clock: Clock) -> None:
        self._topics = topics
        self._reader = reader
        self._clock = clock
        self._told: dict[str, bytes] = {}
        """By name; the one that told something last comes last."""
        self._told_bytes = 0
        self._parsed: dict[str, Progress | None] = {}
        """What of it was asked for since it was told."""
        self._topic_id = b""
        self._next_offset = -1
        self._turn = asyncio.Lock()

    async def all(self) -> list[Progress]:
        """The newest progress of every pipeline, by name. Raises StorageFailure."""
        await self._catch_up()
        found = []
        for name in sorted(self._told):
            if name not in self._parsed:
                await asyncio.sleep(0)
            progress = self._progress(name)
            if progress is not None:
                found.append(progress)
        return found

    async def get(self, name: str) -> Progress:
        """Raises NotFound, StorageFailure."""
        await self._catch_up()
        progress = self._progress(name)
        if progress is None:
            raise NotFound(kind="pipeline", name=name)
        return progress

    def _progress(self, name: str) -> Progress | None:
        if name not in self._told:
            return None
        if name not in self._parsed:
            self._parsed[name] = _parsed(self._told[name])
        progress = self._parsed[name]
        if progress is None:
            return None
        at_ms, state = progress.get("at"), progress.get("state")
        is_old = not isinstance(at_ms, int | float) or self._clock.now_ms() - at_ms > STALE_MS
        is_stale = is_old and isinstance(state, str) and state in _LIVE_STATES
        is_live = isinstance(state, str) and state in _LIVE_STATES and not is_stale
        # What it read and wrote last says nothing of one that does not run.
        rates = {} if is_live else dict.fromkeys(_RATES & progress.keys(), 0.0)
        return {**progress, **rates, "pipeline": name, "is_stale": is_stale}

    async def _catch_up(self) -> None:
        """Read what the topic holds by now."""
        async with self._turn:
            try:
                partition = self._topics.partition(PIPELINES_TOPIC, 0)
            except UnknownTopic:
                self._begin(b"", 0)
                return
            end_offset = partition.log.last_stable_offset
            self._settle_start(partition, end_offset)
            while self._next_offset < end_offset:
                self._read_on(partition)
                # Other work comes first, however long the topic is.
                await asyncio.sleep(0)

    def _settle_start(self, partition: Partition, end_offset: int) -> None:
        """Where to go on; from the front in a topic that is not the one known or was cut."""
        log, topic_id = partition.log, partition.topic.topic_id
        if topic_id != self._topic_id or self._next_offset > log.end_offset:
            self._begin(topic_id, end_offset - _FARTHEST_BACK)
        self._next_offset = max(self._next_offset, log.start_offset)

    def _begin(self, topic_id: bytes, offset: int) -> None:
        self._topic_id, self._next_offset = topic_id, offset
        self._told.clear()
        self._parsed.clear()
        self._told_bytes = 0

    def _read_on(self, partition: Partition) -> None:
        try:
            page = self._reader.read(partition, self._next_offset, limit=_PAGE_RECORDS)
        except (CorruptData, RecordTooLarge) as damage:
            self._next_offset = max(damage.next_offset, self._next_offset + 1)
            return
        for record in page.records:
            self._take(record)
        self._next_offset = max(page.next_offset, self._next_offset + 1)

    def _take(self, record: Record) -> None:
        try:
            name = bytes(record.key or b"").decode()
        except UnicodeDecodeError:
            return
        self._forget(name)
        value = record.value
        if name and value and len(name) + len(value) <= MAX_PROGRESS_BYTES:
            self._told[name] = bytes(value)
            self._told_bytes += len(name) + len(value)
            while len(self._told) > MAX_PIPELINES or self._told_bytes > MAX_TOLD_BYTES:
                # The one that was silent for longest.
                self._forget(next(iter(self._told)))

    def _forget(self, name: str) -> None:
        """Safe to call for one that is not known."""
        told = self._told.pop(name, None)
        self._parsed.pop(name, None)
        if told is not None:
            self._told_bytes -= len(name) + len(told)


def _parsed(told: bytes) -> Progress | None:
    """An object that can be told as JSON again; None for anything else."""
    try:
        found = orjson.loads(told)
        # Answers wrap it once more and again, and what is nested too deeply cannot be told.
        orjson.dumps([[[[[[found]]]]]])
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, dict) else None
