"""A closed segment as compaction reads it: every batch proved, or none used.

Compaction copies batches to new files, and would give damage a sound new home. So each batch is
proved by its checksum and by the chain of offsets, as for a reader, and a segment that does not
hold up is left alone as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millstream.errors import InvalidRequest, NotFound
from millstream.records.batch import BatchHeader
from millstream.storage.batch_walk import Place, checked_batch, next_good_batch
from millstream.storage.filesystem import File, Filesystem
from millstream.storage.offset_index import ENTRY_BYTES, DamagedIndex, OffsetIndex
from millstream.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment
from millstream.storage.segment_scan import Damage

_READ_BYTES = 1 << 20


class Source(NamedTuple):
    """What the owner of a log knew of an archived segment; its files do not change."""

    stem: str
    base_offset: int
    next_offset: int
    size: int

    @classmethod
    def of(cls, segment: Segment) -> Source:
        return cls(segment.stem, segment.base_offset, segment.next_offset, segment.size)

    @property
    def log_path(self) -> str:
        return self.stem + LOG_SUFFIX


class UnreadableSegment(Exception):
    """A segment holds something that compaction cannot read. Never leaves the engine."""

    def __init__(self, source: Source, damage: Damage) -> None:
        super().__init__(str(damage))
        self.source = source
        self.damage = damage


def batches_of(
    filesystem: Filesystem, source: Source
) -> Iterator[tuple[BatchHeader, memoryview, int]]:
    """Each batch of a segment with its header and its position. Raises UnreadableSegment."""
    try:
        file = filesystem.open_for_reading(source.log_path)
    except NotFound as fault:
        raise _unreadable(
            source, memoryview(b""), Place(0, source.base_offset), str(fault)
        ) from fault
    try:
        yield from _proved_batches(file, source, _KnownGaps(filesystem, source))
    finally:
        file.close()


def _proved_batches(
    file: File, source: Source, gaps: _KnownGaps
) -> Iterator[tuple[BatchHeader, memoryview, int]]:
    log = file.map()[: source.size]
    end = source.size
    if len(log) < end:
        fault = f"{end - len(log)} of its {end} bytes are missing"
        raise _unreadable(source, log, Place(0, source.base_offset), fault)
    position, offset = 0, source.base_offset
    in_memory = 0
    while position < end:
        if position >= in_memory:
            # A page fault would stop every thread while the disk is read; this call does not.
            file.read(position, _READ_BYTES)
            in_memory = position + _READ_BYTES
        try:
            header = checked_batch(log, position, end)
        except InvalidRequest as fault:
            raise _unreadable(source, log, Place(position, offset), str(fault)) from fault
        base, next_offset = header.base_offset, header.next_offset
        if (
            base < offset
            or next_offset > source.next_offset
            or (base > offset and not gaps.include(Place(position, base)))
        ):
            fault_text = f"offset {base} where {offset} comes next"
            raise _unreadable(source, log, Place(position, offset), fault_text)
        following = position + header.size_bytes
        yield header, log[position:following], position
        position, offset = following, next_offset


def unreadable_records(
    source: Source, header: BatchHeader, position: int, fault: InvalidRequest
) -> UnreadableSegment:
    """What to raise for a batch that is as it was written, but whose records make no sense."""
    return UnreadableSegment(
        source,
        Damage(
            path=source.log_path,
            position=position,
            end_position=position + header.size_bytes,
            offset=header.base_offset,
            end_offset=header.next_offset,
            reason=str(fault),
        ),
    )


def _unreadable(source: Source, log: memoryview, at: Place, reason: str) -> UnreadableSegment:
    behind = next_good_batch(log, at, end=len(log), limit_offset=source.next_offset)
    return UnreadableSegment(
        source,
        Damage(
            path=source.log_path,
            position=at.position,
            end_position=behind.position if behind else source.size,
            offset=at.offset,
            end_offset=behind.offset if behind else source.next_offset,
            reason=reason,
        ),
    )


class _KnownGaps:
    """The index entries of a segment, which vouch for each batch that follows on a gap.

    Asked in ascending order. An index that is damaged vouches for everything, since one that was
    written anew from the record file would say the same.
    """

    def __init__(self, filesystem: Filesystem, source: Source) -> None:
        self._filesystem = filesystem
        self._path = source.stem + INDEX_SUFFIX
        self._index: OffsetIndex | None = None
        self._number = 0

    def include(self, place: Place) -> bool:
        try:
            if self._index is None:
                self._index = OffsetIndex.open(self._filesystem, self._path)
            return self._find(self._index, place)
        except DamagedIndex:
            return True

    def _find(self, index: OffsetIndex, place: Place) -> bool:
        while self._number < index.count:
            entry = index.entry(self._number)
            if entry.position >= place.position:
                return (entry.position, entry.offset) == place
            self._number += 1
        raise DamagedIndex(self._path, index.count * ENTRY_BYTES, "it is cut")
