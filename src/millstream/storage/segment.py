"""One segment of a log: its place in the log, its files' names and its stage of life.

A segment is active while it takes appends, full when it takes no more but may not be on disk yet,
archived once it is, and deleted when its files have been renamed and wait for removal.

Invariant: an archived segment's files never change; compaction replaces them as a whole.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from millstream.storage.filesystem import Filesystem

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
ABORTED_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
CUT_SUFFIX = ".cut"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)


class SegmentState(Enum):
    """A segment's stage of life."""

    ACTIVE = "active"
    FULL = "full"
    ARCHIVED = "archived"
    DELETED = "deleted"


@dataclass(slots=True)
class Segment:
    """What the log knows of a segment without opening its files."""

    stem: str
    base_offset: int
    next_offset: int
    size: int
    state: SegmentState
    # None until someone asks: opening a log reads no index.
    max_timestamp_ms: int | None = None
    # When this process closed or first saw it: its age where records carry no time.
    closed_ms: int = 0
    # Compaction is at work on it, so nobody else may remove it.
    compacting: bool = False

    @property
    def log_path(self) -> str:
        return self.stem + LOG_SUFFIX

    @property
    def index_path(self) -> str:
        return self.stem + INDEX_SUFFIX

    @property
    def time_index_path(self) -> str:
        return self.stem + TIME_INDEX_SUFFIX

    @property
    def aborted_path(self) -> str:
        return self.stem + ABORTED_SUFFIX


def segment_stem(directory: str, base_offset: int) -> str:
    """The path of a segment's files, less their suffix."""
    return os.path.join(directory, f"{base_offset:020d}")


def new_segment(directory: str, base_offset: int) -> Segment:
    """A segment that has no batch yet."""
    return Segment(
        stem=segment_stem(directory, base_offset),
        base_offset=base_offset,
        next_offset=base_offset,
        size=0,
        state=SegmentState.ACTIVE,
    )


def base_offset_of(name: str, suffix: str) -> int | None:
    """The offset that a file is named by, if it is called `<20 digits><suffix>`."""
    digits = name.removesuffix(suffix)
    if digits == name or len(digits) != 20 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def rename_deleted(filesystem: Filesystem, segment: Segment) -> list[str]:
    """Take a segment's files out of the log by renaming them; returns their new paths."""
    filesystem.rename(segment.log_path, segment.log_path + DELETED_SUFFIX)
    # Once the record file is gone the segment is: files without one are leftovers.
    segment.state = SegmentState.DELETED
    renamed = [segment.log_path + DELETED_SUFFIX]
    for path in (segment.index_path, segment.time_index_path, segment.aborted_path):
        # An index may be missing: it is written anew only when someone asks for it, and most
        # segments hold no transactions.
        with suppress(FileNotFoundError):
            filesystem.rename(path, path + DELETED_SUFFIX)
            renamed.append(path + DELETED_SUFFIX)
    return renamed
