"""Decides which batches of a segment get index entries, and encodes them.

One rule for the append path, compaction and rebuilding, so that an index is always what a scan of
its record file would give.

Invariant: the entries gathered are those of the batches added so far, in their order.
"""

from __future__ import annotations

from millstream.storage.offset_index import SEAL, TRANSACTIONAL_SEAL, encode_entry
from millstream.storage.time_index import encode_time_entry

NO_TIMESTAMP = -1


class IndexBuilder:
    """Gathers entries of the offset index and of the time index of one segment."""

    __slots__ = (
        "interval_bytes",
        "last_position",
        "last_time_ms",
        "last_time_offset",
        "max_timestamp_ms",
        "offset_entries",
        "time_entries",
    )

    def __init__(
        self,
        interval_bytes: int,
        *,
        last_position: int | None = None,
        max_timestamp_ms: int = NO_TIMESTAMP,
        last_time_ms: int = NO_TIMESTAMP,
        last_time_offset: int = -1,
    ) -> None:
        self.interval_bytes = interval_bytes
        # So that the first batch of a segment always gets an entry.
        self.last_position = -interval_bytes if last_position is None else last_position
        self.max_timestamp_ms = max_timestamp_ms
        self.last_time_ms = last_time_ms
        self.last_time_offset = last_time_offset
        self.offset_entries = bytearray()
        self.time_entries = bytearray()

    def add(
        self, offset: int, position: int, size: int, max_timestamp_ms: int, *, follows: bool = True
    ) -> None:
        """Note a batch; `follows` says that its offset continues the batch before."""
        if position - self.last_position >= self.interval_bytes or not follows:
            self.last_position = position
            self.offset_entries += encode_entry(offset, position, size)
            if self.max_timestamp_ms > self.last_time_ms:
                self._add_time(offset)
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms

    def _add_time(self, offset: int) -> None:
        self.time_entries += encode_time_entry(self.max_timestamp_ms, offset)
        self.last_time_ms = self.max_timestamp_ms
        self.last_time_offset = offset

    def seal_times(self, next_offset: int) -> None:
        """Let the last entry of the time index tell where the segment ends for now."""
        if self.last_time_offset != next_offset:
            self._add_time(next_offset)

    def seal(self, next_offset: int, size: int, *, is_transactional: bool = False) -> None:
        """Add what ends the index of a segment that takes no more batches."""
        kind = TRANSACTIONAL_SEAL if is_transactional else SEAL
        self.offset_entries += encode_entry(next_offset, size, kind)
        self.seal_times(next_offset)
