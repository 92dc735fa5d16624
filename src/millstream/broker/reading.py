"""Records for doors that know no batches: read, unpacked, and waited for where there are none.

By default only what counts: records of transactions that were committed, and no markers.

Invariant: a page says where the next one begins, also where it holds no records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millstream.broker.partition import Partition
from millstream.broker.purgatory import Waiting
from millstream.records import Record, records_of
from millstream.records.batch import BatchHeader
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.batch_walk import end_of_batches, split_batches

DEFAULT_BYTES = 1 << 20


class Page(NamedTuple):
    """Some records of a partition, one after the other."""

    records: list[Record]
    next_offset: int
    start_offset: int
    end_offset: int
    """For who reads committed records, the last stable one."""


class Reader:
    """Reads records of partitions."""

    def __init__(self, *, max_unpacked_bytes: int) -> None:
        self._max_unpacked_bytes = max_unpacked_bytes
        self.waiting = 0
        """How many wait for more than there is."""

    def read(
        self,
        partition: Partition,
        offset: int,
        *,
        limit: int,
        max_bytes: int = DEFAULT_BYTES,
        is_committed: bool = True,
    ) -> Page:
        """At most `limit` records from an offset on; at least one batch is looked into.

        Raises OffsetOutOfRange, CorruptData, StorageFailure.
        """
        log = partition.log
        end_offset = log.last_stable_offset if is_committed else log.end_offset
        records: list[Record] = []
        if offset != end_offset:
            below = end_offset if end_offset < log.end_offset else None
            batches = log.read(offset, max_bytes, below=below)
            aborted: Sequence[AbortedTransaction] = ()
            if batches and is_committed and log.has_aborted_transactions:
                aborted = log.aborted_transactions(offset, end_of_batches(batches))
            for header, batch in split_batches(batches):
                if not header.is_control and not _is_aborted(header, aborted):
                    for record in self._unpacked(batch, offset):
                        if len(records) == limit:
                            return Page(records, offset, log.start_offset, end_offset)
                        records.append(record)
                        offset = record.offset + 1
                # Past what compaction took out of it, too.
                offset = max(offset, header.next_offset)
        return Page(records, offset, log.start_offset, end_offset)

    async def wait(
        self, partition: Partition, offset: int, *, timeout_ms: int, is_committed: bool = True
    ) -> None:
        """Return when there is more than up to an offset, or after a time."""
        if _end(partition, is_committed=is_committed) > offset or timeout_ms <= 0:
            return
        done = asyncio.get_running_loop().create_future()

        def attempt(is_last: bool) -> bool:
            if is_last or _end(partition, is_committed=is_committed) > offset:
                if not done.done():
                    done.set_result(None)
                return True
            return False

        waiting = Waiting([partition], timeout_ms=timeout_ms, attempt=attempt)
        self.waiting += 1
        try:
            await done
        finally:
            self.waiting -= 1
            waiting.give_up()

    def _unpacked(self, batch: memoryview, offset: int) -> Iterator[Record]:
        for record in records_of(batch, limit_bytes=self._max_unpacked_bytes):
            if record.offset >= offset:
                yield record


def _end(partition: Partition, *, is_committed: bool) -> int:
    """Where the log ends for a reader."""
    log = partition.log
    return log.last_stable_offset if is_committed else log.end_offset


def _is_aborted(header: BatchHeader, aborted: Sequence[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        each.producer_id == header.producer_id
        and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )
