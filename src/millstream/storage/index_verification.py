"""Holds the index files of one segment against what a scan of its record file meets.

It takes the place of the IndexBuilder in a scan: it is told of each sound batch, in order, and goes
along the entries as it is. An index may have been written with another `index.interval.bytes`, so
not every batch must have an entry; but each entry must be that of a batch, and the first batch and
each one behind a gap must have one. A time may be later than that of the records before it, which
only costs a longer search, and never earlier.

Invariant: memory does not grow with the segment.
"""

from __future__ import annotations

from millstream.storage.filesystem import Filesystem
from millstream.storage.finding import Finding
from millstream.storage.index_builder import NO_TIMESTAMP, IndexBuilder
from millstream.storage.offset_index import (
    ENTRY_BYTES,
    TRANSACTIONAL_SEAL,
    DamagedIndex,
    IndexEntry,
    OffsetIndex,
    map_index,
)
from millstream.storage.segment import Segment, SegmentState
from millstream.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from millstream.storage.time_index import TimeIndex

_MISSING = "the file is missing: `millstream segment rebuild-index` writes it"
_MOST_FINDINGS = 20
"""Of one file: who has lost an index need not read of each entry."""


class IndexWitness(IndexBuilder):
    """Compares while a segment is scanned."""

    __slots__ = ("_entry_number", "_index", "_segment", "_time_number", "_times", "findings")

    def __init__(self, filesystem: Filesystem, segment: Segment) -> None:
        super().__init__(1)
        self._segment = segment
        self.findings: list[Finding] = []
        self._index = self._open(filesystem)
        self._times = self._open_times(filesystem)
        self._entry_number = 0
        self._time_number = 0

    def add(
        self, offset: int, position: int, size: int, max_timestamp_ms: int, *, follows: bool = True
    ) -> None:
        """Take note of a sound batch."""
        self._check_times(offset)
        self._check_entry(offset, position, size, is_needed=position == 0 or not follows)
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms

    def finish(self, size: int, *, is_transactional: bool) -> list[Finding]:
        """What else must hold at the end of the segment; returns all that was found."""
        segment = self._segment
        if self._index is not None and segment.state is SegmentState.ACTIVE:
            while (entry := self._entry(self._entry_number)) is not None:
                self._stray(entry)
        elif self._index is not None:
            self._check_seal(size, is_transactional=is_transactional)
        self._check_times(segment.next_offset + 1)
        self._check_last_time()
        return self.findings

    # Offsets

    def _open(self, filesystem: Filesystem) -> OffsetIndex | None:
        path = self._segment.index_path
        try:
            view = map_index(filesystem, path)
        except DamagedIndex:
            self._tell(path, _MISSING)
            return None
        self._check_whole(path, len(view), ENTRY_BYTES)
        return OffsetIndex(path, view, len(view) // ENTRY_BYTES)

    def _check_entry(self, offset: int, position: int, size: int, *, is_needed: bool) -> None:
        if self._index is None:
            return
        while (entry := self._entry(self._entry_number)) is not None and entry.position < position:
            self._stray(entry)
        if entry is not None and entry.position == position:
            if (entry.offset, entry.size) != (offset, size):
                self._wrong(entry, f"offset {offset}, {size} bytes")
            self._entry_number += 1
        elif is_needed:
            self._tell(
                self._segment.index_path,
                "a batch that needs an entry has none",
                None,
                offset,
                expected=f"an entry for byte {position} of the record file",
                found="none",
            )

    def _check_seal(self, size: int, *, is_transactional: bool) -> None:
        segment = self._segment
        while (entry := self._entry(self._entry_number)) is not None and entry.position < size:
            self._stray(entry)
        path, at = segment.index_path, self._entry_number * ENTRY_BYTES
        if entry is None:
            self._tell(path, "the index has no seal", at, expected="a seal", found="the end")
            return
        wanted = IndexEntry(segment.next_offset, size, int(is_transactional))
        if entry.size > TRANSACTIONAL_SEAL or entry != wanted:
            self._wrong(
                entry,
                f"a seal for offset {wanted.offset} at byte {size}, "
                f"{'with' if is_transactional else 'without'} transactions",
            )

    def _entry(self, number: int) -> IndexEntry | None:
        """The entry; one that fails its checksum is told, and passed over."""
        assert self._index is not None
        while number < self._index.count:
            try:
                return self._index.entry(number)
            except DamagedIndex:
                self._tell(
                    self._segment.index_path,
                    "an entry fails its checksum",
                    number * ENTRY_BYTES,
                )
                number += 1
                self._entry_number = number
        return None

    def _stray(self, entry: IndexEntry) -> None:
        self._wrong(entry, "an entry that is of a batch")
        self._entry_number += 1

    def _wrong(self, entry: IndexEntry, expected: str) -> None:
        self._tell(
            self._segment.index_path,
            "an entry is not that of a batch",
            self._entry_number * ENTRY_BYTES,
            entry.offset,
            expected=expected,
            found=f"offset {entry.offset} at byte {entry.position}, {entry.size} bytes",
        )

    # Times

    def _open_times(self, filesystem: Filesystem) -> TimeIndex | None:
        path = self._segment.time_index_path
        try:
            view = map_index(filesystem, path)
        except DamagedIndex:
            self._tell(path, _MISSING)
            return None
        self._check_whole(path, len(view), TIME_ENTRY_BYTES)
        return TimeIndex(path, view, len(view) // TIME_ENTRY_BYTES)

    def _check_times(self, offset: int) -> None:
        """Hold those entries that lie below an offset against the largest time until there."""
        times = self._times
        while times is not None and self._time_number < times.count:
            entry = self._time(self._time_number)
            if entry is not None:
                timestamp_ms, at = entry
                if at > offset:
                    return
                if timestamp_ms < self.max_timestamp_ms and self.max_timestamp_ms != NO_TIMESTAMP:
                    self._tell(
                        self._segment.time_index_path,
                        "an entry has an earlier time than the records before it",
                        self._time_number * TIME_ENTRY_BYTES,
                        at,
                        expected=f"{self.max_timestamp_ms} ms or later",
                        found=f"{timestamp_ms} ms",
                    )
            self._time_number += 1

    def _check_last_time(self) -> None:
        if self._times is None:
            return
        end_offset, number = self._segment.next_offset, self._times.count - 1
        last = self._time(number) if number >= 0 else (0, -1)
        if last is not None and last[1] != end_offset:
            self._tell(
                self._segment.time_index_path,
                "the time index ends elsewhere than the segment",
                max(number, 0) * TIME_ENTRY_BYTES,
                end_offset,
                expected=f"a last entry for offset {end_offset}",
                found=f"one for offset {last[1]}" if number >= 0 else "none",
            )

    def _time(self, number: int) -> tuple[int, int] | None:
        assert self._times is not None
        try:
            offset, timestamp_ms = self._times.entry(number)
        except DamagedIndex:
            at = number * TIME_ENTRY_BYTES
            self._tell(self._segment.time_index_path, "an entry fails its checksum", at)
            return None
        return timestamp_ms, offset

    def _check_whole(self, path: str, size: int, entry_bytes: int) -> None:
        if size % entry_bytes:
            self._tell(
                path,
                "the last entry is cut",
                size - size % entry_bytes,
                expected=f"entries of {entry_bytes} bytes",
                found=f"{size % entry_bytes} bytes",
            )

    def _tell(
        self,
        path: str,
        problem: str,
        position: int | None = None,
        offset: int | None = None,
        *,
        expected: str = "",
        found: str = "",
    ) -> None:
        finding = Finding(
            path=path,
            problem=problem,
            position=position,
            offset=offset,
            expected=expected,
            found=found,
        )
        count = sum(each.path == path for each in self.findings)
        if count < _MOST_FINDINGS and finding not in self.findings:
            self.findings.append(finding)
