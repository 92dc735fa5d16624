"""Reading from several partitions at once, within limits of bytes.

What consumers see is everything that was appended, synced or not; see docs/decisions on acks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millstream.broker.partition import Partition
from millstream.errors import MillstreamError

_NOTHING = b""
NO_OFFSET = -1


class Wanted(NamedTuple):
    """Where to read, and how much. An error instead of a partition is handed through."""

    number: int
    partition: Partition | MillstreamError
    offset: int
    max_bytes: int


class Found(NamedTuple):
    """What was read in one place."""

    number: int
    error: MillstreamError | None
    end_offset: int
    start_offset: int
    records: memoryview | bytes


class Reading(NamedTuple):
    """What was found in all places, in the order they were asked for."""

    found: list[Found]
    size: int
    has_errors: bool


def read(wanted: Sequence[Wanted], *, max_bytes: int) -> Reading:
    """Read each place. At most `max_bytes`, except that the first batch found always comes."""
    found = []
    size = 0
    has_errors = False
    for place in wanted:
        one = _read_one(place, max_bytes - size, is_first=not size)
        size += len(one.records)
        has_errors = has_errors or one.error is not None
        found.append(one)
    return Reading(found, size, has_errors)


def _read_one(place: Wanted, room_bytes: int, *, is_first: bool) -> Found:
    number, partition, offset, max_bytes = place
    if isinstance(partition, MillstreamError):
        return Found(number, partition, NO_OFFSET, NO_OFFSET, _NOTHING)
    records: memoryview | bytes = _NOTHING
    limit = min(max_bytes, room_bytes)
    try:
        log = partition.log
        start, end = log.start_offset, log.end_offset
        if offset != end and (limit > 0 or is_first):
            records = log.read(offset, max(limit, 0))
            # A log gives at least one batch; only the first batch of all may be over the limits.
            if len(records) > limit and not is_first:
                records = _NOTHING
    except MillstreamError as error:
        return Found(number, error.with_traceback(None), NO_OFFSET, NO_OFFSET, _NOTHING)
    return Found(number, None, end, start, records)
