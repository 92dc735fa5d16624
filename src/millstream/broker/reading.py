"""Records for listeners that know no batches: read, unpacked, and waited for where there are none.

By default only what counts: records of transactions that were committed, and no markers.

Invariant: a page says where the next one begins, also where it holds no records.
Memory: a batch is unpacked as far as its records fit into the page. Where a page ends within a
batch, the unpacking is kept for the next page; the number and size of these are bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from millstream.broker.partition import Partition
from millstream.broker.purgatory import Waiting
from millstream.errors import CorruptData, RecordTooLarge
from millstream.records import Record
from millstream.records.batch import CODEC_BITS, HEADER_BYTES, BatchHeader
from millstream.records.compression import working_bytes
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.batch_walk import end_of_batches
from millstream.storage.stored_records import stored_batches, stored_records

DEFAULT_BYTES = 1 << 20
DEFAULT_RECORD_BYTES = 16 << 20
_KEPT_BYTES = 32 << 20
"""For batches of which a page has taken a part."""
_RECORD_OVERHEAD_BYTES = 64


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
        self._unfinished = _Unfinished()
        self.waiting = 0
        """How many wait for more than there is."""

    def read(
        self,
        partition: Partition,
        offset: int,
        *,
        limit: int,
        max_bytes: int = DEFAULT_BYTES,
        max_record_bytes: int = DEFAULT_RECORD_BYTES,
        is_committed: bool = True,
        wanted: Container[int] | None = None,
        packed_bytes: int | None = None,
        owner: object = None,
    ) -> Page:
        """Records from an offset on: at most `limit`, and about `max_bytes`; at least one batch is
        looked into, and one record given, whatever its size up to `max_record_bytes`.

        Only those at `wanted` offsets, if they are given, from batches of about `packed_bytes`.
        Several callers may read the same batch. A caller that reads page after page passes itself
        as `owner`, so that no other caller continues its unpacking.

        Raises OffsetOutOfRange, CorruptData, RecordTooLarge, StorageFailure.
        """
        log = partition.log
        end_offset = log.last_stable_offset if is_committed else log.end_offset
        page = Page([], offset, log.start_offset, end_offset)
        if offset == end_offset:
            return page
        below = end_offset if end_offset < log.end_offset else None
        batches = log.read(offset, packed_bytes or max_bytes, below=below)
        aborted: Sequence[AbortedTransaction] = ()
        if batches and is_committed and log.has_aborted_transactions:
            aborted = log.aborted_transactions(offset, end_of_batches(batches))
        records = page.records
        room_bytes = max_bytes
        try:
            for header, batch in stored_batches(batches, offset, end_offset=log.end_offset):
                if not header.is_control and not _is_aborted(header, aborted):
                    key = (owner, partition, max_record_bytes)
                    unpacking = self._unfinished.take(key, offset, header)
                    if unpacking is None:
                        unpacking = self._unpacking(header, batch, offset, max_record_bytes)
                    room_bytes = unpacking.take(records, limit, room_bytes, wanted)
                    if unpacking.left is not None:
                        self._unfinished.keep(key, unpacking)
                        return page._replace(next_offset=unpacking.left.offset)
                # Past what compaction took out of it, too.
                offset = max(offset, header.next_offset)
        except (CorruptData, RecordTooLarge) as fault:
            if isinstance(fault, CorruptData):
                partition.note_damage(fault)
            if not records:
                raise
            # Who reads on is told. What was taken before is sound.
            offset = max(offset, records[-1].offset + 1)
        return page._replace(next_offset=offset)

    def _unpacking(
        self, header: BatchHeader, batch: memoryview, offset: int, max_record_bytes: int
    ) -> _Unpacking:
        """The records of a batch from an offset on."""
        records = stored_records(
            batch,
            limit_bytes=self._max_unpacked_bytes,
            record_limit_bytes=min(max_record_bytes, self._max_unpacked_bytes),
            from_offset=offset,
        )
        cost_bytes = len(batch) + working_bytes(
            header.attributes & CODEC_BITS, batch[HEADER_BYTES:]
        )
        return _Unpacking(header, records, cost_bytes)

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


class _Unpacking:
    """A batch that is taken apart, perhaps for one reader after another."""

    __slots__ = ("_records", "cost_bytes", "header", "left")

    def __init__(self, header: BatchHeader, records: Iterator[Record], cost_bytes: int) -> None:
        self.header = header
        self.cost_bytes = cost_bytes
        """What it takes to keep it."""
        self.left: Record | None = None
        """The first one for which there was no room."""
        self._records = records

    def take(
        self,
        records: list[Record],
        limit: int,
        room_bytes: int,
        wanted: Container[int] | None,
    ) -> int:
        """Move records into a list while there is room; returns how many bytes are left of it.

        The first one is taken in any case. What is left over is in `left`.
        """
        left, self.left = self.left, None
        for record in chain((left,), self._records) if left is not None else self._records:
            if len(records) == limit or (room_bytes <= 0 and records):
                self.left = record
                break
            offset, _, key, value, headers = record
            if wanted is not None and offset not in wanted:
                continue
            records.append(record)
            room_bytes -= _RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
            if headers:
                room_bytes -= sum(len(name) + len(content or b"") for name, content in headers)
        return room_bytes


class _Unfinished:
    """Batches that were taken apart in part, by who will read on where. Bounded in bytes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, int], _Unpacking] = OrderedDict()
        self._kept_bytes = 0

    def take(self, key: object, offset: int, header: BatchHeader) -> _Unpacking | None:
        found = self._kept.pop((key, offset), None)
        if found is None:
            return None
        self._kept_bytes -= found.cost_bytes
        return found if found.header == header else None

    def keep(self, key: object, unpacking: _Unpacking) -> None:
        assert unpacking.left is not None, "somebody will read on"
        place = (key, unpacking.left.offset)
        self.take(*place, unpacking.header)
        self._kept[place] = unpacking
        self._kept_bytes += unpacking.cost_bytes
        while self._kept_bytes > _KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.cost_bytes


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
