"""Decides which segments have outlived their keep.

Segments go from the front of the log, oldest first, whole, and only once they are archived: then
the segment after them is on disk too, so that a log always remembers where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.settings.log import LogSettings
from millstream.storage.segment import Segment, SegmentState


def past_retention(
    segments: Sequence[Segment],
    settings: LogSettings,
    *,
    start_offset: int,
    stable_offset: int,
    is_expired: Callable[[Segment], bool],
) -> list[Segment]:
    """The segments to take out, of which the active one is never part.

    By time and by size where the policy is to delete; in any case when the log begins after them.
    What is not stable stays: a transaction that is under way must not lose its beginning.
    """
    limit_bytes = settings.retention_bytes if deletes(settings) else -1
    total_bytes = sum(segment.size for segment in segments)
    doomed = []
    for segment in segments[:-1]:
        if segment.compacting or segment.state is not SegmentState.ARCHIVED:
            break
        if segment.next_offset > stable_offset:
            break
        too_much = 0 <= limit_bytes <= total_bytes - segment.size
        if not (too_much or segment.next_offset <= start_offset or is_expired(segment)):
            break
        total_bytes -= segment.size
        doomed.append(segment)
    return doomed


def is_too_old(age_ms: int, settings: LogSettings) -> bool:
    """Whether records of an age are past their retention."""
    return deletes(settings) and 0 <= settings.retention_ms < age_ms


def deletes(settings: LogSettings) -> bool:
    return "delete" in settings.cleanup_policy
