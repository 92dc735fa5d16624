"""Reads a record file from front to back and works out all that its segment must know.

Serves recovery, the rebuilding of indexes and verification: what an index says is by definition
what a scan of the record file finds.

Rule: below `synced_offset` every byte was once known to be on disk, so what is not sound there is
damage: reported, stepped over, and kept. From `synced_offset` on, the first batch that is not
sound is where a crash tore the log, and the scan ends before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.errors import InvalidBatch, InvalidRequest
from millstream.records.batch import BatchHeader
from millstream.storage.batch_walk import (
    Place,
    base_offset_at,
    checked_batch,
    next_good_batch,
    plausible_batch,
)
from millstream.storage.index_builder import IndexBuilder
from millstream.storage.producer_state import TRANSACTION_BITS

EVERYTHING = 2**63 - 1


@dataclass(slots=True, frozen=True)
class Damage:
    """A run of bytes that hold no sound batch, and the offsets that are lost with it."""

    path: str
    position: int
    end_position: int
    offset: int
    end_offset: int
    reason: str

    def covers(self, position: int) -> bool:
        return self.position <= position < max(self.end_position, self.position + 1)

    def __str__(self) -> str:
        return (
            f"{self.path}: bytes {self.position} to {self.end_position} are damaged "
            f"({self.reason}); offsets {self.offset} to {self.end_offset - 1} cannot be read"
        )


@dataclass(slots=True)
class SegmentScan:
    """What a scan found, up to `end`."""

    indexes: IndexBuilder
    end: Place
    # Where the proof by checksums began.
    checked_from: int = 0
    batches: int = 0
    # Whether any batch is part of a transaction, or ends one.
    is_transactional: bool = False
    torn: str = ""
    damage: list[Damage] = field(default_factory=list)

    def add(self, header: BatchHeader, position: int, *, follows: bool) -> None:
        self.batches += 1
        if header.attributes & TRANSACTION_BITS:
            self.is_transactional = True
        self.indexes.add(
            header.base_offset,
            position,
            header.size_bytes,
            header.max_timestamp_ms,
            follows=follows,
        )


@dataclass(slots=True, kw_only=True, frozen=True)
class ScanRange:
    """Which file to scan, and what is known of it beforehand."""

    path: str
    base_offset: int
    limit_offset: int = EVERYTHING
    synced_offset: int = EVERYTHING
    check_from_offset: int = 0
    index_interval_bytes: int


def scan_segment(
    log: memoryview, what: ScanRange, indexes: IndexBuilder | None = None
) -> SegmentScan:
    """Scan a record file; batches at or past `check_from_offset` are proved by their checksum.

    Those before are taken by their headers, but for the last of them, which tells where the proof
    begins. If headers do not lead there without a gap, something is damaged, and all is proved to
    find out what. Cost: benchmarks/recovery.py.

    `indexes` is told of each sound batch, once: give one only where all is proved.
    """
    assert indexes is None or what.check_from_offset <= what.base_offset
    scan = SegmentScan(
        indexes or IndexBuilder(what.index_interval_bytes), Place(0, what.base_offset)
    )
    try:
        _walk_headers(log, what, scan)
    except InvalidRequest:
        scan = SegmentScan(IndexBuilder(what.index_interval_bytes), Place(0, what.base_offset))
    scan.checked_from = scan.end.position
    _prove(log, what, scan)
    return scan


def _walk_headers(log: memoryview, what: ScanRange, scan: SegmentScan) -> None:
    """Go on by headers alone to where the proof begins. Raises InvalidRequest."""
    position, offset = scan.end
    while offset < what.check_from_offset and position < len(log):
        header = plausible_batch(log, position, len(log))
        if header.base_offset != offset:
            raise InvalidBatch(f"offset {header.base_offset} where {offset} comes next")
        if header.next_offset >= what.check_from_offset:
            break
        scan.add(header, position, follows=True)
        position += header.size_bytes
        offset = header.next_offset
    if position == len(log) and offset < min(what.check_from_offset, what.limit_offset):
        raise InvalidBatch(f"the file ends at offset {offset}")
    scan.end = Place(position, offset)


def _prove(log: memoryview, what: ScanRange, scan: SegmentScan) -> None:
    """Go on to the end, proving each batch by its checksum and its place by the offsets."""
    end = len(log)
    position, offset = scan.end
    while position < end:
        try:
            header = checked_batch(log, position, end)
            if header.base_offset != offset:
                _require_gap(log, position, offset, header, what)
        except InvalidRequest as fault:
            if offset >= what.synced_offset:
                scan.torn = str(fault)
                break
            position, offset = _step_over(log, Place(position, offset), what, str(fault), scan)
            continue
        scan.add(header, position, follows=header.base_offset == offset)
        position += header.size_bytes
        offset = header.next_offset
    if what.limit_offset == EVERYTHING and offset < what.synced_offset < EVERYTHING:
        # The last segment ends before what was once known to be on disk.
        place = Place(position, offset)
        position, offset = _step_over(log, place, what, "the file ends too early", scan)
    scan.end = Place(position, offset)


def _require_gap(
    log: memoryview, position: int, offset: int, header: BatchHeader, what: ScanRange
) -> None:
    """Judge a batch that does not continue the one before. Raises InvalidBatch.

    Only compaction leaves gaps, and only in data that had been synced. There is none where the
    batch after this one, or the end of the segment, follows on as if this one had no gap before
    it: then it is this one's offset that is wrong.
    """
    following = position + header.size_bytes
    end_offset = min(what.limit_offset, what.synced_offset)
    next_base = base_offset_at(log, following) if following < len(log) else end_offset
    is_gap = (
        offset < header.base_offset
        and header.next_offset <= end_offset
        and next_base != offset + header.last_offset_delta + 1
    )
    if not is_gap:
        raise InvalidBatch(f"offset {header.base_offset} where {offset} comes next")


def _step_over(
    log: memoryview, damaged: Place, what: ScanRange, reason: str, scan: SegmentScan
) -> Place:
    """Note damage; returns the place of the next sound batch, or the end."""
    end_offset = min(what.limit_offset, what.synced_offset)
    found = next_good_batch(log, damaged, end=len(log), limit_offset=end_offset)
    if found is None and end_offset < what.limit_offset:
        # No base offset is under a checksum. What was not synced can begin at one place only.
        unsynced = Place(damaged.position, end_offset)
        found = next_good_batch(log, unsynced, end=len(log), limit_offset=what.limit_offset)
        if found is not None and found.offset != end_offset:
            found = None
    behind = found or Place(len(log), end_offset)
    scan.damage.append(
        Damage(
            path=what.path,
            position=damaged.position,
            end_position=behind.position,
            offset=damaged.offset,
            end_offset=behind.offset,
            reason=reason,
        )
    )
    return behind
