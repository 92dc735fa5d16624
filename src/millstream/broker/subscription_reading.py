"""Reads for the queues of subscriptions: what comes next in a log, and what is delivered again.

Committed records only. A piece at a time, bounded in bytes and in work, so that other work comes in
between. What is delivered again is read before what comes next, the oldest first.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from millstream.broker.partition import Partition
from millstream.broker.reading import Reader
from millstream.errors import MillstreamError, RecordTooLarge
from millstream.records import Record
from millstream.subscriptions.partition_queue import PartitionQueue
from millstream.subscriptions.ready_messages import size_bytes

_log = logging.getLogger(__name__)

MOST_WORK = 5000
"""About how many records may be looked at before others have their turn: some milliseconds."""

_PAGE_RECORDS = 1000
_READY_BYTES = 1 << 20
"""With so much read ahead in a partition, no more is read."""
_ALL_READY_BYTES = 64 << 20
_LEAST_READY_BYTES = 16 << 10
_MOST_WAITING = 100_000
"""With this many that wait to be delivered again, or to be buried, no new ones are read."""
_NEAR_OFFSETS = 64
"""Offsets this close to each other are read as one."""
_NEAR_BYTES = 64 << 10
_AGAIN_BYTES = 1 << 20
_READ_WORK = 20
"""What it takes to find a place in a log, in records."""


def has_unread(queue: PartitionQueue, partition: Partition) -> bool:
    """Whether there is something to read for a queue."""
    return queue.first_again is not None or queue.position < partition.log.last_stable_offset


def fill(
    reader: Reader,
    queue: PartitionQueue,
    partition: Partition,
    *,
    read_ahead: int,
    queues: int,
    max_delayed: int,
    now_ms: int,
    wall_ms: int,
) -> int:
    """Read some; returns how much work it was, 0 if there was nothing, or no room for it.

    It is one of so many `queues`, which share the memory for what is read ahead.

    Raises MillstreamError.
    """
    log = partition.log
    queue.lose(log.start_offset)
    ready, ready_bytes = queue.ready, _ready_bytes(queues)
    room = 0 if ready.size_bytes >= ready_bytes else max(read_ahead - ready.count, 0)
    # Without room, too: what is ready is not taken before what is older.
    if queue.is_behind or (room and queue.first_again is not None):
        limit = min(read_ahead, _PAGE_RECORDS)
        work = _read_again(reader, queue, partition, limit, now_ms=now_ms, wall_ms=wall_ms)
        if ready.count > 2 * read_ahead or ready.size_bytes > 2 * (ready_bytes + _AGAIN_BYTES):
            queue.put_back(ready.trim(read_ahead, ready_bytes))
        return work
    if room and _has_room(queue, max_delayed) and queue.position < log.last_stable_offset:
        return _read_on(reader, queue, partition, room, ready_bytes, now_ms=now_ms, wall_ms=wall_ms)
    return 0


def look_ahead(
    reader: Reader,
    queue: PartitionQueue,
    partition: Partition,
    *,
    read_ahead: int,
    max_delayed: int,
    now_ms: int,
    wall_ms: int,
) -> int:
    """While nobody receives, learn what is for later, so that it comes in time to who does then.

    Of all else only the offsets are kept. Returns how much work it was. Raises MillstreamError.
    """
    queue.lose(partition.log.start_offset)
    room = read_ahead - queue.waiting_count
    is_end = queue.position >= partition.log.last_stable_offset
    if room <= 0 or is_end or not _has_room(queue, max_delayed):
        return 0
    work = _read_on(reader, queue, partition, room, _READY_BYTES, now_ms=now_ms, wall_ms=wall_ms)
    queue.forget_ready()
    return work


def _ready_bytes(queues: int) -> int:
    """What one of so many queues may read ahead."""
    return max(_LEAST_READY_BYTES, min(_READY_BYTES, _ALL_READY_BYTES // max(queues, 1)))


def _has_room(queue: PartitionQueue, max_delayed: int) -> bool:
    if queue.later_count >= max_delayed:
        return False
    return queue.refused_count + len(queue.dead) < _MOST_WAITING


def _read_on(
    reader: Reader,
    queue: PartitionQueue,
    partition: Partition,
    room: int,
    max_bytes: int,
    *,
    now_ms: int,
    wall_ms: int,
) -> int:
    try:
        page = reader.read(
            partition, queue.position, limit=min(room, _PAGE_RECORDS), max_bytes=max_bytes
        )
    except RecordTooLarge as error:
        # Nobody could ever receive it, and what comes behind it must not wait for that.
        _log.error(
            "queues of topic %(topic)s, partition %(partition)d: a message is passed over: "
            "%(error)s",
            {"topic": partition.topic.name, "partition": partition.number, "error": error},
        )
        queue.feed([], error.next_offset, now_ms=now_ms, wall_ms=wall_ms)
        return _READ_WORK
    queue.feed(page.records, page.next_offset, now_ms=now_ms, wall_ms=wall_ms)
    return _READ_WORK + len(page.records)


def _read_again(
    reader: Reader,
    queue: PartitionQueue,
    partition: Partition,
    limit: int,
    *,
    now_ms: int,
    wall_ms: int,
) -> int:
    offsets = queue.take_again(limit)
    try:
        found = read_offsets(reader, partition, offsets, max_bytes=_AGAIN_BYTES)
    except MillstreamError:
        queue.put_back(offsets)
        raise
    queue.feed_again(offsets[: found.looked_at], found.records, now_ms=now_ms, wall_ms=wall_ms)
    queue.put_back(offsets[found.looked_at :])
    return found.work


class Found(NamedTuple):
    """What was found at some offsets."""

    records: dict[int, Record]
    """Those that are there."""
    looked_at: int
    """How many of the offsets were looked at: at least one, if there are any."""
    work: int


def read_offsets(
    reader: Reader, partition: Partition, offsets: Sequence[int], *, max_bytes: int
) -> Found:
    """The records at offsets, given in order: as many as are no more than some work and bytes.

    A batch is unpacked once, however many of its records are wanted. Raises MillstreamError.
    """
    wanted, found = set(offsets), dict[int, Record]()
    at = bisect_left(offsets, partition.log.start_offset)
    work = 1
    while at < len(offsets) and work < MOST_WORK and max_bytes > 0:
        offset = offsets[at]
        is_near = at + 1 < len(offsets) and offsets[at + 1] - offset <= _NEAR_OFFSETS
        page = reader.read(
            partition,
            offset,
            limit=len(offsets) - at,
            max_bytes=max_bytes,
            wanted=wanted,
            # At least one batch is read: where the next offset is far away, no more than that.
            packed_bytes=_NEAR_BYTES if is_near else 1,
        )
        for record in page.records:
            found[record.offset] = record
            max_bytes -= size_bytes(record)
        # About how many were looked at.
        work += _READ_WORK + max(page.next_offset - offset, 0)
        # The page may have ended early, or have passed over some that are not there any more.
        at = bisect_left(offsets, max(page.next_offset, offset + 1), lo=at)
    return Found(found, at, work)
