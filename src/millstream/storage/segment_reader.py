"""Reads one segment through its mapped files.

Invariant: a batch is handed out only after it was proved sound: by its checksum and by the chain
of offsets from an index entry on. What this process appended itself was proved then
(`trusted_from`); anything else is proved when it is first read, and a run of proved batches is
remembered for as long as the segment stays mapped.
Memory: what is handed out are views of the mapping, which lives until the last of them is gone.
"""

from __future__ import annotations

from millstream.errors import CorruptData, NotFound
from millstream.storage.aborted_transactions import AbortedIndex
from millstream.storage.batch_walk import (
    Place,
    base_offset_at,
    batch_boundary,
    batch_end,
    check_run,
    find_batch,
    next_good_batch,
)
from millstream.storage.filesystem import Filesystem, map_whole
from millstream.storage.offset_index import TRANSACTIONAL_SEAL, IndexEntry, OffsetIndex
from millstream.storage.segment import Segment


class SegmentReader:
    """A mapped segment."""

    __slots__ = (
        "_base_offset",
        "_limit_offset",
        "_next_offset",
        "_path",
        "_proved",
        "_proved_from",
        "_trusted_from",
        "aborted",
        "index",
        "is_transactional",
        "log",
        "size",
    )

    def __init__(
        self, segment: Segment, log: memoryview, index: OffsetIndex, *, trusted_from: int
    ) -> None:
        self._path = segment.log_path
        self._base_offset = segment.base_offset
        self._limit_offset = segment.next_offset
        self._next_offset = segment.next_offset
        self.log = log
        self.index = index
        self.size = segment.size
        # Of a closed segment: whether any of its batches is part of a transaction; and what its
        # file says of those that were aborted, once somebody has read it.
        self.is_transactional = False
        self.aborted: AbortedIndex | None = None
        self._trusted_from = trusted_from
        # One run of proved batches: [_proved_from, _proved.position).
        self._proved_from = 0
        self._proved = Place(0, segment.base_offset)

    @classmethod
    def open(cls, filesystem: Filesystem, segment: Segment) -> SegmentReader:
        """Map a closed segment. Raises DamagedIndex when its index is not the one sealed for it."""
        try:
            log = map_whole(filesystem, segment.log_path)
        except NotFound:
            log = memoryview(b"")
        index = OffsetIndex.open(filesystem, segment.index_path)
        seal = index.take_seal(segment)
        reader = cls(segment, log, index, trusted_from=seal.position)
        # What the seal vouches for and the file lacks is damage, as are offsets that no segment
        # holds any more.
        reader.size = seal.position
        reader._next_offset = seal.offset
        reader.is_transactional = seal.size == TRANSACTIONAL_SEAL
        return reader

    def extend(self, log: memoryview, size: int, next_offset: int) -> None:
        """Take note that the owner of an active segment appended to it."""
        self.log = log
        self.size = size
        self._limit_offset = self._next_offset = next_offset

    def read(self, offset: int, max_bytes: int, *, below: int | None = None) -> memoryview | None:
        """Whole batches from the first that reaches `offset`; None when no batch here does.

        None at or past `below`, if that is given.
        """
        entry = self.index.floor_offset(offset)
        place = Place(entry.position, entry.offset) if entry else Place(0, self._base_offset)
        if entry and not self._is_in_place(entry):
            place = self._step_over(place, offset, f"offset {entry.offset} does not begin here")
        while True:
            good, fault = self._prove(place, place.position + max(max_bytes, 1))
            start = find_batch(self.log, place.position, good, offset)
            if start < good:
                if below is not None and below < self._next_offset:
                    good = self._start_of(below, start, good)
                return self.log[start : self._end_of_read(start, good, max_bytes)]
            if good >= self.size:
                self._raise_if_more_is_missing()
                return None
            place = self._proved
            if fault:
                place = self._step_over(place, offset, fault)

    def offset_behind(self, offset: int, size: int) -> int | None:
        """The offset behind so many bytes of batches, of which the first begins at an offset.

        None where it takes more to tell: markers and what is not proved are in the way.
        """
        entry = self.index.floor_offset(offset)
        known = entry.position if entry else 0
        good = Place(self.size, self._next_offset)
        if known < self._trusted_from:
            good = self._proved
        end = find_batch(self.log, known, good.position, offset) + size
        if self.is_transactional or end > good.position or known < self._proved_from:
            return None
        return base_offset_at(self.log, end) if end < good.position else good.offset

    def _raise_if_more_is_missing(self) -> None:
        """Whoever goes on to the next segment must not pass over one that is gone."""
        if self._next_offset < self._limit_offset:
            raise CorruptData(
                path=self._path,
                position=self.size,
                end_position=self.size,
                offset=self._next_offset,
                reason=f"a segment with offsets {self._next_offset} to {self._limit_offset - 1}"
                " is missing behind it",
                next_offset=self._limit_offset,
            )

    def _prove(self, place: Place, limit: int) -> tuple[int, str]:
        """Where the sound batches from a place on end, going on to about `limit`; and why."""
        if place.position >= self._trusted_from:
            return self.size, ""
        if not self._proved_from <= place.position <= self._proved.position:
            self._proved_from, self._proved = place.position, place
        fault = ""
        limit = min(limit, self.size, self._trusted_from)
        if self._proved.position < limit:
            self._proved, fault = check_run(
                self.log,
                self._proved,
                limit=limit,
                end=self._end(),
                gap_is_known=self._gap_is_known,
            )
        if self._proved.position >= self._trusted_from:
            self._trusted_from = self._proved_from
            return self.size, ""
        return self._proved.position, fault

    def _end(self) -> int:
        """Where the bytes end that are there: a mapping may be longer, or a file was cut."""
        return min(self.size, len(self.log))

    def _gap_is_known(self, place: Place) -> bool:
        """A batch that leaves a gap before it has an index entry to vouch for its offset."""
        entry = self.index.floor_position(place.position)
        return entry is not None and (entry.position, entry.offset) == place

    def _is_in_place(self, entry: IndexEntry) -> bool:
        """Bytes that were shifted may form sound batches, but not where the index has them."""
        return base_offset_at(self.log, entry.position) == entry.offset

    def _start_of(self, offset: int, start: int, good: int) -> int:
        """Where the first batch from `start` on begins that reaches an offset, or `good`."""
        entry = self.index.floor_offset(offset)
        known = start
        if entry and start < entry.position:
            if entry.position >= good:
                return good
            if self._is_in_place(entry):
                known = entry.position
        return find_batch(self.log, known, good, offset)

    def _end_of_read(self, start: int, good: int, max_bytes: int) -> int:
        limit = start + max_bytes
        if limit >= good:
            return good
        first_end = batch_end(self.log, start)
        if first_end >= limit:
            return first_end
        entry = self.index.floor_position(limit)
        known = first_end
        if entry and first_end < entry.position <= good and self._is_in_place(entry):
            known = entry.position
        return batch_boundary(self.log, known, limit)

    def _step_over(self, damaged: Place, offset: int, reason: str) -> Place:
        found = next_good_batch(
            self.log, damaged, end=self._end(), limit_offset=self._limit_offset
        ) or Place(self.size, self._limit_offset)
        if offset < found.offset:
            raise CorruptData(
                path=self._path,
                position=damaged.position,
                end_position=found.position,
                reason=reason,
                offset=damaged.offset,
                next_offset=found.offset,
            )
        return found
