"""Fetch (1): batches from partitions. Written by hand: it is half of the hot path.

Versions of the request: 5 the follower's start of log; 7 sessions; 9 leader epoch; 11 rack;
12 flexible, last fetched epoch; 13 topic ids in place of names; 15 the replica's id is tagged;
17 the replica's directory is tagged.
Versions of the answer: 5 start of the log; 7 error code and session; 11 preferred replica;
12 flexible; 13 topic ids; 16 the leaders' addresses, tagged (never sent: there is one broker).

An answer is a list of parts: the batches in it are views of the log's own memory, and are never
copied here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from millstream.protocol.primitives import skip_tags, varint
from millstream.protocol.wire import (
    check_places,
    count,
    read_count,
    read_name,
    read_string,
    reading,
    string,
)

API_KEY = 1
VERSIONS = (4, 17)
FLEXIBLE = 12
TOPIC_IDS = 13

_START_OFFSET = 5
_SESSIONS = 7
_LEADER_EPOCH = 9
_RACK = 11
_LAST_EPOCH = 12
_REPLICA_TAGGED = 15

NO_SESSION = 0


class FetchPartition(NamedTuple):
    """From where to read in a partition, and how much."""

    partition: int
    leader_epoch: int
    """-1 where the client does not say."""
    offset: int
    max_bytes: int


class FetchTopic(NamedTuple):
    """A topic, by name or by 16 bytes of id, and its partitions."""

    topic: str | bytes
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    session_id: int
    topics: list[FetchTopic]


class FetchedPartition(NamedTuple):
    """What was found in a partition."""

    partition: int
    error_code: int
    high_watermark: int
    stable_offset: int
    start_offset: int
    records: memoryview | bytes
    aborted: Sequence[tuple[int, int]] | None = None
    """Producer id and first offset of aborted transactions; None where nobody asked."""


def parse_request(view: memoryview, position: int, version: int) -> FetchRequest:
    """The request at `position`; what comes behind it is ignored. Raises MalformedMessage."""
    flexible = version >= FLEXIBLE
    with reading("a fetch request"):
        if version < _REPLICA_TAGGED:
            position += 4
        max_wait_ms, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(view, position)
        position += 13
        session_id = NO_SESSION
        if version >= _SESSIONS:
            (session_id,) = _INT32.unpack_from(view, position)
            position += 8
        topic_count, position = read_count(view, position, flexible=flexible)
        topics = []
        places = topic_count
        for _ in range(topic_count):
            topic, position = _parse_topic(view, position, version)
            topics.append(topic)
            places += len(topic.partitions)
            check_places(places)
        _skip_rest(view, position, version, places)
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, isolation == 1, session_id, topics)


def _parse_topic(view: memoryview, position: int, version: int) -> tuple[FetchTopic, int]:
    flexible = version >= FLEXIBLE
    topic, position = _read_topic(view, position, version)
    partition_count, position = read_count(view, position, flexible=flexible)
    layout, names = _PARTITIONS[version]
    partitions = []
    for _ in range(partition_count):
        fields = (*layout.unpack_from(view, position), _ABSENT)
        position += layout.size
        if flexible:
            position = skip_tags(view, position, len(view))
        partitions.append(FetchPartition(*(fields[number] for number in names)))
    if flexible:
        position = skip_tags(view, position, len(view))
    return FetchTopic(topic, partitions), position


def _read_topic(view: memoryview, position: int, version: int) -> tuple[str | bytes, int]:
    if version >= TOPIC_IDS:
        return bytes(view[position : position + 16]), position + 16
    return read_name(view, position, flexible=version >= FLEXIBLE)


def _skip_rest(view: memoryview, position: int, version: int, places: int) -> None:
    """Topics that a session forgets, and the client's rack: read to see that they are whole."""
    flexible = version >= FLEXIBLE
    if version >= _SESSIONS:
        forgotten, position = read_count(view, position, flexible=flexible)
        check_places(places + forgotten)
        for _ in range(forgotten):
            _, position = _read_topic(view, position, version)
            partitions, position = read_count(view, position, flexible=flexible)
            position += 4 * partitions
            if flexible:
                position = skip_tags(view, position, len(view))
    if version >= _RACK:
        _, position = read_string(view, position, flexible=flexible)
    if flexible:
        skip_tags(view, position, len(view))


