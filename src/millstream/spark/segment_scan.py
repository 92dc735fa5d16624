"""Reads segment files into Arrow batches, one task for each segment, with no broker.

Invariant: every record of a segment's range comes out once, in order, once its checksum holds.
After a crash: nothing is kept; the task reads its segment again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from millstream.records.arrow import ColumnReader
from millstream.records.batch import parse_header
from millstream.spark.offsets import OffsetRange
from millstream.spark.segment_survey import Aborted, PartitionSurvey, Segment, map_file

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class SegmentRange(InputPartition):
    """What one task reads: some offsets of one segment."""

    topic: str
    partition: int
    segment: Segment
    aborted: Sequence[Aborted]


def segment_ranges(whole: OffsetRange, survey: PartitionSurvey) -> list[SegmentRange]:
    """The segments that hold a range of a partition, each with its part of it."""
    found = []
    for segment in survey.segments:
        start, end = max(segment.start, whole.start), min(segment.end, whole.end)
        if start < end:
            aborted = [
                each
                for each in survey.aborted
                if each.first_offset < end and each.last_offset >= start
            ]
            part = replace(segment, start=start, end=end)
            found.append(SegmentRange(whole.topic, whole.partition, part, aborted))
    return found


def read_segment(
    task: SegmentRange, *, columns: Sequence[str], committed: bool
) -> Iterator[pa.RecordBatch]:
    """Raises CorruptData."""
    segment = task.segment
    reader = ColumnReader(
        task.topic,
        task.partition,
        columns=columns,
        start=segment.start,
        end=segment.end,
        committed=committed,
    )
    log = map_file(segment.path, segment.end_position)
    position = 0
    while position < len(log) and reader.next_offset < segment.end:
        until, first, last = _chunk(log, position)
        if last >= segment.start:
            aborted = [
                (each.producer_id, each.first_offset)
                for each in task.aborted
                if each.first_offset <= last and each.last_offset >= first
            ]
            yield from reader.feed(log[position:until], aborted if committed else ())
        position = until
    yield from reader.rest()


def _chunk(log: memoryview, position: int) -> tuple[int, int, int]:
    """Some whole batches from a position on: where they end, their first and last offset."""
    header = parse_header(log, position)
    first = header.base_offset
    until = position + header.size_bytes
    while until < len(log):
        following = parse_header(log, until)
        if until + following.size_bytes - position > CHUNK_BYTES:
            break
        header = following
        until += header.size_bytes
    return until, first, header.last_offset
