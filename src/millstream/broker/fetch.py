"""Reading from several partitions at once, within limits of bytes.

What consumers see is everything that was appended, synced or not; see docs/decisions on acks. Who
asks for committed records only sees none at or past the last stable offset, and is told which
transactions were aborted below it, whose records are still there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millstream.broker.partition import Partition
from millstream.errors import MillstreamError
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.batch_walk import end_of_batches
from millstream.storage.partition_log import PartitionLog

_NOTHING = b""
NO_OFFSET = -1


class Wanted(NamedTuple):
    """Where to read, and how much. An error instead of a partition is handed through."""

    number: int
    partition: Partition | MillstreamError
    offset: int
    max_bytes: int
    is_committed: bool = False
    """Whether only records of transactions that have ended are wanted."""


class Found(NamedTuple):
    """What was read in one place."""

    number: int
    error: MillstreamError | None
    end_offset: int
    start_offset: int
    stable_offset: int
    records: memoryview | bytes
    aborted: Sequence[AbortedTransaction] | None = None
    """Whose records to pass over; None where that was not asked for."""


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
    number, partition, offset, max_bytes, is_committed = place
    if isinstance(partition, MillstreamError):
        return _failed(number, partition)
    records: memoryview | bytes = _NOTHING
    limit = min(max_bytes, room_bytes)
    try:
        log = partition.log
        start, end, stable = log.start_offset, log.end_offset, log.last_stable_offset
        if offset != end and (limit > 0 or is_first):
            below = stable if is_committed and stable < end else None
            records = log.read(offset, max(limit, 0), below=below)
            # A log gives at least one batch; only the first batch of all may be over the limits.
            if len(records) > limit and not is_first:
                records = _NOTHING
        aborted = _aborted(log, offset, records) if is_committed else None
    except MillstreamError as error:
        return _failed(number, error.with_traceback(None))
    return Found(number, None, end, start, stable, records, aborted)


def _aborted(
    log: PartitionLog, offset: int, records: memoryview | bytes
) -> Sequence[AbortedTransaction]:
    if not records or not log.has_aborted_transactions:
        return ()
    return log.aborted_transactions(offset, end_of_batches(records))


def _failed(number: int, error: MillstreamError) -> Found:
    return Found(number, error, NO_OFFSET, NO_OFFSET, NO_OFFSET, _NOTHING)