def encode_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | bytes, Sequence[FetchedPartition]]],
    *,
    error_code: int = 0,
) -> list[bytes | memoryview]:
    """A whole answer, from its size on, in parts to be sent one after the other."""
    flexible = version >= FLEXIBLE
    out = bytearray(_HEAD.pack(0, correlation_id))
    if flexible:
        out += _NO_TAGS
    out += _NOT_THROTTLED
    if version >= _SESSIONS:
        out += _ERROR_SESSION.pack(error_code, NO_SESSION)
    out += count(len(topics), flexible=flexible)
    parts: list[bytes | memoryview] = []
    size = -4
    for topic, partitions in topics:
        out += topic if isinstance(topic, bytes) else string(topic, flexible=flexible)
        out += count(len(partitions), flexible=flexible)
        for found in partitions:
            out += _encode_partition(version, found)
            records = found.records
            if records:
                parts += (bytes(out), records)
                size += len(out) + len(records)
                out.clear()
            if flexible:
                out += _NO_TAGS
        if flexible:
            out += _NO_TAGS
    if flexible:
        out += _NO_TAGS
    parts.append(bytes(out))
    first = bytearray(parts[0])
    _INT32.pack_into(first, 0, size + len(out))
    parts[0] = bytes(first)
    return parts


def _encode_partition(version: int, found: FetchedPartition) -> bytes:
    """Everything before the records."""
    flexible = version >= FLEXIBLE
    out = _FOUND.pack(found.partition, found.error_code, found.high_watermark, found.stable_offset)
    if version >= _START_OFFSET:
        out += _INT64.pack(found.start_offset)
    out += _encode_aborted(found.aborted, flexible=flexible)
    if version >= _RACK:
        out += _NO_REPLICA
    size = len(found.records)
    return out + (varint(size + 1) if flexible else _INT32.pack(size))


def _encode_aborted(aborted: Sequence[tuple[int, int]] | None, *, flexible: bool) -> bytes:
    if aborted is None:
        return b"\0" if flexible else _NULL_ARRAY
    end = _NO_TAGS if flexible else b""
    return count(len(aborted), flexible=flexible) + b"".join(
        [_ABORTED.pack(*each) + end for each in aborted]
    )


def _partition_layout(version: int) -> tuple[struct.Struct, list[int]]:
    """How a partition of a request is packed, and where in it our four fields are."""
    fields = [("partition", "i")]
    if version >= _LEADER_EPOCH:
        fields.append(("leader_epoch", "i"))
    fields.append(("offset", "q"))
    if version >= _LAST_EPOCH:
        fields.append(("previous_epoch", "i"))
    if version >= _START_OFFSET:
        fields.append(("start_offset", "q"))
    fields.append(("max_bytes", "i"))
    names = [name for name, _ in fields]
    layout = struct.Struct(">" + "".join(code for _, code in fields))
    # One past the last field is what stands for a field that this version lacks.
    places = [names.index(name) if name in names else len(names) for name in FetchPartition._fields]
    return layout, places


_ABSENT = -1
_LIMITS = struct.Struct(">iiib")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_HEAD = struct.Struct(">ii")
_ERROR_SESSION = struct.Struct(">hi")
_FOUND = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_NO_TAGS = b"\0"
_NOT_THROTTLED = b"\0\0\0\0"
_NULL_ARRAY = b"\xff\xff\xff\xff"
_NO_REPLICA = b"\xff\xff\xff\xff"
_PARTITIONS = {
    version: _partition_layout(version) for version in range(VERSIONS[0], VERSIONS[1] + 1)
}
