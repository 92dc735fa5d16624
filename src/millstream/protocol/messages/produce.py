"""Produce (0): record batches for partitions. Written by hand: it is half of the hot path.

Versions of the request: 3 transactional id; 9 flexible; 13 topic ids in place of names.
Versions of the answer: 1 throttle time; 2 time of append; 5 start of the log; 8 errors per record;
9 flexible; 10 the current leader, tagged (never sent: there is one broker); 13 topic ids.
0 to 2 carry older record formats; they can be parsed, so that they can be refused.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from millstream.protocol.primitives import skip_tags
from millstream.protocol.wire import (
    check_places,
    count,
    read_bytes_span,
    read_count,
    read_name,
    read_string,
    reading,
    string,
)

API_KEY = 0
VERSIONS = (0, 13)
FLEXIBLE = 9
TOPIC_IDS = 13
TRANSACTIONAL = 3

ALL_REPLICAS = -1
NO_ANSWER = 0


class PartitionData(NamedTuple):
    """The place of a partition's records in the request."""

    partition: int
    records_from: int
    records_to: int


class TopicData(NamedTuple):
    """A topic, by name or by 16 bytes of id, and its partitions."""

    topic: str | bytes
    partitions: list[PartitionData]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicData]


class PartitionResult(NamedTuple):
    """What became of one partition's records."""

    partition: int
    error_code: int
    base_offset: int
    append_time_ms: int
    start_offset: int
    error_message: str | None = None
    bad_records: Sequence[int] = ()
    """Which records are at fault, by their number in the batch: `error_message` is about them."""


def parse_request(view: memoryview, position: int, version: int) -> ProduceRequest:
    """The request at `position`; what comes behind it is ignored. Raises MalformedMessage."""
    flexible = version >= FLEXIBLE
    with reading("a produce request"):
        transactional_id = None
        if version >= TRANSACTIONAL:
            transactional_id, position = read_string(view, position, flexible=flexible)
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, position)
        position += 6
        topic_count, position = read_count(view, position, flexible=flexible)
        topics = []
        places = topic_count
        for _ in range(topic_count):
            topic, position = _parse_topic(view, position, version)
            topics.append(topic)
            places += len(topic.partitions)
            check_places(places)
        if flexible:
            skip_tags(view, position, len(view))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _parse_topic(view: memoryview, position: int, version: int) -> tuple[TopicData, int]:
    flexible = version >= FLEXIBLE
    topic: str | bytes
    if version >= TOPIC_IDS:
        topic = bytes(view[position : position + 16])
        position += 16
    else:
        topic, position = read_name(view, position, flexible=flexible)
    partition_count, position = read_count(view, position, flexible=flexible)
    partitions = []
    for _ in range(partition_count):
        (partition,) = _INT32.unpack_from(view, position)
        start, end = read_bytes_span(view, position + 4, flexible=flexible)
        partitions.append(PartitionData(partition, start, end))
        position = skip_tags(view, end, len(view)) if flexible else end
    if flexible:
        position = skip_tags(view, position, len(view))
    return TopicData(topic, partitions), position


def encode_response(
    version: int, topics: Sequence[tuple[str | bytes, Sequence[PartitionResult]]]
) -> bytes:
    """The body of an answer."""
    flexible = version >= FLEXIBLE
    parts = [count(len(topics), flexible=flexible)]
    for topic, results in topics:
        parts.append(topic if isinstance(topic, bytes) else string(topic, flexible=flexible))
        parts.append(count(len(results), flexible=flexible))
        parts += [_encode_result(version, result) for result in results]
        if flexible:
            parts.append(_NO_TAGS)
    if version >= 1:
        parts.append(_NOT_THROTTLED)
    if flexible:
        parts.append(_NO_TAGS)
    return b"".join(parts)


def _encode_result(version: int, result: PartitionResult) -> bytes:
    flexible = version >= FLEXIBLE
    out = _RESULT.pack(result.partition, result.error_code, result.base_offset)
    if version >= 2:
        out += _INT64.pack(result.append_time_ms)
    if version >= 5:
        out += _INT64.pack(result.start_offset)
    if version >= 8:
        out += count(len(result.bad_records), flexible=flexible)
        if result.bad_records:
            # Without a message of their own: clients take that of the partition.
            no_message = _encode_message(None, flexible=flexible) + (_NO_TAGS if flexible else b"")
            out += b"".join([_INT32.pack(number) + no_message for number in result.bad_records])
        out += _encode_message(result.error_message, flexible=flexible)
    if flexible:
        out += _NO_TAGS
    return out


def _encode_message(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    return string(text, flexible=flexible)


def answer_struct(version: int, topic: str | bytes) -> tuple[struct.Struct, bytes, bytes]:
    """What packs answers about one partition of one topic, of which there may be thousands.

    The struct takes: size, correlation id, the first bytes returned here, partition, error code,
    base offset, append time, start offset, the last bytes returned here. From version 5 on.
    """
    flexible = version >= FLEXIBLE
    name = topic if isinstance(topic, bytes) else string(topic, flexible=flexible)
    tags = _NO_TAGS if flexible else b""
    # The header of an answer has tagged fields where its body may have them.
    before = tags + count(1, flexible=flexible) + name + count(1, flexible=flexible)
    after = b""
    if version >= 8:
        after += count(0, flexible=flexible) + _encode_message(None, flexible=flexible)
    after += tags + tags + _NOT_THROTTLED + tags
    return struct.Struct(f">ii{len(before)}sihqqq{len(after)}s"), before, after


_ACKS_TIMEOUT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_RESULT = struct.Struct(">ihq")
_NO_TAGS = b"\0"
_NOT_THROTTLED = b"\0\0\0\0"
