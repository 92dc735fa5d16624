"""Access to the segments of a log that take no more appends.

Opens them through the shared cache, and heals what can be healed: an index that is missing or
damaged is written anew from its record file, which is the truth.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from millstream.errors import CorruptData
from millstream.storage.filesystem import Filesystem
from millstream.storage.offset_index import DamagedIndex
from millstream.storage.recovery import rebuild_indexes
from millstream.storage.recovery_report import RecoveryReport
from millstream.storage.segment import Segment
from millstream.storage.segment_cache import SegmentCache
from millstream.storage.segment_reader import SegmentReader
from millstream.storage.time_index import TimeIndex, open_time_index

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class ClosedSegments:
    """Reads closed segments, rebuilding their indexes where need be."""

    def __init__(
        self,
        filesystem: Filesystem,
        cache: SegmentCache,
        *,
        name: str,
        index_interval_bytes: int,
    ) -> None:
        self._filesystem = filesystem
        self._cache = cache
        self._name = name
        self.index_interval_bytes = index_interval_bytes
        self.report = RecoveryReport(name)

    def read(
        self, segment: Segment, offset: int, max_bytes: int, *, below: int | None = None
    ) -> memoryview | None:
        return self.healing(
            segment, lambda: self._reader(segment).read(offset, max_bytes, below=below)
        )

    def reader(self, segment: Segment) -> SegmentReader:
        """A closed segment, mapped."""
        return self.healing(segment, lambda: self._reader(segment))

    def with_time_index(self, segment: Segment, use: Callable[[TimeIndex], _T]) -> _T:
        return self.healing(segment, lambda: use(open_time_index(self._filesystem, segment)))

    def max_timestamp(self, segment: Segment) -> int:
        """The largest timestamp in a segment; -1 when its records carry none."""
        if segment.max_timestamp_ms is None:
            last = self.with_time_index(segment, TimeIndex.last)
            segment.max_timestamp_ms = last.timestamp_ms
        return segment.max_timestamp_ms

    def healing(self, segment: Segment, attempt: Callable[[], _T]) -> _T:
        """Try something; if an index turns out to be damaged, rebuild it and try again."""
        try:
            return attempt()
        except DamagedIndex as damage:
            self.rebuild(segment, damage)
        try:
            return attempt()
        except DamagedIndex as damage:
            # Written a moment ago, so there is nothing that an index could be made of.
            raise CorruptData(
                path=segment.log_path,
                position=0,
                end_position=segment.size,
                offset=segment.base_offset,
                reason=f"it has no sound batch ({damage})",
                next_offset=segment.next_offset,
            ) from damage

    def rebuild(self, segment: Segment, damage: DamagedIndex) -> None:
        _log.warning(
            "%(log)s: rebuilding an index: %(damage)s", {"log": self._name, "damage": damage}
        )
        self._cache.drop(segment.stem)
        scan = rebuild_indexes(
            self._filesystem, segment, index_interval_bytes=self.index_interval_bytes
        )
        self.report.rebuilt_indexes.append(damage.path)
        self.report.damage += scan.damage

    def forget(self, segment: Segment) -> None:
        """Let go of a segment whose files are replaced or removed."""
        self._cache.drop(segment.stem)

    def _reader(self, segment: Segment) -> SegmentReader:
        reader = self._cache.get(segment.stem)
        if reader is None:
            reader = SegmentReader.open(self._filesystem, segment)
            self._cache.put(segment.stem, reader)
        return reader
