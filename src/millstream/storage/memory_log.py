"""A partition's log in memory: the `memory` engine, for tests and simulation.

Invariant: batches lie in order of offset, and none reaches past `end_offset`.
After a crash: gone. A sync has nothing to do, but is asked for and answered as on a disk, so that
code above cannot tell the difference.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from millstream.clock import Clock
from millstream.errors import Conflict, OffsetOutOfRange, StorageFailure
from millstream.records import BatchHeader, parse_header
from millstream.settings.domain import INT_MAX
from millstream.settings.log import LogSettings
from millstream.storage.aborted_transactions import AbortedTransaction, overlapping
from millstream.storage.batch_admission import Outcome, Run, admit
from millstream.storage.partition_log import SyncTask, TimedOffset
from millstream.storage.producer_state import TRANSACTION_BITS, ProducerStates
from millstream.storage.time_search import first_at_or_after, first_of_largest

# How often, in the time after which a producer expires, to look for such producers.
_EXPIRY_CHECKS = 10


class _Stored(NamedTuple):
    """A batch and its header, which carries the offsets it was given."""

    header: BatchHeader
    content: bytes


class _MemorySync(NamedTuple):
    target_offset: int

    def run(self) -> None:
        """Nothing to wait for."""


class MemoryLog:
    """A partition log in a list."""

    def __init__(
        self,
        name: str,
        settings: LogSettings,
        clock: Clock,
        *,
        max_decompressed_bytes: int = 128 << 20,
    ) -> None:
        self._name = name
        # It has no segments that could be full.
        self._settings = replace(settings, segment_bytes=INT_MAX)
        self._clock = clock
        self._max_decompressed_bytes = max_decompressed_bytes
        self._producers = ProducerStates()
        self._next_expiry_ms = 0
        self._batches: list[_Stored] = []
        self._start_offset = 0
        self._end_offset = 0
        self._synced_offset = 0
        self.appended_bytes = 0
        self._syncs_under_way = 0
        self._failure: StorageFailure | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def start_offset(self) -> int:
        return self._start_offset

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def synced_offset(self) -> int:
        return self._synced_offset

    @property
    def last_stable_offset(self) -> int:
        return self._producers.transactions.stable_offset(self._end_offset, self._start_offset)

    @property
    def producers(self) -> ProducerStates:
        return self._producers

    def append(self, batches: Sequence[bytearray | memoryview]) -> list[Outcome]:
        """See PartitionLog."""
        if self._failure is not None:
            return [self._failure] * len(batches)
        now_ms = self._clock.now_ms()
        self._expire_producers(now_ms)
        outcomes: list[Outcome] = []
        run = Run(self._end_offset, 0)
        admit(
            batches,
            outcomes,
            self._producers,
            run,
            settings=self._settings,
            now_ms=now_ms,
        )
        self._batches += [_Stored(parse_header(part), bytes(part)) for part in run.parts]
        self._end_offset = run.end_offset
        self.appended_bytes += run.end_position
        return outcomes

    def read(self, offset: int, max_bytes: int, *, below: int | None = None) -> memoryview:
        """See PartitionLog."""
        if not self._start_offset <= offset <= self._end_offset:
            raise self._out_of_range(offset)
        end = len(self._batches) if below is None else self._number_of(below)
        parts: list[bytes] = []
        room_bytes = max_bytes
        for number in range(self._number_of(offset), end):
            content = self._batches[number].content
            room_bytes -= len(content)
            if parts and room_bytes < 0:
                break
            parts.append(content)
        return memoryview(b"".join(parts))

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """See PartitionLog."""
        return overlapping(self._producers.transactions.aborted, from_offset, to_offset)

    @property
    def has_aborted_transactions(self) -> bool:
        return self._producers.transactions.has_aborted

    def offset_for_time(self, timestamp_ms: int) -> TimedOffset | None:
        """See PartitionLog."""
        return first_at_or_after(
            self,
            timestamp_ms,
            from_offset=self._start_offset,
            limit_bytes=self._max_decompressed_bytes,
        )

    def offset_of_max_timestamp(self) -> TimedOffset | None:
        """See PartitionLog."""
        return first_of_largest(self, limit_bytes=self._max_decompressed_bytes)

    def delete_records(self, before_offset: int) -> int:
        """See PartitionLog."""
        if not 0 <= before_offset <= self.last_stable_offset:
            raise self._out_of_range(before_offset, self.last_stable_offset)
        self._start_offset = max(self._start_offset, before_offset)
        del self._batches[: self._number_of(self._start_offset)]
        return self._start_offset

    def truncate(self, end_offset: int) -> None:
        """See PartitionLog."""
        first_dropped = self._number_of(end_offset)
        if first_dropped == len(self._batches):
            return
        if self._syncs_under_way:
            # It would then vouch for what is appended after this.
            raise Conflict(f"{self._name} is being synced: truncate it after that")
        self._end_offset = self._batches[first_dropped].header.base_offset
        dropped = self._batches[first_dropped:]
        del self._batches[first_dropped:]
        self._start_offset = min(self._start_offset, self._end_offset)
        self._synced_offset = min(self._synced_offset, self._end_offset)
        is_exact = not self._producers.truncate(self._end_offset)
        if not is_exact or any(s.header.attributes & TRANSACTION_BITS for s in dropped):
            self._replay_producers()

    def begin_sync(self) -> SyncTask:
        """See PartitionLog."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        self._syncs_under_way += 1
        return _MemorySync(self._end_offset)

    def finish_sync(self, task: SyncTask, error: OSError | None) -> None:
        """See PartitionLog."""
        self._syncs_under_way -= 1
        if error is not None:
            self._failure = StorageFailure(path=self._name, operation="sync", reason=str(error))
        elif self._failure is None:
            self._synced_offset = max(self._synced_offset, task.target_offset)

    def close(self) -> None:
        """See PartitionLog."""
        if self._failure is None:
            self._synced_offset = self._end_offset

    def _number_of(self, offset: int) -> int:
        """The number of the first batch that reaches an offset."""
        return bisect_left(self._batches, offset, key=lambda stored: stored.header.last_offset)

    def _out_of_range(self, offset: int, end_offset: int | None = None) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            offset=offset,
            start_offset=self._start_offset,
            end_offset=self._end_offset if end_offset is None else end_offset,
        )

    def _replay_producers(self) -> None:
        self._producers = ProducerStates()
        now_ms = self._clock.now_ms()
        for header, content in self._batches:
            self._producers.replay(header, memoryview(content), timestamp_ms=now_ms)

    def _expire_producers(self, now_ms: int) -> None:
        if now_ms >= self._next_expiry_ms:
            expiration_ms = self._settings.producer_id_expiration_ms
            self._producers.expire(now_ms=now_ms, expiration_ms=expiration_ms)
            self._next_expiry_ms = now_ms + max(1, expiration_ms // _EXPIRY_CHECKS)
