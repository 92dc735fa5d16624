"""The segments that compaction writes, each in the place of one or several old ones.

Neighbours go to one file for as long as they fit in `segment.bytes`. Nothing is written before the
first batch that changes: a segment that stays whole costs no copy, unless that makes one file of
many. The files are called `<base offset>.cleaned.*` until the whole pass is committed.

Invariant: batches keep their offsets; one that follows on a gap has an index entry to vouch for it.
What the aborted index tells of has its marker here: without it, readers would wait for the end.
After a crash: removed, if the pass was not committed; see `compaction_plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millstream.records.batch import BatchHeader, parse_header
from millstream.settings.log import LogSettings
from millstream.storage.aborted_transactions import AbortedTransaction, index_between
from millstream.storage.cleaning_source import Source, batches_of
from millstream.storage.filesystem import Buffer, Filesystem
from millstream.storage.producer_state import TRANSACTION_BITS
from millstream.storage.recovery import CLEANED_MARK
from millstream.storage.segment import Segment, SegmentState, segment_stem
from millstream.storage.segment_writer import SegmentWriter, SparselyPlaced

# Merging alone, where no record goes, pays when it makes one file of this many.
MERGED_SEGMENTS = 8

_WRITE_BYTES = 1 << 20
_WRITE_PARTS = 1024


class Cleaned(NamedTuple):
    """A segment that was written in the place of all that lay between two offsets."""

    base_offset: int
    next_offset: int
    size: int
    max_timestamp_ms: int
    is_transactional: bool


class CleanedSegments:
    """Takes the segments of a log in their order, each batch with what stays of it."""

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        settings: LogSettings,
        *,
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        """`aborted` are the aborted transactions that had records in any of the segments."""
        self._filesystem = filesystem
        self._directory = directory
        self._settings = settings
        self._aborted = aborted
        self._group: list[Source] = []
        self._group_bytes = 0
        self._output: _Output | None = None
        self.written: list[Cleaned] = []

    def begin(self, source: Source) -> None:
        """The batches that follow are those of this segment."""
        if self._group and self._size() + source.size > self._settings.segment_bytes:
            self.end_group()
        self._group.append(source)
        self._group_bytes += source.size

    def add(
        self, header: BatchHeader, batch: memoryview, kept: Buffer | None, *, position: int
    ) -> None:
        """Note what stays of a batch: the batch itself, another one, or nothing."""
        if kept is batch:
            if self._output is not None:
                self._output.add(header, batch)
            return
        output = self._output or self._open(position)
        if kept is not None:
            output.add(parse_header(kept), kept)

    def end_group(self) -> None:
        """Whatever comes next goes to another file."""
        if self._output is None and len(self._group) >= MERGED_SEGMENTS:
            self._open(self._group[-1].size)
        if self._output is not None:
            next_offset = self._group[-1].next_offset
            self.written.append(self._output.finish(next_offset, self._aborted))
        self._output = None
        self._group = []
        self._group_bytes = 0

    def close(self) -> None:
        """Let go of files in the middle of the work."""
        if self._output is not None:
            self._output.close()

    def _size(self) -> int:
        if self._output is not None:
            return self._output.size
        return self._group_bytes

    def _open(self, position: int) -> _Output:
        """Begin a file with all of the group that comes before a position in its last segment."""
        base_offset = self._group[0].base_offset
        self._output = output = _Output(
            self._filesystem,
            Segment(
                stem=segment_stem(self._directory, base_offset) + CLEANED_MARK,
                base_offset=base_offset,
                next_offset=base_offset,
                size=0,
                state=SegmentState.ARCHIVED,
            ),
            self._settings,
        )
        for source in self._group:
            end = position if source is self._group[-1] else source.size
            for header, batch, at in batches_of(self._filesystem, source):
                if at >= end:
                    break
                output.add(header, batch)
        return output


class _Output:
    """One new segment, written a megabyte at a time."""

    def __init__(self, filesystem: Filesystem, segment: Segment, settings: LogSettings) -> None:
        self._segment = segment
        self._writer = SegmentWriter.create(
            filesystem,
            segment,
            index_interval_bytes=settings.index_interval_bytes,
            segment_bytes=settings.segment_bytes,
        )
        self._parts: list[Buffer] = []
        self._placed: list[SparselyPlaced] = []
        self._next_offset = segment.base_offset
        self._is_transactional = False
        self._marker_offsets: set[int] = set()
        self.size = 0

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        base, size = header.base_offset, len(batch)
        follows = base == self._next_offset
        self._parts.append(batch)
        self._placed.append((base, self.size, size, header.max_timestamp_ms, follows))
        self._next_offset = header.next_offset
        if header.attributes & TRANSACTION_BITS:
            self._is_transactional = True
            if header.is_control:
                self._marker_offsets.add(base)
        self.size += size
        if self.size - self._writer.size >= _WRITE_BYTES or len(self._parts) >= _WRITE_PARTS:
            self._flush()

    def _flush(self) -> None:
        self._writer.append_sparse(self._parts, self.size - self._writer.size, self._placed)
        self._parts.clear()
        self._placed.clear()

    def finish(self, next_offset: int, aborted: Sequence[AbortedTransaction]) -> Cleaned:
        """Seal the files and make their content durable."""
        self._flush()
        self._segment.next_offset = next_offset
        self._writer.seal(self._aborted_index(next_offset, aborted))
        self._writer.sync()
        self._writer.close()
        return Cleaned(
            self._segment.base_offset,
            next_offset,
            self.size,
            self._writer.max_timestamp_ms,
            self._is_transactional,
        )

    def _aborted_index(self, next_offset: int, aborted: Sequence[AbortedTransaction]) -> bytes:
        """The content of its aborted index; nothing if it is to have none."""
        if not self._is_transactional:
            return b""
        base_offset = self._segment.base_offset
        told = [
            transaction
            for transaction in aborted
            if transaction.last_offset in self._marker_offsets
            or not base_offset <= transaction.last_offset < next_offset
        ]
        index = index_between(told, base_offset=base_offset, next_offset=next_offset)
        return index.encode(next_offset=next_offset)

    def close(self) -> None:
        self._writer.close()
