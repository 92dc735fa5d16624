"""What one client publishes, on its way into the log.

All that one read from the socket brought goes to each topic in one batch. `PUB` has no answer, so
it does not wait for the disk: what was stored survives the broker's process at once, and the
machine once the log was flushed. `durable` waits for that.

Invariant: the payloads for one topic are stored in the order in which they came, each once. All of
one client id go to one partition. What cannot be stored now is kept, and nothing more is taken
until it is. What can never be stored takes with it what came behind it for its topic, and nothing
of other topics.
Cost: benchmarks/pylogstreams.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from millstream.broker.durability import durable
from millstream.broker.partition import Partition
from millstream.broker.partitioner import partition_of
from millstream.broker.topics import Topics
from millstream.clock import Clock
from millstream.errors import (
    AlreadyExists,
    InvalidName,
    InvalidRecord,
    MessageTooLarge,
    MillstreamError,
    StorageFailure,
    Unavailable,
    UnknownTopic,
)
from millstream.gateways.pylogstreams.frames import Published
from millstream.records.batch import HEADER_BYTES
from millstream.records.recompression import codec_of, recompressed
from millstream.records.value_batch import VALUE_OVERHEAD_BYTES, build_values
from millstream.settings.names import check_topic_name, is_internal_topic
from millstream.storage.flusher import Flusher

RETRY_S = 0.5
_BATCH_MAX_BYTES = 1 << 20
"""A batch grows past it only where a single message does."""


class Publishing:
    """Takes one client's messages."""

    def __init__(self, topics: Topics, *, clock: Clock, message_max_bytes: int) -> None:
        """Topics that it creates take messages of up to `message_max_bytes`."""
        self._topics = topics
        self._clock = clock
        self._batch_max_bytes = HEADER_BYTES + VALUE_OVERHEAD_BYTES + message_max_bytes
        self.client_id = ""
        self.published: Published = {}
        """What was taken and is not stored."""
        # By partition, where the log ended after the last append that no `durable` has waited for.
        self._appended: dict[Partition, int] = {}
        # Why something of what was taken was dropped.
        self._refusal: MillstreamError | None = None
        # Where the messages of a topic go, as long as no topic changes.
        self._targets: dict[bytes, Partition] = {}
        self._generation = -1

    def store(self) -> Coroutine[Any, Any, None] | None:
        """Store all that was published; or what has to be waited for before it is called again.

        Raises what made a message one that cannot be stored, when all others are.
        """
        while self.published:
            topic = next(iter(self.published))
            try:
                waiting = self._store_topic(topic)
            except MillstreamError as error:
                self._refuse(topic, error)
                continue
            if waiting is not None:
                return waiting
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        return None

    async def durable(self, flusher: Flusher) -> None:
        """Return when all that was stored until now is on disk. Raises StorageFailure."""
        appended, self._appended = self._appended, {}
        waits = [durable(flusher, each.log, offset) for each, offset in appended.items()]
        for failure in await asyncio.gather(*waits, return_exceptions=True):
            if failure is not None:
                raise failure

    def _refuse(self, topic: bytes, error: MillstreamError) -> None:
        del self.published[topic]
        # The first is told; others may be its consequence.
        self._refusal = self._refusal or error

    def _store_topic(self, topic: bytes) -> Coroutine[Any, Any, None] | None:
        try:
            partition = self._target(topic)
        except UnknownTopic:
            if not self._topics.settings.auto_create:
                raise
            return self._create(topic)
        return None if self._append(partition, topic) else asyncio.sleep(RETRY_S)

    def _append(self, partition: Partition, topic: bytes) -> bool:
        """Whether all was stored that is there for a topic; if not, it can be later."""
        payloads = self.published[topic]
        limit_bytes = partition.topic.settings.max_message_bytes
        codec_name = partition.topic.settings.codec_name
        stored = 0
        try:
            for run in _runs(payloads, limit_bytes):
                batch = build_values(run, timestamp_ms=self._clock.now_ms())
                if codec_name is not None:
                    codec = codec_of(codec_name)
                    batch = recompressed(batch, codec, limit_bytes=len(batch)) or batch
                [outcome] = partition.append([batch])
                partition.note_refusal(outcome)
                if isinstance(outcome, Unavailable) and not isinstance(outcome, StorageFailure):
                    return False
                if isinstance(outcome, MillstreamError):
                    raise outcome
                stored += len(run)
        finally:
            if stored:
                self._appended[partition] = partition.log.end_offset
                partition.wake()
            del payloads[:stored]
        del self.published[topic]
        return True

    def _target(self, topic: bytes) -> Partition:
        """Raises InvalidName, UnknownTopic, InvalidRecord, StorageFailure."""
        if self._generation != self._topics.generation:
            self._targets.clear()
            self._appended = {
                each: offset for each, offset in self._appended.items() if self._exists(each)
            }
            self._generation = self._topics.generation
        target = self._targets.get(topic)
        if target is None:
            target = self._targets[topic] = self._found(topic.decode("utf-8", "replace"))
        return target

    def _exists(self, partition: Partition) -> bool:
        try:
            return self._topics.get(partition.topic.name) is partition.topic
        except UnknownTopic:
            return False

    def _found(self, name: str) -> Partition:
        check_client_topic(name)
        topic = self._topics.get(name)
        if "compact" in topic.settings.cleanup_policy:
            raise InvalidRecord(topic=name, reason="it is compacted, so every record needs a key")
        number = partition_of(self.client_id.encode(), len(topic.partitions))
        partition = self._topics.partition(name, number)
        if partition.failure is not None:
            raise partition.failure.with_traceback(None)
        return partition

    async def _create(self, topic: bytes) -> None:
        name = topic.decode()
        overrides = {}
        if self._topics.defaults.max_message_bytes < self._batch_max_bytes:
            overrides["max.message.bytes"] = str(self._batch_max_bytes)
        try:
            await self._topics.create(name, partitions=-1, overrides=overrides)
        except AlreadyExists:
            # Somebody else is at it, or its predecessor is not quite gone.
            try:
                await self._topics.ensure(name)
            except UnknownTopic:
                await asyncio.sleep(RETRY_S)
        except Unavailable:
            await asyncio.sleep(RETRY_S)
        except MillstreamError as error:
            self._refuse(topic, error)


def check_client_topic(name: str) -> None:
    """Raises InvalidName for what can be no topic, or is the broker's own."""
    check_topic_name(name)
    if is_internal_topic(name):
        raise InvalidName(kind="topic", name=name, expected="a topic that is not the broker's")


def _runs(payloads: list[bytes], limit_bytes: int) -> Iterator[list[bytes]]:
    """Cut payloads into pieces that may be batches. Raises MessageTooLarge."""
    room_bytes = min(limit_bytes, _BATCH_MAX_BYTES) - HEADER_BYTES
    sizes = [len(payload) + VALUE_OVERHEAD_BYTES for payload in payloads]
    if sum(sizes) <= room_bytes:
        yield payloads[:]
        return
    start = taken_bytes = 0
    for number, size in enumerate(sizes):
        if start < number and taken_bytes + size > room_bytes:
            yield payloads[start:number]
            start, taken_bytes = number, 0
        if size + HEADER_BYTES > limit_bytes:
            raise MessageTooLarge(size_bytes=size + HEADER_BYTES, limit_bytes=limit_bytes)
        taken_bytes += size
    yield payloads[start:]
