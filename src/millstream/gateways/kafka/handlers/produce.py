"""Produce (0): store record batches, and answer once that is as durable as `acks` asks.

3 transactional id; 5 the answer has the start of the log; 8 and an error message; 9 flexible;
13 topic ids. 0 to 2 are announced, because librdkafka stops compressing otherwise (KAFKA-18659),
and refused when used: they carry record formats of long ago.

acks=0 is not answered, acks=1 once the log has it, acks=all once it is on disk. What is part of a
transaction must ask for acks=all: whoever commits relies on it. From 12 on the first write to a
partition makes it part of the transaction; before, AddPartitionsToTxn does.

Requests are gathered while one read is worked off and stored together by `flush`. A request for one
partition is likely to be followed by many that differ in their records alone: what is the same in
all of them is compared as one run of bytes, and not parsed again.
Cost: benchmarks/small_requests.py.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from millstream.broker.append_cycle import AppendCycle
from millstream.broker.partition import Partition
from millstream.broker.topics import Topics
from millstream.broker.transactions import TransactionCoordinator
from millstream.clock import Clock
from millstream.errors import InvalidRecord, InvalidTimestamp, MillstreamError, Superseded
from millstream.gateways.kafka.answers import Answers
from millstream.gateways.kafka.durable_answer import DurableAnswer
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.produce_request import (
    Entry,
    Judged,
    ParsedRequest,
    Refusal,
    RepeatedRequest,
    encode_all,
)
from millstream.gateways.kafka.repacking import Found, Place, codecs_for, repacked
from millstream.gateways.kafka.request_times import RequestTimes
from millstream.gateways.kafka.transaction_codes import write_code
from millstream.protocol.headers import read_client_id
from millstream.protocol.messages.produce import (
    ALL_REPLICAS,
    FLEXIBLE,
    NO_ANSWER,
    ProduceRequest,
    TopicData,
    parse_request,
)
from millstream.protocol.primitives import read_varint, varint
from millstream.records.batch import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    HEADER_BYTES,
    PRODUCER_AT,
    TRANSACTIONAL_BIT,
    parse_header,
)
from millstream.records.compression import Codec
from millstream.records.record_keys import keyless_records, untimely_records
from millstream.storage.flusher import Flusher

API_KEY = 0
VERSIONS = (0, 13)

_OLDEST_SERVED = 3
_OLDEST_REPEATED = 5
_VALID_ACKS = (ALL_REPLICAS, NO_ANSWER, 1)
_LOW_ATTRIBUTES_AT = ATTRIBUTES_AT + 1
_RESERVED_BITS = CONTROL_BIT | TRANSACTIONAL_BIT
_ADDS_PARTITIONS = 12


class Producing:
    """The produce requests of one connection."""

    __slots__ = (
        "_answers",
        "_clock",
        "_connection",
        "_cycle",
        "_entries",
        "_flusher",
        "_hang_up",
        "_hold",
        "_max_unpacked_bytes",
        "_repeated",
        "_times",
        "_topics",
        "_transactions",
    )

    def __init__(
        self,
        answers: Answers,
        *,
        topics: Topics,
        cycle: AppendCycle,
        flusher: Flusher,
        transactions: TransactionCoordinator,
        connection: int,
        max_unpacked_bytes: int,
        hang_up: Callable[[str], None],
        hold: Callable[[Coroutine[Any, Any, None]], None],
        clock: Clock,
        times: RequestTimes,
    ) -> None:
        """`connection` is its number; `hang_up` ends it for a reason.

        `hold` runs something, and takes no request until it is done.
        """
        self._hold = hold
        self._clock = clock
        self._answers = answers
        self._transactions = transactions
        self._connection = connection
        self._max_unpacked_bytes = max_unpacked_bytes
        self._hang_up = hang_up
        self._times = times
        self._topics = topics
        self._cycle = cycle
        self._flusher = flusher
        self._repeated: RepeatedRequest | None = None
        # Gathered since the last flush.
        self._entries: list[Entry] = []

    def drop(self) -> None:
        """Forget what was gathered."""
        self._entries = []
        self._cycle.drop()

    def add(
        self, raw: bytearray, view: memoryview, start: int, end: int, version: int, correlation: int
    ) -> None:
        """Take the request between two places of the receive buffer. Raises MalformedMessage."""
        repeated = self._repeated
        if (
            repeated is not None
            and repeated.version == version
            and raw.startswith(repeated.prefix, start + 8)
            and repeated.generation == self._topics.generation
            # Then the size, of at most five bytes, can be read.
            and (position := start + 8 + len(repeated.prefix)) + HEADER_BYTES <= end
        ):
            if repeated.flexible:
                size, position = read_varint(view, position)
                size -= 1
            else:
                (size,) = _unpack_size(view, position)
                position += 4
            records_end = position + size
            if (
                size >= HEADER_BYTES
                and records_end + len(repeated.tail) == end
                and raw.startswith(repeated.tail, records_end)
                and not raw[position + _LOW_ATTRIBUTES_AT] & _RESERVED_BITS
            ):
                stored = self._cycle.add(repeated.partition, view[position:records_end])
                self._entries.append((repeated, correlation, stored))
                return
        self._add_parsed(view[start:end], version, correlation)

    def _add_parsed(self, frame: memoryview, version: int, correlation: int) -> None:
        _, position = read_client_id(frame, flexible=version >= FLEXIBLE)
        request = parse_request(frame, position, version)
        found = [[self._find(t.topic, each[0]) for each in t.partitions] for t in request.topics]
        if codecs := codecs_for(frame, request, found):
            # What was asked before comes first, and what follows waits.
            self.flush()
            self._hold(self._repack(bytes(frame), request, codecs, version, correlation))
            return
        self._add_request(frame, request, found, version, correlation)
        if _refusal(version, request) is None:
            self._repeated = self._learn(frame, version, request)

    async def _repack(
        self,
        frame: bytes,
        request: ProduceRequest,
        codecs: dict[Place, Codec],
        version: int,
        correlation: int,
    ) -> None:
        batches, request = await asyncio.to_thread(
            repacked, frame, request, codecs, limit_bytes=self._max_unpacked_bytes
        )
        # Looked for again: the topic may have been deleted meanwhile.
        found = [[self._find(t.topic, each[0]) for each in t.partitions] for t in request.topics]
        try:
            self._add_request(memoryview(batches), request, found, version, correlation)
        finally:
            self.flush()

    def _find(self, topic: str | bytes, number: int) -> Found:
        try:
            return self._topics.find(topic, number)
        except MillstreamError as error:
            return error.with_traceback(None)

    def _add_request(
        self,
        frame: memoryview,
        request: ProduceRequest,
        found: list[list[Found]],
        version: int,
        correlation: int,
    ) -> None:
        """Take a request whose batches are in `frame`. Raises Superseded."""
        entry = ParsedRequest(version, request.acks, request.timeout_ms, request.transactional_id)
        refusal = _refusal(version, request)
        if version >= _ADDS_PARTITIONS and request.transactional_id is not None:
            entry.places = self._places(request)
        for topic, partitions in zip(request.topics, found, strict=True):
            results: list[tuple[int, Judged]] = []
            for (number, start, end), partition in zip(topic.partitions, partitions, strict=True):
                batch = frame[start:end]
                results.append((number, refusal or self._store(partition, batch, entry)))
            entry.topics.append((topic.topic, results))
        self._entries.append((entry, correlation, None))
        if entry.superseded is not None:
            # Only now that what was gathered has its place to be answered in.
            raise entry.superseded

    def _places(self, request: ProduceRequest) -> frozenset[tuple[str, int]]:
        """The partitions of a request that there are."""
        places = set()
        for topic in request.topics:
            for number, _, _ in topic.partitions:
                with suppress(MillstreamError):
                    partition = self._topics.find(topic.topic, number)
                    if partition.failure is None and not partition.topic.is_internal:
                        places.add((partition.topic.name, number))
        return frozenset(places)

    def _store(self, partition: Found, batch: memoryview, request: ParsedRequest) -> Judged:
        if isinstance(partition, MillstreamError):
            return partition
        try:
            if partition.failure is not None:
                return partition.failure
            if partition.topic.is_internal:
                return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION)
            _check_records(partition, batch, self._clock, self._max_unpacked_bytes)
        except MillstreamError as error:
            return error.with_traceback(None)
        if len(batch) >= HEADER_BYTES and batch[_LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT:
            refusal = self._admit(partition, batch, request)
            if refusal is not None:
                return refusal
        return self._cycle.add(partition, batch)

    def _admit(
        self, partition: Partition, batch: memoryview, request: ParsedRequest
    ) -> Refusal | None:
        """Make a batch part of its transaction, or say why it cannot be."""
        if request.acks != ALL_REPLICAS:
            return Refusal(ErrorCode.INVALID_REQUIRED_ACKS, "a transaction needs acks=all")
        producer_id, producer_epoch, base_sequence = _PRODUCER.unpack_from(batch, PRODUCER_AT)
        if base_sequence < 0:
            return Refusal(ErrorCode.INVALID_RECORD, "a batch of a producer without a sequence")
        try:
            settled_at = self._transactions.admit(
                producer_id,
                producer_epoch,
                request.transactional_id,
                (partition.topic.name, partition.number),
                adds=request.version >= _ADDS_PARTITIONS,
                connection=self._connection,
                also=request.places,
            )
        except MillstreamError as error:
            if isinstance(error, Superseded):
                request.superseded = error
            return Refusal(ErrorCode(write_code(error, API_KEY, request.version)), str(error))
        request.settled_at = max(request.settled_at, settled_at)
        return None

    def _learn(
        self, frame: memoryview, version: int, request: ProduceRequest
    ) -> RepeatedRequest | None:
        """What to expect of the requests after this one."""
        if version < _OLDEST_REPEATED or len(request.topics) != 1:
            return None
        topic: TopicData = request.topics[0]
        if len(topic.partitions) != 1:
            return None
        number, start, end = topic.partitions[0]
        size_bytes = 4
        if version >= FLEXIBLE:
            size = varint(end - start + 1)
            size_bytes = len(size)
            if frame[start - size_bytes : start] != size:
                return None  # null, or a number written with more bytes than it needs
        try:
            partition = self._topics.find(topic.topic, number)
        except MillstreamError:
            return None
        if partition.failure or partition.topic.is_internal or _looks_inside(partition):
            return None
        return RepeatedRequest(
            partition=partition,
            generation=self._topics.generation,
            version=version,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic=topic.topic,
            number=number,
            prefix=bytes(frame[8 : start - size_bytes]),
        )

    def flush(self) -> None:
        """Store what was gathered, and answer it, or see to it that it will be."""
        if not self._entries:
            assert self._cycle.is_empty, "what nobody answers for would be stored by the next"
            return
        self._cycle.run()
        entries, self._entries = self._entries, []
        first = 0
        while first < len(entries):
            acks = entries[first][0].acks
            last = first + 1
            while last < len(entries) and entries[last][0].acks == acks:
                last += 1
            self._answer(entries if last - first == len(entries) else entries[first:last], acks)
            first = last

    def _answer(self, entries: list[Entry], acks: int) -> None:
        """Answer some requests that all ask for the same."""
        count, began_ns = len(entries), self._times.began_ns
        if acks == ALL_REPLICAS:
            answered = partial(self._times.answered, API_KEY, began_ns, count)
            pending = DurableAnswer(entries, self._answers.take_place(count), answered)
            pending.wait(self._flusher, self._transactions.log)
            return
        if acks == NO_ANSWER:
            self._check_unanswered(entries)
        else:
            self._answers.send([encode_all(entries)])
        self._times.answered(API_KEY, began_ns, count)

    def _check_unanswered(self, entries: list[Entry]) -> None:
        """Hang up when one failed: there is no other way to tell, and the client asks anew."""
        for request, _, stored in entries:
            if error := request.error(stored):
                self._hang_up(f"a request with acks=0 failed: {error}")
                return


def _refusal(version: int, request: ProduceRequest) -> Refusal | None:
    """What is wrong with a request as a whole."""
    if version < _OLDEST_SERVED:
        return Refusal(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    if request.acks not in _VALID_ACKS:
        return Refusal(ErrorCode.INVALID_REQUIRED_ACKS)
    return None


def _check_records(
    partition: Partition, batch: memoryview, clock: Clock, max_unpacked_bytes: int
) -> None:
    """Raise for records that clients may not write, or not to this topic."""
    if len(batch) < HEADER_BYTES:
        return  # the log says what is wrong with it
    if batch[_LOW_ATTRIBUTES_AT] & CONTROL_BIT:
        raise InvalidRecord(topic=partition.topic.name, reason="only the broker writes markers")
    if not _looks_inside(partition):
        return
    count = parse_header(batch).records_count
    if count > _MOST_RECORDS:
        raise InvalidRecord(
            topic=partition.topic.name,
            reason=f"its settings require a check of each record, so a batch may hold at most "
            f"{_MOST_RECORDS}; this one has {count}",
        )
    if _is_compacted(partition) and (
        keyless := keyless_records(batch, limit_bytes=max_unpacked_bytes)
    ):
        raise InvalidRecord(
            topic=partition.topic.name,
            reason="it is compacted, so every record needs a key",
            numbers=keyless,
        )
    settings = partition.topic.settings
    if not settings.bounds_timestamps:
        return
    now_ms = clock.now_ms()
    untimely = untimely_records(
        batch,
        earliest_ms=now_ms - settings.message_timestamp_before_max_ms,
        latest_ms=now_ms + settings.message_timestamp_after_max_ms,
        limit_bytes=max_unpacked_bytes,
    )
    if untimely:
        raise InvalidTimestamp(
            topic=partition.topic.name,
            reason="its time is further from now than message.timestamp.before.max.ms or "
            "message.timestamp.after.max.ms allow",
            numbers=untimely,
        )


def _looks_inside(partition: Partition) -> bool:
    """Whether a topic's settings need a look at the records of each batch."""
    settings = partition.topic.settings
    return _is_compacted(partition) or settings.bounds_timestamps or settings.codec_name is not None


def _is_compacted(partition: Partition) -> bool:
    return "compact" in partition.topic.settings.cleanup_policy


_PRODUCER = struct.Struct(">qhi")
_MOST_RECORDS = 250_000
"""In a batch whose records are checked one by one: this many take about 0.1 s."""
_SIZE = struct.Struct(">i")
_unpack_size = _SIZE.unpack_from
