"""Writes the files of one segment: records, offset index, time index.

Records go to their file first. The index entries that belong to them gather in memory, where
readers find them too, and follow in chunks. Where a segment holds batches of transactions, the
file that tells of the aborted ones is written when it is sealed.

Invariant: the indexes never point past `size`.
After a crash: the record file is scanned and both indexes are written anew (see `recovery`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from millstream.storage.entry_file import EntryFile
from millstream.storage.filesystem import Buffer, Filesystem
from millstream.storage.growing_file import GrowingFile
from millstream.storage.index_builder import IndexBuilder
from millstream.storage.offset_index import ENTRY_BYTES, OffsetIndex
from millstream.storage.segment import Segment
from millstream.storage.segment_reader import SegmentReader
from millstream.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from millstream.storage.time_index import TimeIndex, open_time_index

_STEP_BYTES = 16 << 20

Placed = tuple[int, int, int, int]
"""A batch's offset, position, size and largest timestamp."""
SparselyPlaced = tuple[int, int, int, int, bool]
"""The same, and whether its offset continues the batch before."""


class SegmentWriter:
    """Appends whole batches to a segment."""

    __slots__ = (
        "_aborted",
        "_filesystem",
        "_index",
        "_indexes",
        "_log",
        "_reader",
        "_time_index",
        "_trusted_from",
        "segment",
    )

    def __init__(
        self,
        filesystem: Filesystem,
        segment: Segment,
        log: GrowingFile,
        indexes: IndexBuilder,
        index: EntryFile,
        time_index: EntryFile,
        *,
        trusted_from: int,
    ) -> None:
        self.segment = segment
        self._filesystem = filesystem
        self._log = log
        self._indexes = indexes
        self._index = index
        self._time_index = time_index
        self._aborted: EntryFile | None = None
        self._trusted_from = trusted_from
        self._reader: SegmentReader | None = None

    @classmethod
    def create(
        cls,
        filesystem: Filesystem,
        segment: Segment,
        *,
        index_interval_bytes: int,
        segment_bytes: int,
    ) -> SegmentWriter:
        """Begin an empty segment, over whatever files of that name a crash left behind."""
        indexes = IndexBuilder(index_interval_bytes)
        index = EntryFile.create(filesystem, segment.index_path, indexes.offset_entries)
        time_index = EntryFile.create(filesystem, segment.time_index_path, indexes.time_entries)
        log = _open_log(filesystem, segment, segment_bytes)
        log.cut()
        return cls(filesystem, segment, log, indexes, index, time_index, trusted_from=0)

    @classmethod
    def resume(
        cls,
        filesystem: Filesystem,
        segment: Segment,
        *,
        index_interval_bytes: int,
        segment_bytes: int,
        trusted_from: int,
    ) -> SegmentWriter:
        """Go on with an active segment whose indexes are as `pause` leaves them.

        Nothing of the record file is read. Raises DamagedIndex.
        """
        index = OffsetIndex.open(filesystem, segment.index_path)
        last_entry = index.last_within(segment.size)
        times = open_time_index(filesystem, segment)
        last_time_ms = times.last().timestamp_ms
        indexes = IndexBuilder(
            index_interval_bytes,
            last_position=last_entry.position if last_entry else None,
            max_timestamp_ms=last_time_ms,
            last_time_ms=last_time_ms,
            last_time_offset=segment.next_offset,
        )
        return cls(
            filesystem,
            segment,
            _open_log(filesystem, segment, segment_bytes),
            indexes,
            EntryFile(
                filesystem,
                segment.index_path,
                indexes.offset_entries,
                size=index.count * ENTRY_BYTES,
            ),
            EntryFile(
                filesystem,
                segment.time_index_path,
                indexes.time_entries,
                size=times.count * TIME_ENTRY_BYTES,
            ),
            trusted_from=trusted_from,
        )

    @property
    def size(self) -> int:
        return self._log.size

    @property
    def max_timestamp_ms(self) -> int:
        return self._indexes.max_timestamp_ms

    def append(self, parts: Sequence[Buffer], total_bytes: int, placed: Sequence[Placed]) -> None:
        """Write batches that were given their offsets. Raises OSError and then stores none."""
        self._log.append(parts, total_bytes)
        self.segment.size = self._log.size
        add = self._indexes.add
        for offset, position, size, timestamp_ms in placed:
            add(offset, position, size, timestamp_ms)
        # An error that stays comes up again when the segment is sealed.
        with suppress(OSError):
            self._time_index.flush_if_many()
            self._index.flush_if_many()

    def append_sparse(
        self, parts: Sequence[Buffer], total_bytes: int, placed: Sequence[SparselyPlaced]
    ) -> None:
        """Write batches of a log that has gaps; for compaction. Raises OSError."""
        self._log.append(parts, total_bytes)
        self.segment.size = self._log.size
        add = self._indexes.add
        for offset, position, size, timestamp_ms, follows in placed:
            add(offset, position, size, timestamp_ms, follows=follows)
        self._time_index.flush_if_many()
        self._index.flush_if_many()

    def reader(self) -> SegmentReader:
        """Read access to what has been appended so far."""
        reader = self._reader
        if reader is None:
            index = OffsetIndex(self._index.path, memoryview(b""), 0)
            log = self._log.view()
            reader = SegmentReader(self.segment, log, index, trusted_from=self._trusted_from)
            self._reader = reader
        reader.extend(self._log.view(), self._log.size, self.segment.next_offset)
        reader.index.extend(
            self._index.view(), self._index.size // ENTRY_BYTES, bytes(self._index.pending)
        )
        return reader

    def time_index(self) -> TimeIndex:
        """The entries so far, less those that find no room: a search then begins earlier."""
        with suppress(OSError):
            self._time_index.flush()
        count = self._time_index.size // TIME_ENTRY_BYTES
        return TimeIndex(self._time_index.path, self._time_index.view(), count)

    def seal(self, aborted: bytes = b"") -> None:
        """End the files: the segment takes no more batches. Raises OSError and then does not.

        `aborted` is what to say of its transactions, if any of its batches is part of one.
        """
        entries = self._indexes.offset_entries
        unsealed = len(entries)
        self._indexes.seal(self.segment.next_offset, self.size, is_transactional=bool(aborted))
        try:
            if aborted:
                self._aborted = EntryFile.create(
                    self._filesystem, self.segment.aborted_path, bytearray(aborted)
                )
                self._aborted.flush()
            self._time_index.flush()
            # Last, so that nothing can fail once the seal is written.
            self._index.flush()
        except OSError:
            del entries[unsealed:]
            raise
        self.segment.max_timestamp_ms = self.max_timestamp_ms
        self._log.cut()

    def pause(self) -> bool:
        """Bring the files to a state from which `resume` can go on. Raises OSError.

        Whether that changed the record file, as it does after an append.
        """
        self._indexes.seal_times(self.segment.next_offset)
        self._time_index.flush()
        self._index.flush()
        return self._log.cut()

    def sync_records(self) -> None:
        """Return when the records are on the disk. Any thread. Raises OSError."""
        self._log.sync()

    def sync(self) -> None:
        """Return when all files are on the disk. Any thread. Raises OSError."""
        self._log.sync()
        self._index.sync()
        self._time_index.sync()
        if self._aborted is not None:
            self._aborted.sync()

    def distrust(self) -> None:
        """Prove what was appended once more when it is read: the disk may not hold it."""
        self._trusted_from = self.size
        self._reader = None

    def close(self) -> None:
        self._reader = None
        self._log.close()


def _open_log(filesystem: Filesystem, segment: Segment, segment_bytes: int) -> GrowingFile:
    file = filesystem.open(segment.log_path, create=True)
    return GrowingFile(file, segment.size, min(_STEP_BYTES, max(segment_bytes, 1)))
