"""Drops the end of a log, on disk.

A segment is not cut in place: views of its mapping may be on their way to a socket, and reading
past the end of a file that shrank kills the process. What stays is copied to a new file, which
takes the old one's name.

After a crash: later segments go first, newest first, so the log is whole at every step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from millstream.storage.batch_walk import split_batches
from millstream.storage.cleaning_state import cut_cleaning_state
from millstream.storage.filesystem import Filesystem, write_atomically
from millstream.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, Segment, segment_stem

_READ_BYTES = 4 << 20


class Cut(NamedTuple):
    """Which segment keeps how many bytes, and where the log ends then."""

    segment_number: int
    position: int
    end_offset: int


def find_cut(
    segments: Sequence[Segment],
    end_offset: int,
    read: Callable[[Segment, int, int], memoryview | None],
) -> Cut:
    """Where to cut so that no batch reaches to or past an offset of the log."""
    number = max(
        (n for n, segment in enumerate(segments) if segment.base_offset < end_offset), default=0
    )
    position, offset = 0, segments[number].base_offset
    while offset < end_offset:
        view = read(segments[number], offset, _READ_BYTES)
        if view is None:
            break
        for header, batch in split_batches(view):
            if header.last_offset >= end_offset:
                return Cut(number, position, offset)
            position += len(batch)
            offset = header.next_offset
    return Cut(number, position, offset)


def drop_from(filesystem: Filesystem, segments: Sequence[Segment], cut: Cut) -> None:
    """Durably drop all that lies behind a cut. Raises OSError."""
    directory = os.path.dirname(segments[0].stem)
    cut_cleaning_state(filesystem, directory, cut.end_offset)
    first = cut.segment_number + (cut.position > 0)
    for segment in reversed(segments[first:]):
        for suffix in SEGMENT_SUFFIXES:
            filesystem.remove(segment.stem + suffix)
        filesystem.sync_directory(directory)
    if cut.position:
        _keep(filesystem, segments[cut.segment_number], cut.position)
    elif first == 0:
        # An empty segment remembers where a log without records goes on.
        stem = segment_stem(directory, cut.end_offset)
        write_atomically(filesystem, stem + LOG_SUFFIX, b"")


def _keep(filesystem: Filesystem, segment: Segment, position: int) -> None:
    """Keep the first bytes of a segment's records, and no index."""
    file = filesystem.open_for_reading(segment.log_path)
    try:
        kept = file.read(0, position)
    finally:
        file.close()
    filesystem.remove(segment.index_path)
    filesystem.remove(segment.time_index_path)
    filesystem.remove(segment.aborted_path)
    write_atomically(filesystem, segment.log_path, kept)
