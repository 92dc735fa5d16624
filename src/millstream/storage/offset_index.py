"""Sparse map from offset to byte position in one segment's record file.

An entry says: the batch whose base offset is `offset` begins at `position` and is `size` bytes
long. There is one for the segment's first batch, then one at least every `index.interval.bytes`,
and one for each batch that does not follow directly on the batch before it, as compaction leaves
them. A closed segment's index ends with a seal: the segment's next offset, the size of its record
file, and size 0, or 1 where a batch of the segment is part of a transaction.

Invariant: entries strictly increase in offset and in position. (The seal may repeat neither.)
After a crash: never trusted; rebuilt from the record file. In normal running each entry that
steers a read is checked by its own checksum, and the batch it points at must agree with it.
Format: docs/formats/offset_index.md.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from millstream.errors import NotFound
from millstream.records.checksum import crc32c
from millstream.storage.filesystem import Filesystem, map_whole
from millstream.storage.segment import Segment

ENTRY_BYTES = 24
# The size in a seal, which no batch is as small as.
SEAL = 0
TRANSACTIONAL_SEAL = 1

_ENTRY = struct.Struct(">qqII")
_BODY = struct.Struct(">qqI")
_FIELD = struct.Struct(">q")
_BODY_BYTES = 20
_OFFSET_AT = 0
_POSITION_AT = 8

# Interpolation lands on the answer in two or three probes when batches are of like size. When
# they are not, halving takes over after this many.
_INTERPOLATION_PROBES = 4


class DamagedIndex(Exception):
    """An index is not what was written. Never leaves the engine: the index is rebuilt."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}")
        self.path = path


def map_index(filesystem: Filesystem, path: str) -> memoryview:
    """Map an index file of any kind. Raises DamagedIndex when there is none."""
    try:
        return map_whole(filesystem, path)
    except NotFound:
        raise DamagedIndex(path, 0, "it is missing") from None


class IndexEntry(NamedTuple):
    """Where a batch begins, and how long it is."""

    offset: int
    position: int
    size: int


def encode_entry(offset: int, position: int, size: int) -> bytes:
    body = _BODY.pack(offset, position, size)
    return body + crc32c(body).to_bytes(4, "big")


class OffsetIndex:
    """Looks up entries in the mapped bytes of an index file, and in those not yet written to it."""

    __slots__ = ("_mapped", "_path", "_recent", "_view", "count")

    def __init__(self, path: str, view: memoryview, count: int) -> None:
        self._path = path
        self.extend(view, count)

    @classmethod
    def open(cls, filesystem: Filesystem, path: str) -> OffsetIndex:
        """Map an index file. Raises DamagedIndex."""
        view = map_index(filesystem, path)
        if len(view) % ENTRY_BYTES:
            raise DamagedIndex(path, len(view), "it is cut")
        return cls(path, view, len(view) // ENTRY_BYTES)

    def extend(self, view: memoryview, count: int, recent: bytes = b"") -> None:
        """Take note of the entries of a growing index: `count` in the file, `recent` behind."""
        self._view = view
        self._mapped = count
        self._recent = memoryview(recent)
        self.count = count + len(recent) // ENTRY_BYTES

    def entry(self, number: int) -> IndexEntry:
        """Entry `number`, proved by its checksum. Raises DamagedIndex."""
        if number < self._mapped:
            view, at = self._view, number * ENTRY_BYTES
        else:
            view, at = self._recent, (number - self._mapped) * ENTRY_BYTES
        offset, position, size, checksum = _ENTRY.unpack_from(view, at)
        if crc32c(view[at : at + _BODY_BYTES]) != checksum:
            raise DamagedIndex(self._path, number * ENTRY_BYTES, "an entry fails its checksum")
        return IndexEntry(offset, position, size)

    def take_seal(self, segment: Segment) -> IndexEntry:
        """The last entry of a closed segment's index, left out of look-ups from here on.

        Raises DamagedIndex when this is not the index that was sealed for the segment.
        """
        if self.count == 0:
            raise DamagedIndex(self._path, 0, "it is empty")
        seal = self.entry(self.count - 1)
        if (
            seal.size > TRANSACTIONAL_SEAL
            or seal.position < segment.size
            or seal.offset > segment.next_offset
            or self.entry(0).offset < segment.base_offset
        ):
            at = (self.count - 1) * ENTRY_BYTES
            raise DamagedIndex(self._path, at, "it was not sealed for this segment")
        self.extend(self._view, self.count - 1)
        return seal

    def last_within(self, size: int) -> IndexEntry | None:
        """The last entry, which must point into a record file of `size` bytes."""
        if size == 0:
            return None
        if self.count == 0:
            raise DamagedIndex(self._path, 0, "it is empty")
        last = self.entry(self.count - 1)
        if last.size <= TRANSACTIONAL_SEAL or last.position + last.size > size:
            at = (self.count - 1) * ENTRY_BYTES
            raise DamagedIndex(self._path, at, "it points past the record file")
        return last

    def floor_offset(self, offset: int) -> IndexEntry | None:
        """The last entry at or below an offset."""
        return self._floor(offset, _OFFSET_AT)

    def floor_position(self, position: int) -> IndexEntry | None:
        """The last entry at or below a byte position."""
        return self._floor(position, _POSITION_AT)

    def _floor(self, target: int, field_at: int) -> IndexEntry | None:
        number = self._floor_number(target, field_at)
        # Probes are not checked on the way: it is enough that the two entries around the target
        # are sound, since entries increase.
        found = self.entry(number) if number >= 0 else None
        after = self.entry(number + 1) if number + 1 < self.count else None
        if (found and _field(found, field_at) > target) or (
            after and _field(after, field_at) <= target
        ):
            raise DamagedIndex(self._path, number * ENTRY_BYTES, "entries are out of order")
        return found

    def _floor_number(self, target: int, field_at: int) -> int:
        recent = self.count - self._mapped
        if recent:
            in_recent = floor(self._recent, recent, target, field_at)
            if in_recent >= 0:
                return self._mapped + in_recent
        return floor(self._view, self._mapped, target, field_at) if self._mapped else -1


def floor(view: memoryview, count: int, target: int, field_at: int) -> int:
    """Number of the last entry whose field is at most `target`, or -1.

    Cost: benchmarks/lookup.py.
    """
    read = _FIELD.unpack_from
    low, high = 0, count - 1
    (low_value,) = read(view, field_at)
    if target < low_value:
        return -1
    (high_value,) = read(view, high * ENTRY_BYTES + field_at)
    if target >= high_value:
        return high
    probes = 0
    while high - low > 1:
        if probes < _INTERPOLATION_PROBES and high_value > low_value:
            guess = low + (target - low_value) * (high - low) // (high_value - low_value)
            guess = min(max(guess, low + 1), high - 1)
        else:
            guess = (low + high) // 2
        probes += 1
        (value,) = read(view, guess * ENTRY_BYTES + field_at)
        if value <= target:
            low, low_value = guess, value
        else:
            high, high_value = guess, value
    return low


def _field(entry: IndexEntry, field_at: int) -> int:
    return entry.offset if field_at == _OFFSET_AT else entry.position
