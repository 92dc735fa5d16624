"""Proves the files of one log, and tells exactly what is wrong where.

Every batch is proved by its checksum and its place by the chain of offsets; indexes are held
against the batches; all other files are read as a starting broker reads them. Nothing is written.

Rule after a crash: what was not yet known to be on disk may be torn. That is no damage, and is told
as what the next start will cut; the indexes of the segment that was being written are written anew
by the next start, and so not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from millstream.errors import CorruptData, InvalidRequest, MessageTooLarge, NotFound
from millstream.records import parse_header, records_of
from millstream.records.batch import CRC_FROM, HEADER_BYTES, MAGIC
from millstream.records.checksum import crc32c
from millstream.storage import cleaning_state, log_start
from millstream.storage.aborted_transactions import AbortedIndex
from millstream.storage.batch_walk import LEADER_EPOCH
from millstream.storage.cleaning_state import is_cleaning_state_sound, read_cleaning_state
from millstream.storage.filesystem import Filesystem, map_whole, read_whole
from millstream.storage.finding import Finding
from millstream.storage.index_builder import IndexBuilder
from millstream.storage.index_verification import IndexWitness
from millstream.storage.log_start import read_log_start
from millstream.storage.offset_index import DamagedIndex
from millstream.storage.producer_snapshots import ProducerSnapshots
from millstream.storage.producer_state import ProducerStates
from millstream.storage.recovery import (
    CLEANED_MARK,
    SYNC_FAILED,
    TEMPORARY_SUFFIX,
    LogCheckpoint,
)
from millstream.storage.segment import (
    ABORTED_SUFFIX,
    CUT_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    SegmentState,
    base_offset_of,
    segment_stem,
)
from millstream.storage.segment_scan import (
    EVERYTHING,
    Damage,
    ScanRange,
    SegmentScan,
    scan_segment,
)

_UNPACKED_BYTES = 1 << 30


@dataclass(slots=True)
class LogReport:
    """What a verification found in one log."""

    name: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


def segments_of(
    filesystem: Filesystem, directory: str, checkpoint: LogCheckpoint | None
) -> list[Segment]:
    """The segments in a log's directory as their names and the checkpoint tell of them.

    The next offset of the last one is EVERYTHING if the log was not stopped cleanly.
    """
    sizes = filesystem.sizes(directory)
    bases = sorted(base for n in sizes if (base := base_offset_of(n, LOG_SUFFIX)) is not None)
    end = checkpoint.end_offset if checkpoint and checkpoint.end_offset >= 0 else EVERYTHING
    nexts = [*bases[1:], max(end, bases[-1])] if bases else []
    found = [
        Segment(
            stem=segment_stem(directory, base),
            base_offset=base,
            next_offset=following,
            size=sizes[f"{base:020d}{LOG_SUFFIX}"],
            state=SegmentState.ARCHIVED,
        )
        for base, following in zip(bases, nexts, strict=True)
    ]
    if found:
        found[-1].state = SegmentState.ACTIVE
    return found


class LogVerification:
    """The proof of one log, segment by segment."""

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        *,
        name: str,
        checkpoint: LogCheckpoint | None,
        reads_records: bool = False,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._checkpoint = checkpoint
        self._reads_records = reads_records
        self._report = LogReport(name)
        self.segments = segments_of(filesystem, directory, checkpoint)

    def run(self, tell: Callable[[int], None] = lambda _: None) -> LogReport:
        """`tell` is told of the bytes of each segment that is done. Raises OSError."""
        report = self._report
        report.findings += self._strange_files()
        report.findings += self._small_files()
        for segment in self.segments:
            self._verify(segment)
            report.segments += 1
            report.bytes += segment.size
            tell(segment.size)
        return report

    # Segments

    def _verify(self, segment: Segment) -> None:
        is_open = segment.next_offset == EVERYTHING
        try:
            log = map_whole(self._filesystem, segment.log_path)
        except NotFound:
            self._damage(segment.log_path, "the file has gone while it was looked for")
            return
        if segment.state is SegmentState.ACTIVE and not is_open:
            self._check_size(segment, len(log))
        witness = None if is_open else IndexWitness(self._filesystem, segment)
        if segment.size == 0 and witness is not None and segment.state is SegmentState.ACTIVE:
            # An index of nothing need not be there.
            witness = None
        reader = _RecordReader(log, witness, reads_records=self._reads_records)
        scan = scan_segment(
            log,
            ScanRange(
                path=segment.log_path,
                base_offset=segment.base_offset,
                limit_offset=segment.next_offset,
                synced_offset=self._recovery_point() if is_open else EVERYTHING,
                index_interval_bytes=1,
            ),
            reader,
        )
        self._report.batches += scan.batches
        self._report.records += reader.records
        self._report.findings += [_explained(log, each) for each in scan.damage]
        self._report.findings += reader.findings(segment.log_path)
        if scan.torn:
            self._note_torn(segment, log, scan)
        if witness is not None:
            self._check_end(segment, scan)
            # An index knows nothing of batches that are damaged by now.
            if not scan.damage:
                self._report.findings += witness.finish(
                    scan.end.position, is_transactional=scan.is_transactional
                )
            if scan.is_transactional and segment.state is not SegmentState.ACTIVE:
                self._check_aborted(segment)

    def _recovery_point(self) -> int:
        newest = ProducerSnapshots(self._filesystem, self._directory).newest(EVERYTHING)
        return max(
            self._checkpoint.recovery_point if self._checkpoint else 0,
            read_cleaning_state(self._filesystem, self._directory).planned_offset,
            newest.snapshot_offset,
        )

    def _check_size(self, segment: Segment, size: int) -> None:
        assert self._checkpoint is not None
        if size != self._checkpoint.active_size:
            self._damage(
                segment.log_path,
                "the file has another size than a clean stop left",
                position=min(size, self._checkpoint.active_size),
                expected=f"{self._checkpoint.active_size} bytes",
                found=f"{size} bytes",
            )

    def _check_end(self, segment: Segment, scan: SegmentScan) -> None:
        """What lies between the last batch and the next segment was compacted away, or lost."""
        planned = read_cleaning_state(self._filesystem, self._directory).planned_offset
        if scan.end.offset < segment.next_offset and not scan.damage:
            if segment.next_offset <= planned:
                return
            self._damage(
                segment.log_path,
                "the log goes on elsewhere: a segment, or the end of this one, is missing",
                position=scan.end.position,
                offset=scan.end.offset,
                expected=f"offsets up to {segment.next_offset - 1}",
                found=f"the end at offset {scan.end.offset}",
            )

    def _check_aborted(self, segment: Segment) -> None:
        try:
            AbortedIndex.open(
                self._filesystem, segment.aborted_path, next_offset=segment.next_offset
            )
        except DamagedIndex as damage:
            self._damage(segment.aborted_path, str(damage).partition(": ")[2])

    def _note_torn(self, segment: Segment, log: memoryview, scan: SegmentScan) -> None:
        position, offset = scan.end
        if not any(log[position : position + HEADER_BYTES]):
            # Room that was never written to.
            return
        self._report.findings.append(
            Finding(
                path=segment.log_path,
                problem=f"a torn end ({scan.torn}), which the next start cuts off",
                position=position,
                offset=offset,
                is_damage=False,
            )
        )

    # Other files

    def _strange_files(self) -> Iterator[Finding]:
        sizes = self._filesystem.sizes(self._directory)
        for name in sorted(sizes):
            told = _told_of(name, sizes)
            if told:
                path = os.path.join(self._directory, name)
                yield Finding(path=path, problem=told, is_damage=False)

    def _small_files(self) -> Iterator[Finding]:
        directory, filesystem = self._directory, self._filesystem
        try:
            read_log_start(filesystem, directory)
        except CorruptData as damage:
            yield _finding(damage)
        if not is_cleaning_state_sound(filesystem, directory):
            path = os.path.join(directory, cleaning_state.NAME)
            yield Finding(path=path, problem="it cannot be read: the log is compacted anew")
        for name in sorted(filesystem.sizes(directory)):
            offset = base_offset_of(name, SNAPSHOT_SUFFIX)
            if offset is None:
                continue
            path = os.path.join(directory, name)
            try:
                _, told = ProducerStates.load(read_whole(filesystem, path) or b"", path=path)
            except CorruptData as damage:
                yield _finding(damage)
                continue
            if told != offset:
                yield Finding(
                    path=path,
                    problem="it speaks of another offset than its name",
                    offset=offset,
                    expected=f"offset {offset}",
                    found=f"offset {told}",
                )

    def _damage(
        self,
        path: str,
        problem: str,
        *,
        position: int | None = None,
        offset: int | None = None,
        expected: str = "",
        found: str = "",
    ) -> None:
        self._report.findings.append(
            Finding(
                path=path,
                problem=problem,
                position=position,
                offset=offset,
                expected=expected,
                found=found,
            )
        )


class _RecordReader(IndexBuilder):
    """Counts records, reads them if so wanted, and hands each batch on to the witness."""

    __slots__ = ("_log", "_reads_records", "_unreadable", "_witness", "records")

    def __init__(
        self, log: memoryview, witness: IndexWitness | None, *, reads_records: bool
    ) -> None:
        super().__init__(1)
        self._log = log
        self._witness = witness
        self._reads_records = reads_records
        self._unreadable: list[tuple[int, int, str]] = []
        self.records = 0

    def add(
        self, offset: int, position: int, size: int, max_timestamp_ms: int, *, follows: bool = True
    ) -> None:
        batch = self._log[position : position + size]
        self.records += parse_header(batch).records_count
        if self._reads_records:
            try:
                for _ in records_of(batch, limit_bytes=_UNPACKED_BYTES):
                    pass
            except (InvalidRequest, MessageTooLarge) as fault:
                self._unreadable.append((position, offset, str(fault)))
        if self._witness is not None:
            self._witness.add(offset, position, size, max_timestamp_ms, follows=follows)

    def findings(self, path: str) -> Iterator[Finding]:
        for position, offset, reason in self._unreadable:
            yield Finding(
                path=path,
                problem=f"a batch arrived so, and its records cannot be read: {reason}",
                position=position,
                offset=offset,
            )


def _explained(log: memoryview, damage: Damage) -> Finding:
    """What should be where a damaged batch begins, and what is."""
    expected, found = _difference(log, damage)
    lost = damage.end_offset - damage.offset
    return Finding(
        path=damage.path,
        problem=f"{damage.reason}; {lost} offsets up to byte {damage.end_position} are lost",
        position=damage.position,
        offset=damage.offset,
        expected=expected,
        found=found,
    )


def _difference(log: memoryview, damage: Damage) -> tuple[str, str]:
    position, end = damage.position, len(log)
    if end - position < HEADER_BYTES:
        return f"a batch header of {HEADER_BYTES} bytes", f"{end - position} bytes"
    header = parse_header(log, position)
    if (header.leader_epoch, header.magic) != (LEADER_EPOCH, MAGIC):
        return (
            f"leader epoch {LEADER_EPOCH} and magic {MAGIC}",
            f"leader epoch {header.leader_epoch} and magic {header.magic}",
        )
    if not HEADER_BYTES <= header.size_bytes <= end - position:
        return f"a batch of at most {end - position} bytes", f"one of {header.size_bytes} bytes"
    checksum = crc32c(log[position + CRC_FROM : position + header.size_bytes])
    if checksum != header.crc:
        return f"checksum {header.crc:#010x}", f"checksum {checksum:#010x}"
    if header.base_offset != damage.offset:
        return f"offset {damage.offset}", f"offset {header.base_offset}"
    return (
        "a codec that is known, and as many records as offsets at most",
        (
            f"attributes {header.attributes:#06x}, {header.records_count} records, "
            f"{header.last_offset_delta}"
        ),
    )


def _finding(damage: CorruptData) -> Finding:
    return Finding(path=damage.path, problem=damage.reason, position=damage.position)


def _told_of(name: str, sizes: dict[str, int]) -> str:
    """What a person should know of a file by its name; nothing of what belongs there."""
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX):
        base = base_offset_of(name, suffix)
        if base is not None:
            is_known = f"{base:020d}{LOG_SUFFIX}" in sizes
            return "" if is_known else "it has no record file: the next start removes it"
    if any(base_offset_of(name, suffix) is not None for suffix in (LOG_SUFFIX, SNAPSHOT_SUFFIX)):
        return ""
    if name in {cleaning_state.NAME, log_start.NAME}:
        return ""
    if name == SYNC_FAILED:
        return "a sync failed: the next start writes again what may not be on disk"
    if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)) or CLEANED_MARK in name:
        return "a leftover, which the next start removes"
    if name.endswith(SWAP_SUFFIX):
        return "a compaction that the next start finishes"
    if CUT_SUFFIX in name:
        return "bytes that a recovery cut off and set aside: look at them, then remove them"
    return "no file of a log"
