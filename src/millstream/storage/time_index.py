"""Sparse map from time to offset in one segment.

An entry says: `timestamp_ms` is the largest timestamp of the records of this segment that lie
below `offset`. So a search for a time may begin at the offset of the last entry whose timestamp
is still earlier. In an index that is not being written the last entry is a seal: it stands at the
segment's next offset, and so tells the segment's largest timestamp.

Invariant: entries strictly increase in offset, and never decrease in timestamp.
After a crash: never trusted; rebuilt from the record file. A timestamp that is too large only
makes a search begin earlier; it never makes it miss a record.
Format: docs/formats/time_index.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_left

from millstream.records.checksum import crc32c
from millstream.storage.filesystem import Filesystem
from millstream.storage.offset_index import DamagedIndex, map_index
from millstream.storage.partition_log import TimedOffset
from millstream.storage.segment import Segment

ENTRY_BYTES = 20

_ENTRY = struct.Struct(">qqI")
_BODY = struct.Struct(">qq")
_BODY_BYTES = 16


def encode_time_entry(timestamp_ms: int, offset: int) -> bytes:
    body = _BODY.pack(timestamp_ms, offset)
    return body + crc32c(body).to_bytes(4, "big")


class TimeIndex:
    """Looks up entries in the bytes of a time index file."""

    __slots__ = ("_path", "_view", "count")

    def __init__(self, path: str, view: bytes | memoryview, count: int) -> None:
        self._path = path
        self._view = view
        self.count = count

    def entry(self, number: int) -> TimedOffset:
        """Entry `number`, proved by its checksum. Raises DamagedIndex."""
        at = number * ENTRY_BYTES
        timestamp_ms, offset, checksum = _ENTRY.unpack_from(self._view, at)
        if crc32c(self._view[at : at + _BODY_BYTES]) != checksum:
            raise DamagedIndex(self._path, at, "an entry fails its checksum")
        return TimedOffset(offset, timestamp_ms)

    def last(self) -> TimedOffset:
        return self.entry(self.count - 1)

    def last_before(self, timestamp_ms: int) -> TimedOffset | None:
        """The last entry whose timestamp is earlier than a time."""
        number = bisect_left(
            range(self.count), timestamp_ms, key=lambda n: self.entry(n).timestamp_ms
        )
        return self.entry(number - 1) if number else None


def open_time_index(filesystem: Filesystem, segment: Segment) -> TimeIndex:
    """Map the time index of a segment that is not being written. Raises DamagedIndex."""
    path = segment.time_index_path
    view = map_index(filesystem, path)
    if len(view) % ENTRY_BYTES or not view:
        raise DamagedIndex(path, len(view), "it is cut")
    index = TimeIndex(path, view, len(view) // ENTRY_BYTES)
    if index.last().offset != segment.next_offset:
        raise DamagedIndex(path, len(view) - ENTRY_BYTES, "it ends at another offset")
    return index
