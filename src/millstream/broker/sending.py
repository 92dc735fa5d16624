"""Records from doors that know no batches: gathered, put into batches, stored, and told where.

What is sent while the event loop turns once goes to each partition in one batch, is synced
together, and is answered together. So many senders of single records cost little more than one.

Invariant: records for one partition are stored in the order in which they were sent. An answer
means that the record is on disk. A topic is created only for a record that it takes.
Cost: benchmarks/http.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from millstream.broker.partition import Partition
from millstream.broker.partitioner import partition_of
from millstream.broker.topics import Topic, Topics
from millstream.clock import Clock
from millstream.errors import (
    AlreadyExists,
    InvalidName,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    MillstreamError,
    StorageFailure,
    UnknownPartition,
    UnknownTopic,
)
from millstream.records import Codec, Record, build
from millstream.records.batch import HEADER_BYTES
from millstream.records.recompression import codec_of
from millstream.records.record import Headers
from millstream.settings.log import LogSettings
from millstream.storage.flusher import Flusher

_RECORD_OVERHEAD_BYTES = 40
"""At least what a record's numbers take in a batch."""
_HEADER_OVERHEAD_BYTES = 10


class NewRecord(NamedTuple):
    """What to send. Who sends it may leave all but the value to the broker."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Sent(NamedTuple):
    """Where a record was stored."""

    partition: int
    offset: int
    timestamp_ms: int


class _Waiting(NamedTuple):
    record: NewRecord
    timestamp_ms: int
    size_bytes: int
    sent: asyncio.Future[Sent]


class Sender:
    """Sends records to topics."""

    def __init__(self, topics: Topics, flusher: Flusher, *, clock: Clock) -> None:
        self._topics = topics
        self._flusher = flusher
        self._clock = clock
        self._gathered: dict[Partition, list[_Waiting]] = {}
        # By topic, how many records without a key it has got.
        self._turns: dict[str, int] = {}

    async def send(self, topic: str, record: NewRecord, *, new_partitions: int = -1) -> Sent:
        """Store one record; return when it is on disk. Creates the topic if that is allowed.

        A topic that is created has `new_partitions`; -1 is as many as the broker is set to.
        Raises UnknownTopic, InvalidName, InvalidRecord, MessageTooLarge, DiskFull, StorageFailure.
        """
        found = self._find(topic) or await self._create(topic, [record], new_partitions)
        if not isinstance(found, Topic):
            raise found[0]
        return await self._begin(found, record)

    async def send_many(
        self, topic: str, records: Sequence[NewRecord], *, new_partitions: int = -1
    ) -> list[Sent | MillstreamError]:
        """Store records; one result for each. Raises what is wrong with the topic."""
        found = self._find(topic) or await self._create(topic, records, new_partitions)
        if not isinstance(found, Topic):
            return [*found]
        begun: list[asyncio.Future[Sent] | MillstreamError] = []
        for record in records:
            try:
                begun.append(self._begin(found, record))
            except MillstreamError as error:
                begun.append(error)
        futures = [each for each in begun if isinstance(each, asyncio.Future)]
        if futures:
            await asyncio.wait(futures)
        return [_result(each) for each in begun]

    def check(self, topic: str) -> None:
        """Raise what keeps every record from being sent to a topic."""
        if self._find(topic) is None:
            # There already if somebody else creates it, or deletes it, just now.
            with suppress(AlreadyExists):
                self._topics.check_create(topic, partitions=-1, overrides={})

    def _find(self, name: str) -> Topic | None:
        """None for a topic that may be created."""
        try:
            topic = self._topics.get(name)
        except UnknownTopic:
            if not self._topics.settings.auto_create:
                raise
            return None
        if topic.is_internal:
            raise InvalidName(kind="topic", name=name, expected="a topic that is not the broker's")
        return topic

    async def _create(
        self, name: str, records: Sequence[NewRecord], partitions: int
    ) -> Topic | list[MillstreamError]:
        """A new topic; or why not one of the records can be stored there, and then there is none.

        Raises what `Topics.ensure` does.
        """
        try:
            settings = self._topics.check_create(name, partitions=partitions, overrides={})
        except AlreadyExists:
            # Somebody else creates it, or deletes it, just now.
            return await self._topics.ensure(name)
        count = self._topics.settings.num_partitions if partitions == -1 else partitions
        refusals = []
        for record in records:
            try:
                if record.partition is not None and not 0 <= record.partition < count:
                    raise UnknownPartition(name, record.partition, count=count, is_new=True)
                _check(name, settings, record, self._clock)
            except MillstreamError as error:
                refusals.append(error)
        if refusals and len(refusals) == len(records):
            return refusals
        return await self._topics.ensure(name, partitions=partitions)

    def _begin(self, topic: Topic, record: NewRecord) -> asyncio.Future[Sent]:
        partition = self._partition(topic, record)
        size_bytes = _check(topic.name, topic.settings, record, self._clock)
        loop = asyncio.get_running_loop()
        if not self._gathered:
            loop.call_soon(self._flush)
        now_ms = self._clock.now_ms() if record.timestamp_ms is None else record.timestamp_ms
        waiting = _Waiting(record, now_ms, size_bytes, loop.create_future())
        self._gathered.setdefault(partition, []).append(waiting)
        return waiting.sent

    def _partition(self, topic: Topic, record: NewRecord) -> Partition:
        count = len(topic.partitions)
        number = record.partition
        if number is None:
            if count == 1:
                number = 0
            elif record.key is not None:
                number = partition_of(record.key, count)
            else:
                turn = self._turns.get(topic.name, 0)
                self._turns[topic.name] = turn + 1
                number = turn % count
        partition = self._topics.partition(topic.name, number)
        if partition.failure is not None:
            raise partition.failure.with_traceback(None)
        return partition

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for partition, waiting in gathered.items():
            runs = _runs(waiting, partition.topic.settings.max_message_bytes)
            codec_name = partition.topic.settings.codec_name
            codec = Codec.NONE if codec_name is None else codec_of(codec_name)
            outcomes = partition.append([_batch(run, codec) for run in runs])
            for run, outcome in zip(runs, outcomes, strict=True):
                if isinstance(outcome, MillstreamError):
                    _fail(run, outcome)
                else:
                    self._answer_when_durable(partition, run, outcome)
            partition.note_refusal(outcomes[-1])
            partition.wake()

    def _answer_when_durable(
        self, partition: Partition, run: Sequence[_Waiting], base_offset: int
    ) -> None:
        def settle(failure: StorageFailure | None) -> None:
            if failure is not None:
                _fail(run, failure)
                return
            for number, waiting in enumerate(run):
                if not waiting.sent.done():
                    waiting.sent.set_result(
                        Sent(partition.number, base_offset + number, waiting.timestamp_ms)
                    )

        self._flusher.when_durable(partition.log, base_offset + len(run), settle)


def _check(topic: str, settings: LogSettings, record: NewRecord, clock: Clock) -> int:
    """What a record takes at most, if its topic takes it. Raises MessageTooLarge, InvalidRecord."""
    if record.timestamp_ms is not None and settings.bounds_timestamps:
        ahead_ms = record.timestamp_ms - clock.now_ms()
        if not (
            -settings.message_timestamp_before_max_ms
            <= ahead_ms
            <= settings.message_timestamp_after_max_ms
        ):
            raise InvalidTimestamp(
                topic=topic,
                reason=f"a timestamp of {record.timestamp_ms} is further from now than "
                "message.timestamp.before.max.ms or message.timestamp.after.max.ms allow",
            )
    size_bytes = _size_bytes(record)
    limit_bytes = settings.max_message_bytes
    if size_bytes + HEADER_BYTES > limit_bytes:
        raise MessageTooLarge(size_bytes=size_bytes + HEADER_BYTES, limit_bytes=limit_bytes)
    if record.key is None and "compact" in settings.cleanup_policy:
        raise InvalidRecord(topic=topic, reason="it is compacted, so every record needs a key")
    return size_bytes


def _runs(waiting: Sequence[_Waiting], limit_bytes: int) -> list[list[_Waiting]]:
    """Cut what is to be stored into pieces that may be batches."""
    runs: list[list[_Waiting]] = [[]]
    room_bytes = limit_bytes - HEADER_BYTES
    for each in waiting:
        if runs[-1] and each.size_bytes > room_bytes:
            runs.append([])
            room_bytes = limit_bytes - HEADER_BYTES
        runs[-1].append(each)
        room_bytes -= each.size_bytes
    return runs


def _batch(run: Sequence[_Waiting], codec: Codec) -> bytearray:
    return build(
        [
            Record(
                number, each.timestamp_ms, each.record.key, each.record.value, each.record.headers
            )
            for number, each in enumerate(run)
        ],
        codec=codec,
    )


def _size_bytes(record: NewRecord) -> int:
    """No less than what a record takes in a batch."""
    size = _RECORD_OVERHEAD_BYTES + len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += _HEADER_OVERHEAD_BYTES + 4 * len(name) + len(value or b"")
    return size


def _fail(run: Sequence[_Waiting], error: MillstreamError) -> None:
    for waiting in run:
        if not waiting.sent.done():
            waiting.sent.set_exception(error)


def _result(begun: asyncio.Future[Sent] | MillstreamError) -> Sent | MillstreamError:
    if isinstance(begun, MillstreamError):
        return begun
    error = begun.exception()
    if error is None:
        return begun.result()
    assert isinstance(error, MillstreamError)
    return error
