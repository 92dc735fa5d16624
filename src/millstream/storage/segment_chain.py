"""The segments of one log, in order: finds the ones that hold an offset or a time, and reads them.

Invariant: segments follow each other without overlap; all are closed but the last, which is the
active one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from millstream.storage.active_segment import ActiveSegment
from millstream.storage.batch_walk import base_offset_at, count_messages
from millstream.storage.closed_segments import ClosedSegments
from millstream.storage.segment import Segment, SegmentState
from millstream.storage.segment_reader import SegmentReader
from millstream.storage.time_index import TimeIndex
from millstream.storage.transaction_state import TransactionStates

_EMPTY = memoryview(b"")
_WORTH_A_LOOK_BYTES = 4096


class SegmentChain:
    """All segments of a log, oldest first."""

    def __init__(
        self,
        segments: Sequence[Segment],
        closed: ClosedSegments,
        active: ActiveSegment,
        *,
        gaps_below: int = 0,
    ) -> None:
        """Compaction may have left gaps between offsets, below `gaps_below` only."""
        self._gaps_below = gaps_below
        self._closed = closed
        self.active = active
        self._set(segments)

    def _set(self, segments: Sequence[Segment]) -> None:
        self.segments = list(segments)
        # For bisection.
        self._bases = [segment.base_offset for segment in segments]

    @property
    def base_offset(self) -> int:
        return self._bases[0]

    @property
    def newest_timestamp_ms(self) -> int:
        """The largest timestamp of all; -1 when no record carries one."""
        return max((self.max_timestamp(s) for s in self.segments if s.size), default=-1)

    @property
    def end_offset(self) -> int:
        return self.active.segment.next_offset

    def read(self, offset: int, max_bytes: int, *, below: int | None = None) -> memoryview:
        """Whole batches from the one that holds an offset of the log, or the first after it."""
        for number in range(self._number_of(offset), len(self.segments)):
            segment = self.segments[number]
            if below is not None and below <= segment.base_offset:
                break
            # A closed segment without bytes may have lost them, which its index tells.
            if segment.size or segment.state is not SegmentState.ACTIVE:
                view = self.read_segment(segment, offset, max_bytes, below=below)
                if view is not None:
                    return view
        return _EMPTY

    def read_segment(
        self, segment: Segment, offset: int, max_bytes: int, *, below: int | None = None
    ) -> memoryview | None:
        """The same in one segment; None when none of its batches reaches the offset."""
        if segment.state is SegmentState.ACTIVE:
            return self.active.read(offset, max_bytes, below=below)
        return self._closed.read(segment, offset, max_bytes, below=below)

    def count_messages(self, view: memoryview | bytes, transactions: TransactionStates) -> int:
        """How many messages there are in batches that were read just now; markers are none.

        Where every offset is a message, the first and the next offset tell. Elsewhere, and where
        that is as quick, the headers are added up.
        """
        base_offset = base_offset_at(view, 0)
        if len(view) > _WORTH_A_LOOK_BYTES and base_offset >= self._gaps_below:
            segment = self.segments[self._number_of(base_offset)]
            if segment.state is not SegmentState.ACTIVE:
                following = self._closed.reader(segment).offset_behind(base_offset, len(view))
            elif not transactions.is_in_segment:
                reader = self.active.writer().reader()
                following = reader.offset_behind(base_offset, len(view))
            else:
                following = None
            if following is not None:
                return following - base_offset
        return count_messages(view)

    def reader(self, segment: Segment) -> SegmentReader:
        """A closed segment, mapped."""
        return self._closed.reader(segment)

    def distrust(self, offset: int) -> None:
        """Prove the batches of the segment that holds an offset again, when they are next read."""
        for segment in self.segments_from(offset):
            if segment.state is not SegmentState.ACTIVE:
                self._closed.forget(segment)
            elif (writer := self.active.open_writer()) is not None:
                writer.distrust()
            return

    def segments_from(self, offset: int) -> Iterator[Segment]:
        """The segment that holds an offset, and all behind it."""
        for number in range(max(self._number_of(offset), 0), len(self.segments)):
            yield self.segments[number]

    def _number_of(self, offset: int) -> int:
        return bisect_right(self._bases, offset) - 1

    def max_timestamp(self, segment: Segment) -> int:
        """The largest timestamp in a segment; -1 when its records carry none."""
        if segment.state is SegmentState.ACTIVE:
            return self.active.max_timestamp_ms
        return self._closed.max_timestamp(segment)

    def age_ms(self, segment: Segment, now_ms: int) -> int:
        """How old the newest record of a segment is; how old the segment, if records tell none."""
        newest_ms = self.max_timestamp(segment)
        if newest_ms < 0:
            is_active = segment.state is SegmentState.ACTIVE
            newest_ms = self.active.begun_ms(now_ms) if is_active else segment.closed_ms
        return now_ms - newest_ms

    def offset_before(self, segment: Segment, timestamp_ms: int) -> int:
        """An offset in a segment before which no record is as late as a time."""

        def look_up(index: TimeIndex) -> int:
            entry = index.last_before(timestamp_ms)
            return entry.offset if entry else segment.base_offset

        if segment.state is SegmentState.ACTIVE:
            return self.active.with_time_index(look_up)
        return self._closed.with_time_index(segment, look_up)

    def add(self, active: ActiveSegment) -> None:
        """Let a new segment be the active one."""
        self.active = active
        self.segments.append(active.segment)
        self._bases.append(active.segment.base_offset)

    def drop_deleted(self) -> None:
        """Leave out the segments whose files are no longer part of the log."""
        deleted = [s for s in self.segments if s.state is SegmentState.DELETED]
        for segment in deleted:
            self._closed.forget(segment)
        self._set([s for s in self.segments if s.state is not SegmentState.DELETED])

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put one closed segment in the place of several, whose files it took over."""
        for segment in old:
            self._closed.forget(segment)
        self._gaps_below = max(self._gaps_below, new.next_offset)
        first = self.segments.index(old[0])
        self._set([*self.segments[:first], new, *self.segments[first + len(old) :]])

    def close(self) -> None:
        """Let go of all files."""
        self.active.close()
        for segment in self.segments:
            self._closed.forget(segment)
