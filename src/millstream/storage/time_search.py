"""Finds records by their time: the last, exact step, which looks into batches.

Headers are enough to pass over most batches; only those that may hold the answer are unpacked, to
at most `limit_bytes`. Control batches hold no records for anyone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from millstream.errors import CorruptData, RecordTooLarge
from millstream.storage.log_walk import sound_batches
from millstream.storage.partition_log import PartitionLog, TimedOffset
from millstream.storage.segment_chain import SegmentChain
from millstream.storage.stored_records import stored_times


def first_at_or_after(
    log: PartitionLog, timestamp_ms: int, *, from_offset: int, limit_bytes: int
) -> TimedOffset | None:
    """The first record at or past `from_offset` whose timestamp is at least `timestamp_ms`."""
    for header, batch in sound_batches(log, from_offset):
        if header.max_timestamp_ms >= timestamp_ms and not header.is_control:
            for offset, time_ms in _times(batch, limit_bytes):
                if time_ms >= timestamp_ms and offset >= from_offset:
                    return TimedOffset(offset, time_ms)
    return None


def first_in_chain(
    log: PartitionLog, chain: SegmentChain, timestamp_ms: int, *, limit_bytes: int
) -> TimedOffset | None:
    """The same for the whole log, whose segments tell which of them cannot hold it."""
    for segment in chain.segments:
        if segment.size and chain.max_timestamp(segment) >= timestamp_ms:
            offset = max(chain.offset_before(segment, timestamp_ms), log.start_offset)
            found = first_at_or_after(
                log, timestamp_ms, from_offset=offset, limit_bytes=limit_bytes
            )
            if found is not None:
                return found
    return None


def first_of_largest(log: PartitionLog, *, limit_bytes: int) -> TimedOffset | None:
    """The first record with the largest timestamp in the whole log."""
    best: TimedOffset | None = None
    for header, batch in sound_batches(log, log.start_offset):
        if header.is_control:
            continue
        if best is None or header.max_timestamp_ms > best.timestamp_ms:
            for offset, time_ms in _times(batch, limit_bytes):
                newer = best is None or time_ms > best.timestamp_ms
                if newer and offset >= log.start_offset:
                    best = TimedOffset(offset, time_ms)
    return best


def _times(batch: memoryview, limit_bytes: int) -> Iterator[tuple[int, int]]:
    """Offsets and times in a batch, up to where it is damaged or its sender made it unreadable."""
    with suppress(CorruptData, RecordTooLarge):
        yield from stored_times(batch, limit_bytes=limit_bytes)
