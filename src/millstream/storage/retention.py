"""Decides which segments have outlived their keep.

Segments go from the front of the log, oldest first, whole, and only once they are archived: then
the segment after them is on disk too, so that a log always remembers where it ends.

What a consumer group has still to read can be held back. A hold is bounded in bytes and in time by
the log's settings: a group that never comes back cannot fill the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, Protocol

from millstream.settings.log import LogSettings
from millstream.storage.segment import Segment, SegmentState

_SOON = 0.9
"""Share of a limit from which on what it bounds is said to be near its end."""


class RetainedLog(Protocol):
    """What has to be known of a log."""

    @property
    def start_offset(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    def segments(self) -> Sequence[Segment]: ...

    def age_ms(self, segment: Segment) -> int: ...


class Expiry(NamedTuple):
    """What comes of the segments that are past their retention."""

    doomed: list[Segment]
    """To be taken out: the oldest of the log."""
    held: list[Segment]
    """Those right behind, which stay for who has still to read them."""


def past_retention(
    log: RetainedLog, settings: LogSettings, *, held_from: int | None = None
) -> Expiry:
    """The segments to take out, and those that are held back; the active one is never among them.

    By time and by size where the policy is to delete; in any case when the log begins after them.
    What is not stable stays: a transaction that is under way must not lose its beginning.
    """
    doomed = _past_limits(log, settings)
    if held_from is None:
        return Expiry(doomed, [])
    read = 0
    while read < len(doomed) and doomed[read].next_offset <= held_from:
        read += 1
    held = doomed[read:]
    held_bytes = sum(segment.size for segment in held)
    lost = 0
    for segment in held:
        is_deleted = segment.next_offset <= log.start_offset
        too_much = held_bytes > settings.retention_hold_max_bytes
        if not (is_deleted or too_much or _is_held_too_long(log.age_ms(segment), settings)):
            break
        held_bytes -= segment.size
        lost += 1
    return Expiry(doomed[: read + lost], held[lost:])


def _past_limits(log: RetainedLog, settings: LogSettings) -> list[Segment]:
    segments = log.segments()
    limit_bytes = settings.retention_bytes if deletes(settings) else -1
    total_bytes = sum(segment.size for segment in segments)
    doomed = []
    for segment in segments[:-1]:
        if segment.compacting or segment.state is not SegmentState.ARCHIVED:
            break
        if segment.next_offset > log.last_stable_offset:
            break
        too_much = 0 <= limit_bytes <= total_bytes - segment.size
        is_deleted = segment.next_offset <= log.start_offset
        if not (too_much or is_deleted or is_too_old(log.age_ms(segment), settings)):
            break
        total_bytes -= segment.size
        doomed.append(segment)
    return doomed


def is_too_old(age_ms: int, settings: LogSettings) -> bool:
    """Whether records of an age are past their retention."""
    return deletes(settings) and 0 <= settings.retention_ms < age_ms


def deletes(settings: LogSettings) -> bool:
    return "delete" in settings.cleanup_policy


@lru_cache(maxsize=256)
def looking_ahead(settings: LogSettings) -> LogSettings:
    """Settings under which goes today what will go soon under the given ones."""
    return replace(
        settings,
        retention_ms=_soon(settings.retention_ms),
        retention_bytes=_soon(settings.retention_bytes),
        retention_hold_max_bytes=_soon(settings.retention_hold_max_bytes),
        retention_hold_max_ms=_soon(settings.retention_hold_max_ms),
    )


def _soon(limit: int) -> int:
    return limit if limit < 0 else int(limit * _SOON)


def _is_held_too_long(age_ms: int, settings: LogSettings) -> bool:
    if settings.retention_hold_max_ms < 0:
        return False
    return age_ms > max(settings.retention_ms, 0) + settings.retention_hold_max_ms
