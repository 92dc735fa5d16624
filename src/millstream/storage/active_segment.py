"""The one segment of a log that takes appends.

Its files are opened by the first append or read, so that an idle log holds none. What was in it
when the log was opened is proved when it is read; what is appended was proved on the way in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.errors import InvalidBatch
from millstream.records.batch import HEADER_BYTES, parse_header
from millstream.settings.log import LogSettings
from millstream.storage.closed_segments import ClosedSegments
from millstream.storage.filesystem import Filesystem
from millstream.storage.offset_index import DamagedIndex
from millstream.storage.segment import SEGMENT_SUFFIXES, Segment
from millstream.storage.segment_writer import SegmentWriter
from millstream.storage.time_index import TimeIndex

_T = TypeVar("_T")


class ActiveSegment:
    """Opens, reads and lets go of the segment at the end of a log."""

    def __init__(
        self,
        filesystem: Filesystem,
        segment: Segment,
        settings: LogSettings,
        healer: ClosedSegments,
        retire: Callable[[SegmentWriter], None],
        *,
        trusted_from: int = 0,
    ) -> None:
        self._filesystem = filesystem
        self.settings = settings
        self._healer = healer
        self._retire = retire
        self._trusted_from = trusted_from
        self._writer: SegmentWriter | None = None
        self.segment = segment
        self.is_unsynced = False
        """Whether closing idle files changed them after their last sync."""
        self._begun_ms: int | None = None

    @property
    def size(self) -> int:
        return self.segment.size

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp in it; -1 when its records carry none."""
        if self._writer is not None:
            return self._writer.max_timestamp_ms
        # Looking at an idle log must not open its files for good.
        return self._healer.max_timestamp(self.segment)

    def set_begun(self, now_ms: int) -> None:
        """Its first batch was appended."""
        self._begun_ms = now_ms

    def begun_ms(self, now_ms: int) -> int:
        """When it got its first batch.

        If that was before the log was opened, the batch's own time is the best that is known.
        """
        if self._begun_ms is None:
            file = self._filesystem.open_for_reading(self.segment.log_path)
            try:
                written_ms = parse_header(file.read(0, HEADER_BYTES)).max_timestamp_ms
            except InvalidBatch:
                written_ms = now_ms
            finally:
                file.close()
            self._begun_ms = written_ms if 0 <= written_ms <= now_ms else now_ms
        return self._begun_ms

    def writer(self) -> SegmentWriter:
        """The segment's files, open for appending. Raises OSError."""
        if self._writer is None:
            self._writer = self._healer.healing(self.segment, self._open)
        return self._writer

    def open_writer(self) -> SegmentWriter | None:
        """The same, if they are open."""
        return self._writer

    def _open(self) -> SegmentWriter:
        if self.segment.size == 0:
            return SegmentWriter.create(
                self._filesystem,
                self.segment,
                index_interval_bytes=self.settings.index_interval_bytes,
                segment_bytes=self.settings.segment_bytes,
            )
        return SegmentWriter.resume(
            self._filesystem,
            self.segment,
            index_interval_bytes=self.settings.index_interval_bytes,
            segment_bytes=self.settings.segment_bytes,
            trusted_from=self._trusted_from,
        )

    def read(self, offset: int, max_bytes: int, *, below: int | None = None) -> memoryview | None:
        return self._healing(lambda: self.writer().reader().read(offset, max_bytes, below=below))

    def with_time_index(self, use: Callable[[TimeIndex], _T]) -> _T:
        return self._healing(lambda: use(self.writer().time_index()))

    def _healing(self, attempt: Callable[[], _T]) -> _T:
        try:
            return attempt()
        except DamagedIndex:
            # To be opened anew, with an index that is.
            self.close()
            self._trusted_from = self.segment.size
            return self._healer.healing(self.segment, attempt)

    def discard(self) -> None:
        """Undo the creation of a segment that could not be put to use."""
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            self._filesystem.remove(self.segment.stem + suffix)

    def rest(self) -> None:
        """Let go of the files until they are needed again. Raises OSError."""
        if self._writer is not None:
            self.is_unsynced |= self._writer.pause()
            self.segment.max_timestamp_ms = self._writer.max_timestamp_ms
            self._trusted_from = self.segment.size
            self.close()

    def close(self) -> None:
        if self._writer is not None:
            # A sync under way may hold the files, so when to close them is not ours to say.
            self._retire(self._writer)
            self._writer = None
