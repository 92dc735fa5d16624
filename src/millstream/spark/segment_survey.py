"""What the segment files of a data directory hold, found with no broker running.

One walk over the headers of a partition's batches tells where it begins and ends, which
transactions were aborted, and how far it is stable. Indexes are not needed and not trusted.

Invariant: segments of one partition follow each other, and no offset is in two of them.
After a crash of the broker: the last segment is proved by its checksums, and ends where the crash
tore it; a batch that is not sound anywhere else is CorruptData. Files are only read.
Formats: docs/formats/record_batch.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from millstream.errors import CorruptData, InvalidOption, InvalidRequest, UnknownTopic
from millstream.records.batch import BatchHeader
from millstream.records.batch_reader import records_of
from millstream.records.control import ControlType, parse_control
from millstream.settings.names import is_internal_topic, is_topic_name
from millstream.spark.offsets import EARLIEST, LATEST, Offsets, Place
from millstream.storage.batch_walk import (
    Place as BatchPlace,
)
from millstream.storage.batch_walk import (
    checked_batch,
    next_good_batch,
    plausible_batch,
)
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.log_start import read_log_start

_SEGMENT_NAME = re.compile(r"\d{20}\.log")
_LARGEST_OFFSET = 2**63 - 1
_MAX_BATCH_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One file, the offsets that are read from it, and where its sound batches end."""

    path: str
    start: int
    end: int
    end_position: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """A transaction that does not count: all its producer wrote between two offsets."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class PartitionSurvey:
    """What is known of one partition after the walk."""

    start: int = 0
    end: int = 0
    segments: list[Segment] = field(default_factory=list)
    aborted: list[Aborted] = field(default_factory=list)
    # The first offset of each transaction that has not ended.
    open: dict[int, int] = field(default_factory=dict)

    @property
    def stable_end(self) -> int:
        return min(self.open.values(), default=self.end)


class SegmentDirectory:
    """The partitions in a broker's data directory, as a query plans with them."""

    def __init__(self, path: str) -> None:
        self._topics = os.path.join(path, "topics")
        if not os.path.isdir(self._topics):
            raise InvalidOption(
                name="path", value=path, expected="a broker's data directory, with topics in it"
            )
        self.survey = cache(self._survey)

    def partitions(self, topics: Iterable[str] | None) -> dict[str, list[int]]:
        """Raises UnknownTopic."""
        if topics is None:
            topics = [
                name
                for name in sorted(os.listdir(self._topics))
                if is_topic_name(name) and not is_internal_topic(name)
            ]
        return {topic: self._partitions_of(topic) for topic in topics}

    def offsets(self, places: Iterable[Place], at: int, *, committed: bool) -> Offsets:
        found = {}
        for place in places:
            survey = self.survey(place)
            end = survey.stable_end if committed else survey.end
            if at == EARLIEST:
                found[place] = survey.start
            elif at == LATEST:
                found[place] = end
            else:
                found[place] = min(_offset_at_time(survey, at), end)
        return found

    def _partitions_of(self, topic: str) -> list[int]:
        directory = os.path.join(self._topics, topic)
        if not is_topic_name(topic) or not os.path.isdir(directory):
            raise UnknownTopic(topic)
        return sorted(int(name) for name in os.listdir(directory) if name.isdigit())

    def _survey(self, place: Place) -> PartitionSurvey:
        topic, partition = place
        directory = os.path.join(self._topics, topic, str(partition))
        names = sorted(name for name in os.listdir(directory) if _SEGMENT_NAME.fullmatch(name))
        survey = PartitionSurvey()
        for number, name in enumerate(names):
            if number == 0:
                survey.end = int(name.removesuffix(".log"))
                survey.start = survey.end
            path = os.path.join(directory, name)
            _walk(path, survey, is_last=number == len(names) - 1)
        log_start = read_log_start(LocalFilesystem(), directory)
        survey.start = min(max(survey.start, log_start), survey.end)
        return survey


def map_file(path: str, size: int | None = None) -> memoryview:
    """The bytes of a file, up to a size."""
    file = LocalFilesystem().open_for_reading(path)
    try:
        view = file.map()
    finally:
        file.close()
    return view if size is None else view[:size]


def _walk(path: str, survey: PartitionSurvey, *, is_last: bool) -> None:
    """Take in one segment. Raises CorruptData."""
    log = map_file(path)
    position, size = 0, len(log)
    start = survey.end
    # Of the last segment the end may be torn, so that nothing less than a checksum proves it.
    read = checked_batch if is_last else plausible_batch
    while position < size:
        try:
            header = read(log, position, size)
        except InvalidRequest as fault:
            _check_torn(path, log, BatchPlace(position, survey.end), fault, is_last=is_last)
            break
        if header.next_offset > survey.end:
            _note_transaction(survey, header, log[position : position + header.size_bytes])
            survey.end = header.next_offset
        position += header.size_bytes
    if survey.end > start:
        survey.segments.append(
            Segment(path=path, start=start, end=survey.end, end_position=position)
        )


def _check_torn(
    path: str, log: memoryview, at: BatchPlace, fault: InvalidRequest, *, is_last: bool
) -> None:
    """Raises CorruptData unless the fault is the end of what was written."""
    behind = next_good_batch(log, at, end=len(log), limit_offset=_LARGEST_OFFSET)
    if not is_last or behind is not None:
        raise CorruptData(path=path, position=at.position, reason=str(fault)) from fault


def _note_transaction(survey: PartitionSurvey, header: BatchHeader, batch: memoryview) -> None:
    if not header.is_transactional:
        return
    producer_id = header.producer_id
    if not header.is_control:
        survey.open.setdefault(producer_id, header.base_offset)
        return
    first = survey.open.pop(producer_id, None)
    if first is not None and parse_control(batch).kind == ControlType.ABORT:
        survey.aborted.append(Aborted(producer_id, first, header.base_offset))


def _offset_at_time(survey: PartitionSurvey, at_ms: int) -> int:
    """The first offset whose record is as late as that; the end where there is none."""
    for segment in survey.segments:
        log = map_file(segment.path, segment.end_position)
        position = 0
        while position < len(log):
            header = plausible_batch(log, position, len(log))
            batch = log[position : position + header.size_bytes]
            position += header.size_bytes
            if header.max_timestamp_ms < at_ms or header.next_offset <= survey.start:
                continue
            for record in records_of(batch, limit_bytes=_MAX_BATCH_BYTES):
                if record.timestamp_ms >= at_ms and record.offset >= survey.start:
                    return record.offset
    return survey.end
