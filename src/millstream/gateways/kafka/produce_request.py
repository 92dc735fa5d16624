"""Produce requests that wait to be stored, and what to answer to them afterwards.

A request for one partition is likely to be followed by many that differ in their records alone: a
RepeatedRequest stands for all of them. A ParsedRequest is one of any other kind.
Cost: benchmarks/small_requests.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.broker.append_cycle import NO_TIME, Appended
from millstream.broker.partition import Partition
from millstream.errors import InvalidRecord, MillstreamError, Superseded
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.protocol.headers import response_header
from millstream.protocol.messages.produce import (
    FLEXIBLE,
    PartitionResult,
    answer_struct,
    encode_response,
)

NO_OFFSET = -1

Stored = tuple[Appended, int]
"""Where the outcome of a batch is, and under which number."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a batch was not even tried, by a code other than that of its error."""

    code: ErrorCode
    reason: str | None = None


Judged = Stored | MillstreamError | Refusal
"""The same, or why the batch was not even tried."""


_Topic = tuple[str | bytes, list[tuple[int, Judged]]]
"""A topic's name or id, and its partitions."""


class RepeatedRequest:
    """What one-partition requests of a client have in common."""

    __slots__ = (
        "acks",
        "after",
        "before",
        "flexible",
        "generation",
        "number",
        "pack",
        "partition",
        "prefix",
        "size",
        "tail",
        "timeout_ms",
        "topic",
        "version",
    )

    def __init__(
        self,
        *,
        partition: Partition,
        generation: int,
        version: int,
        acks: int,
        timeout_ms: int,
        topic: str | bytes,
        number: int,
        prefix: bytes,
    ) -> None:
        self.partition = partition
        self.generation = generation
        self.version = version
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic = topic
        self.number = number
        self.prefix = prefix
        self.flexible = version >= FLEXIBLE
        # No tagged fields: of the partition, the topic and the request.
        self.tail = b"\0\0\0" if self.flexible else b""
        layout, self.before, self.after = answer_struct(version, topic)
        self.pack = layout.pack
        self.size = layout.size - 4

    def encode(self, correlation_id: int, stored: Stored) -> bytes:
        """A whole answer."""
        appended, place = stored
        outcome = appended.outcomes[place]
        if outcome.__class__ is not int:
            return _answer(self.version, correlation_id, [(self.topic, [(self.number, stored)])])
        return self.pack(
            self.size,
            correlation_id,
            self.before,
            self.number,
            0,
            outcome,
            appended.append_time_ms,
            self.partition.log.start_offset,
            self.after,
        )

    def error(self, stored: Stored | None) -> object:
        """Why it failed, if it did."""
        assert stored is not None
        outcome = stored[0].outcomes[stored[1]]
        return None if isinstance(outcome, int) else outcome


class ParsedRequest:
    """A request for any number of partitions."""

    __slots__ = (
        "acks",
        "places",
        "settled_at",
        "superseded",
        "timeout_ms",
        "topics",
        "transactional_id",
        "version",
    )

    def __init__(
        self, version: int, acks: int, timeout_ms: int, transactional_id: str | None
    ) -> None:
        self.version = version
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.transactional_id = transactional_id
        self.topics: list[_Topic] = []
        self.places: frozenset[tuple[str, int]] = frozenset()
        """Where it writes to, if that is to become part of a transaction."""
        self.superseded: Superseded | None = None
        """Set where its producer has gone on with a newer connection: this one is to be closed."""
        self.settled_at = 0
        """Up to where the log of transactions must be durable for it to be answered."""

    def encode(self, correlation_id: int, _: object) -> bytes:
        """A whole answer."""
        return _answer(self.version, correlation_id, self.topics)

    def error(self, _: object) -> object:
        """Why one of its parts failed, if it did."""
        results = (_result(n, stored) for _, some in self.topics for n, stored in some)
        return next((r.error_message or r.error_code for r in results if r.error_code), None)

    def appended(self) -> list[Appended]:
        """Everything that it had stored, or tried to."""
        return [
            stored[0] for _, some in self.topics for _, stored in some if isinstance(stored, tuple)
        ]


def _answer(version: int, correlation_id: int, topics: Sequence[_Topic]) -> bytes:
    body = encode_response(
        version,
        [(topic, [_result(n, judged) for n, judged in some]) for topic, some in topics],
    )
    head = response_header(correlation_id, flexible=version >= FLEXIBLE)
    return _SIZE.pack(len(head) + len(body)) + head + body


def _result(number: int, stored: Judged) -> PartitionResult:
    if isinstance(stored, Refusal):
        return PartitionResult(number, stored.code, NO_OFFSET, NO_TIME, NO_OFFSET, stored.reason)
    if isinstance(stored, tuple):
        appended, place = stored
        outcome = appended.outcomes[place]
        if isinstance(outcome, int):
            start_offset = appended.partition.log.start_offset
            return PartitionResult(number, 0, outcome, appended.append_time_ms, start_offset)
        stored = outcome
    bad_records = stored.numbers if isinstance(stored, InvalidRecord) else ()
    return PartitionResult(
        number, code_of(stored), NO_OFFSET, NO_TIME, NO_OFFSET, str(stored), bad_records
    )


Entry = tuple[RepeatedRequest | ParsedRequest, int, Stored | None]
"""A request, its correlation id, and where its outcome is unless it knows that itself."""


def encode_all(entries: list[Entry]) -> bytes:
    return b"".join(
        [request.encode(correlation, stored) for request, correlation, stored in entries]  # type: ignore[arg-type]
    )


_SIZE = struct.Struct(">i")
