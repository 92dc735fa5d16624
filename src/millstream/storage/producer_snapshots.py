"""The snapshot files of one partition's producer state.

A snapshot is named by the offset up to which it speaks, `<20 digits>.snapshot`. One is written
whenever a segment is closed and at a clean stop; the two newest are kept, so that a damaged one
has an older one behind it.

Invariant: a snapshot is written only after every record below its offset was synced, and so vouches
for them too.
After a crash: the newest one that is whole and not past the end of the log is taken.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from millstream.errors import CorruptData
from millstream.storage.filesystem import NO_SPACE, Filesystem, read_whole, replace_content
from millstream.storage.producer_state import ProducerStates
from millstream.storage.segment import SNAPSHOT_SUFFIX, base_offset_of

_KEPT = 2


class RestoredProducers(NamedTuple):
    """State as of a snapshot, or brought up to the end of a log, and how it was found."""

    states: ProducerStates
    snapshot_offset: int
    faults: list[str]


class ProducerSnapshots:
    """Writes and finds snapshots in a log's directory."""

    def __init__(self, filesystem: Filesystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory

    def newest(self, end_offset: int) -> RestoredProducers:
        """The newest usable state at or before an offset, and what was wrong with newer ones."""
        faults: list[str] = []
        for offset in self._offsets():
            if offset > end_offset:
                continue
            path = self._path(offset)
            try:
                states, next_offset = ProducerStates.load(
                    read_whole(self._filesystem, path) or b"", path=path
                )
            except CorruptData as damage:
                faults.append(str(damage))
                continue
            if next_offset == offset:
                return RestoredProducers(states, offset, faults)
            faults.append(f"{path} speaks of offset {next_offset}")
        return RestoredProducers(ProducerStates(), 0, faults)

    def write(self, next_offset: int, content: bytes) -> None:
        """Write a snapshot and drop the oldest. Its name is the caller's to sync.

        On a full disk there is none: then more headers are replayed at the next start.
        """
        try:
            replace_content(self._filesystem, self._path(next_offset), content, sync=True)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._filesystem.remove(self._path(next_offset))
            return
        for offset in self._offsets()[_KEPT:]:
            self._filesystem.remove(self._path(offset))

    def drop_past(self, end_offset: int) -> None:
        """Remove the snapshots that speak of records which are no more."""
        for offset in self._offsets():
            if offset > end_offset:
                self._filesystem.remove(self._path(offset))

    def _offsets(self) -> list[int]:
        """Newest first."""
        offsets = (
            base_offset_of(name, SNAPSHOT_SUFFIX)
            for name in self._filesystem.sizes(self._directory)
        )
        return sorted((o for o in offsets if o is not None), reverse=True)

    def _path(self, offset: int) -> str:
        return os.path.join(self._directory, f"{offset:020d}{SNAPSHOT_SUFFIX}")
