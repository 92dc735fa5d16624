"""Takes damage out of a log of a stopped broker, so that it can be read from end to end.

What cannot be read is lost; everything else keeps its offset, and the log ends where it did.
The files as they were are kept under `damaged/`.

In a topic of clients only the damaged segments are written anew, without the bytes that hold no
sound batch. The broker's own topics have two copies. Where neither is whole, the sound batches of
both become the primary one, and the next start makes the other copy from it. A key that was deleted
may come back by that, where only the deletion is lost.

Invariant: gaps in the offsets are announced, durably, before a segment has them.
After a crash: each segment is the old one or the new one, whole, and merged copies are complete
once they are called `<partition>.repaired`; repair again.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from millstream.clock import Clock
from millstream.records import Record, records_of
from millstream.records.batch import parse_header
from millstream.settings.log import LogSettings
from millstream.settings.names import is_internal_topic
from millstream.storage.cleaning_state import (
    CleaningState,
    read_cleaning_state,
    write_cleaning_state,
)
from millstream.storage.filesystem import Filesystem, map_whole, remove_tree, replace_content
from millstream.storage.local_log import LocalLog
from millstream.storage.log_start import write_log_start
from millstream.storage.log_walk import sound_batches
from millstream.storage.mirrored_log import (
    REPAIRED_SUFFIX,
    copy_name,
    faults_of,
    free_directory,
    set_aside,
)
from millstream.storage.recovery import LogCheckpoint, directories_of
from millstream.storage.segment import (
    ABORTED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_stem,
)
from millstream.storage.segment_cache import SegmentCache
from millstream.storage.segment_scan import Damage

_CACHED_SEGMENTS = 8
_UNPACKED_BYTES = 128 << 20


class LogRepair:
    """The repair of one log. The caller holds the lock of the data directory."""

    def __init__(
        self,
        filesystem: Filesystem,
        data: str,
        name: str,
        *,
        checkpoints: Mapping[str, LogCheckpoint],
        clock: Clock,
    ) -> None:
        """Open the log as a start does, and read all of it. Raises CorruptData, OSError."""
        self.name = name
        self._filesystem = filesystem
        self._data = data

        def opened(directory: str, log_name: str) -> LocalLog:
            return LocalLog(
                filesystem,
                os.path.join(data, directory, name),
                name=log_name,
                settings=LogSettings(),
                clock=clock,
                cache=SegmentCache(_CACHED_SEGMENTS),
                checkpoint=checkpoints.get(log_name),
            )

        self._finish_merge()
        self._logs = [opened("topics", name)]
        if is_internal_topic(name.rpartition("/")[0]):
            self._logs.append(opened("copies", copy_name(name)))
        self._faults = [faults_of(log) for log in self._logs]
        self._end_offset = max(log.end_offset for log in self._logs)

    @property
    def problems(self) -> list[str]:
        """What is wrong, by file and position; nothing where the next start needs no help."""
        ends = [log.end_offset for log in self._logs]
        pairs = zip(self._faults, ends, strict=True)
        if any(not faults and end == self._end_offset for faults, end in pairs):
            return []
        return [fault for faults in self._faults for fault in faults]

    @property
    def lost(self) -> list[range]:
        """The offsets that no file can give any more."""
        missing = [
            [
                *(range(each.offset, each.end_offset) for each in log.report.damage),
                range(log.end_offset, self._end_offset),
            ]
            for log in self._logs
        ]
        found = missing[0]
        for others in missing[1:]:
            found = [_common(one, other) for one in found for other in others]
        return [each for each in found if each]

    def records(self) -> Iterator[Record]:
        """Every record that can be read, of all copies."""
        for log in self._logs:
            for _, batch in sound_batches(log, log.start_offset):
                yield from records_of(batch, limit_bytes=_UNPACKED_BYTES)

    def close(self) -> None:
        for log in self._logs:
            log.discard()

    def run(self, closing: bytearray | None = None) -> str:
        """Take the damage out; returns where the old files are kept. Raises OSError.

        `closing` is a batch to append to one of the broker's own topics.
        """
        for log in self._logs:
            log.rest()
        if len(self._logs) > 1:
            return self._merge(closing)
        assert closing is None
        return self._write_segments_anew()

    # A topic of clients

    def _write_segments_anew(self) -> str:
        [log] = self._logs
        filesystem, directory = self._filesystem, log.directory
        damage: defaultdict[str, list[Damage]] = defaultdict(list)
        for each in log.report.damage:
            damage[each.path].append(each)
        segments = [segment for segment in log.segments() if segment.log_path in damage]
        kept = free_directory(filesystem, os.path.join(self._data, "damaged"), self.name)
        filesystem.make_directory(kept)
        self._announce_gaps(directory)
        for segment in segments:
            content = map_whole(filesystem, segment.log_path)
            name = os.path.basename(segment.log_path)
            replace_content(filesystem, os.path.join(kept, name), content, sync=True)
            filesystem.sync_directory(kept)
            sound = b"".join(_sound_parts(content[: segment.size], damage[segment.log_path]))
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX):
                filesystem.remove(segment.stem + suffix)
            temporary = f"{segment.log_path}.tmp"
            replace_content(filesystem, temporary, sound, sync=True)
            filesystem.rename(temporary, segment.log_path)
        if any(each.end_offset == self._end_offset for each in log.report.damage):
            self._begin_segment(directory)
        if directory in damage:
            # Segments before the first are missing.
            write_log_start(filesystem, directory, log.segments()[0].base_offset)
        filesystem.sync_directory(directory)
        return kept

    # The broker's own topics

    def _merge(self, closing: bytearray | None) -> str:
        filesystem, directory = self._filesystem, self._logs[0].directory
        batches = {
            header.base_offset: bytes(batch)
            for log in reversed(self._logs)
            for header, batch in sound_batches(log, log.start_offset)
        }
        if closing is not None:
            closing[:8] = self._end_offset.to_bytes(8, "big")
            batches[self._end_offset] = bytes(closing)
            self._end_offset += parse_header(closing).records_count
        fresh = f"{directory}.tmp"
        remove_tree(filesystem, fresh)
        filesystem.make_directory(fresh)
        content = b"".join(batch for _, batch in sorted(batches.items()))
        replace_content(filesystem, segment_stem(fresh, 0) + LOG_SUFFIX, content, sync=True)
        self._announce_gaps(fresh)
        self._begin_segment(fresh)
        filesystem.sync_directory(fresh)
        filesystem.rename(fresh, directory + REPAIRED_SUFFIX)
        # From here on the old files are not needed any more.
        filesystem.sync_directory(os.path.dirname(directory))
        return self._finish_merge()

    def _finish_merge(self) -> str:
        """Put merged copies in their place; returns where the old ones are."""
        filesystem, kept = self._filesystem, []
        directory = os.path.join(self._data, "topics", self.name)
        if not filesystem.sizes(directory + REPAIRED_SUFFIX):
            return ""
        damaged = os.path.join(self._data, "damaged")
        for place, name in (("copies", copy_name(self.name)), ("topics", self.name)):
            path = os.path.join(self._data, place, self.name)
            if filesystem.sizes(path):
                kept.append(set_aside(filesystem, path, damaged, name))
        filesystem.rename(directory + REPAIRED_SUFFIX, directory)
        for each in directories_of(directory, self.name):
            filesystem.sync_directory(each)
        return " and ".join(kept)

    # Both

    def _announce_gaps(self, directory: str) -> None:
        """Let recovery and readers know that offsets below the end may be missing."""
        state = read_cleaning_state(self._filesystem, directory)
        if state.planned_offset < self._end_offset:
            state = CleaningState(
                clean_offset=state.clean_offset,
                planned_offset=self._end_offset,
                expired_offset=state.expired_offset,
                horizons=state.horizons,
            )
            write_cleaning_state(self._filesystem, directory, state)

    def _begin_segment(self, directory: str) -> None:
        """Let the log go on at its end, although the last batches may be lost."""
        path = segment_stem(directory, self._end_offset) + LOG_SUFFIX
        replace_content(self._filesystem, path, b"", sync=True)


def _sound_parts(log: memoryview, damage: Iterable[Damage]) -> list[memoryview]:
    parts, position = [], 0
    for each in sorted(damage, key=lambda each: each.position):
        parts.append(log[position : each.position])
        position = max(position, each.position, each.end_position)
    return [*parts, log[position:]]


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
