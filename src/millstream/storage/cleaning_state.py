"""What compaction remembers of one log, in the file `cleaning-state` of its directory.

Below `clean_offset` the log has been compacted: there is at most one record of a key, besides what
a damaged segment holds. A pass that found no room for all keys leaves `clean_offset` below
`planned_offset`, and others follow until it gets there. A tombstone or the marker of a transaction
may go `delete.retention.ms` after the first pass over it: its horizon is the first one that ends
above it. Below `expired_offset` that time has passed: tombstones are gone, and a marker goes as
soon as nothing is left of its transaction.

Invariant: everything below `planned_offset` was on disk before the file said so, which lets
recovery know that a gap in the offsets below it is no tear. Horizons ascend in offset and time.
After a crash: the old content or the new one, whole. Without it the log counts as never
compacted, which costs a pass and keeps tombstones and markers for longer.
Format: docs/formats/cleaning_state.md.
"""

from __future__ import annotations

import logging
import os
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from millstream.records.checksum import crc32c
from millstream.storage.filesystem import Filesystem, read_whole, write_atomically

_log = logging.getLogger(__name__)

NAME = "cleaning-state"
_MAGIC = b"MSCS"
_VERSION = 2
_HEAD = struct.Struct(">4shI")
_BODY = struct.Struct(">qqqI")
_HORIZON = struct.Struct(">qq")

MAX_HORIZONS = 32


class Horizon(NamedTuple):
    """When compaction first passed over the offsets below this one and above the one before."""

    end_offset: int
    cleaned_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningState:
    """How far a log is compacted."""

    clean_offset: int = 0
    planned_offset: int = 0
    expired_offset: int = 0
    horizons: tuple[Horizon, ...] = ()

    def expired_below(self, now_ms: int, delete_retention_ms: int) -> int:
        """The offset below which tombstones and markers have been kept for long enough."""
        due = (
            h.end_offset for h in self.horizons if h.cleaned_at_ms + delete_retention_ms <= now_ms
        )
        return max([self.expired_offset, *due])

    def cut_at(self, offset: int) -> CleaningState:
        """What holds of a log that was truncated to end at an offset."""
        below = [horizon for horizon in self.horizons if horizon.end_offset < offset]
        cut = [horizon._replace(end_offset=offset) for horizon in self.horizons[len(below) :][:1]]
        return CleaningState(
            clean_offset=min(self.clean_offset, offset),
            planned_offset=min(self.planned_offset, offset),
            expired_offset=min(self.expired_offset, offset),
            horizons=(*below, *cut),
        )


def add_horizon(horizons: tuple[Horizon, ...], new: Horizon) -> tuple[Horizon, ...]:
    """One more horizon, above the others; two are made one when they would be too many.

    The later one of the two counts, so nothing goes sooner for it.
    """
    if horizons and new.cleaned_at_ms < horizons[-1].cleaned_at_ms:
        # The clock went back; the time that is known to have passed counts.
        new = new._replace(cleaned_at_ms=horizons[-1].cleaned_at_ms)
    all_of_them = [*horizons, new]
    if len(all_of_them) > MAX_HORIZONS:
        times_ms = [horizon.cleaned_at_ms for horizon in all_of_them]
        gaps_ms = [later - earlier for earlier, later in pairwise(times_ms)]
        del all_of_them[gaps_ms.index(min(gaps_ms))]
    return tuple(all_of_them)


def read_cleaning_state(filesystem: Filesystem, directory: str) -> CleaningState:
    """The state written last; if there is none or it is damaged, that of a log never compacted."""
    path = os.path.join(directory, NAME)
    content = read_whole(filesystem, path)
    if content is None:
        return CleaningState()
    state = _decode(content)
    if state is None:
        _log.warning(
            "%(path)s is damaged: the log will be compacted from its start", {"path": path}
        )
        return CleaningState()
    return state


def is_cleaning_state_sound(filesystem: Filesystem, directory: str) -> bool:
    """Whether there is none, or one that can be read."""
    content = read_whole(filesystem, os.path.join(directory, NAME))
    return content is None or _decode(content) is not None


def write_cleaning_state(filesystem: Filesystem, directory: str, state: CleaningState) -> None:
    body = _BODY.pack(
        state.clean_offset, state.planned_offset, state.expired_offset, len(state.horizons)
    )
    body += b"".join(_HORIZON.pack(*horizon) for horizon in state.horizons)
    content = _HEAD.pack(_MAGIC, _VERSION, crc32c(body)) + body
    write_atomically(filesystem, os.path.join(directory, NAME), content)


def cut_cleaning_state(filesystem: Filesystem, directory: str, offset: int) -> None:
    """Forget durably what was known of offsets from one on, which are about to be used again."""
    state = read_cleaning_state(filesystem, directory)
    if state.planned_offset > offset:
        write_cleaning_state(filesystem, directory, state.cut_at(offset))


def _decode(content: bytes) -> CleaningState | None:
    if len(content) < _HEAD.size + _BODY.size:
        return None
    magic, version, checksum = _HEAD.unpack_from(content)
    body = content[_HEAD.size :]
    if (magic, version, checksum) != (_MAGIC, _VERSION, crc32c(body)):
        return None
    clean_offset, planned_offset, expired_offset, count = _BODY.unpack_from(body)
    if len(body) != _BODY.size + count * _HORIZON.size:
        return None
    horizons = tuple(Horizon(*fields) for fields in _HORIZON.iter_unpack(body[_BODY.size :]))
    return CleaningState(
        clean_offset=clean_offset,
        planned_offset=planned_offset,
        expired_offset=expired_offset,
        horizons=horizons,
    )
