"""Compaction of one log: the newest record of each key stays, at its offset.

Three steps, so that the owner of the log never waits: it plans, a worker thread runs the plan,
and the owner installs the result.

    plan = plan_compaction(log, now_ms=..., buffer_bytes=..., max_decompressed_bytes=...)
    result = plan.run()
    paths = install(log, plan, result)    # to be removed when no reader can be late

If `run` raised, `abandon(log, plan)` takes the last step. Meanwhile the log is read and appended
to as ever; only the segments of the plan may not be removed.

A plan covers segments that lie below the last stable offset as a whole, so that all transactions
in it have ended and nothing of an open one is touched.

Invariant: at most one plan of a log is under way.
After a crash: of each group of segments either all are replaced or none; see `compaction_plan`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from millstream.errors import CorruptData, MillstreamError, NotFound
from millstream.records.batch import parse_header
from millstream.settings.domain import LONG_MAX
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.cleaned_segments import Cleaned
from millstream.storage.cleaning_state import CleaningState, read_cleaning_state
from millstream.storage.compaction_plan import CompactionPlan, CompactionResult, swap_path
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import CLEANED_MARK
from millstream.storage.segment import (
    ABORTED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    SegmentState,
    rename_deleted,
    segment_stem,
)
from millstream.storage.segment_scan import Damage

_log = logging.getLogger(__name__)


def plan_compaction(
    log: LocalLog, *, now_ms: int, buffer_bytes: int, max_decompressed_bytes: int
) -> CompactionPlan | None:
    """What there is to do for a log; None when that is nothing. Marks the segments it chose."""
    if "compact" not in log.settings.cleanup_policy or log.failure is not None:
        return None
    state = read_cleaning_state(log.filesystem, log.directory)
    if state.planned_offset > log.end_offset:
        # It speaks of some other log.
        state = CleaningState()
    segments = _cleanable(log, state, now_ms)
    if any(segment.compacting for segment in segments) or not _is_due(log, state, segments, now_ms):
        return None
    known = {damage.path: damage for damage in log.report.damage}
    damage = {s.stem: known[s.log_path] for s in segments if s.log_path in known}
    aborted = _aborted(log, segments, damage)
    for segment in segments:
        segment.compacting = True
    return CompactionPlan(
        log.filesystem,
        log.directory,
        log.settings,
        segments=segments,
        log_end_offset=log.end_offset,
        state=state,
        damage=damage,
        aborted=aborted,
        unsynced_paths=_unsynced_paths(log),
        now_ms=now_ms,
        buffer_bytes=buffer_bytes,
        max_decompressed_bytes=max_decompressed_bytes,
    )


def install(log: LocalLog, plan: CompactionPlan, result: CompactionResult) -> list[str]:
    """Put what a plan wrote in its place; returns the paths of files that nobody needs any more.

    Raises StorageFailure when the disk fails, and then the log has stopped.
    """
    paths: list[str] = []
    try:
        # The next start finishes what a log that has stopped cannot.
        for cleaned in result.cleaned if log.failure is None else ():
            paths += _put_in_place(log, cleaned)
    except OSError as error:
        raise log.stop(error, "compact") from error
    finally:
        _release(plan)
    log.report.damage += [d for d in result.damage if d not in log.report.damage]
    return paths


def abandon(log: LocalLog, plan: CompactionPlan) -> None:
    """Give up a plan whose run raised. Raises StorageFailure when the log cannot go on."""
    _release(plan)
    if plan.fault is not None:
        raise log.stop(plan.fault, "compact") from plan.fault


def _release(plan: CompactionPlan) -> None:
    for segment in plan.segments:
        segment.compacting = False


# Planning


def _cleanable(log: LocalLog, state: CleaningState, now_ms: int) -> list[Segment]:
    """The segments from the front of a log that are on disk, stable and old enough."""
    lag_ms = log.settings.min_compaction_lag_ms
    stable_offset = log.last_stable_offset
    found = []
    for segment in log.segments():
        if segment.state is not SegmentState.ARCHIVED or segment.next_offset > stable_offset:
            break
        if lag_ms and segment.next_offset > state.clean_offset:
            newest_ms = log.max_timestamp(segment)
            if (newest_ms if newest_ms >= 0 else segment.closed_ms) > now_ms - lag_ms:
                break
        found.append(segment)
    return found


def _is_due(log: LocalLog, state: CleaningState, segments: list[Segment], now_ms: int) -> bool:
    settings = log.settings
    if not segments:
        return False
    done_offset = max(state.expired_offset, segments[0].base_offset)
    if state.expired_below(now_ms, settings.delete_retention_ms) > done_offset:
        return True
    dirty = [segment for segment in segments if segment.next_offset > state.clean_offset]
    if any(segment.base_offset < state.planned_offset for segment in dirty):
        # The last pass had no room for all keys, or did not get to its end.
        return True
    if dirty and _is_overdue(log, dirty[0], now_ms):
        return True
    dirty_bytes = sum(segment.size for segment in dirty)
    total_bytes = sum(segment.size for segment in segments)
    return dirty_bytes > 0 and dirty_bytes >= settings.min_cleanable_dirty_ratio * total_bytes


def _is_overdue(log: LocalLog, segment: Segment, now_ms: int) -> bool:
    """Whether the first record of a segment is older than `max.compaction.lag.ms`."""
    lag_ms = log.settings.max_compaction_lag_ms
    if lag_ms == LONG_MAX or not segment.size:
        return False
    try:
        first_ms = parse_header(log.read(segment.base_offset, 1)).max_timestamp_ms
    except (MillstreamError, OSError):
        # What is damaged there is for the pass to find, when it is due otherwise.
        return False
    return (first_ms if first_ms >= 0 else segment.closed_ms) <= now_ms - lag_ms


def _aborted(
    log: LocalLog, segments: Sequence[Segment], damage: dict[str, Damage]
) -> list[AbortedTransaction]:
    """The aborted transactions with records in segments, in the order of their markers.

    A segment of which that cannot be told is noted as damaged.
    """
    if not log.has_aborted_transactions:
        return []
    found: set[AbortedTransaction] = set()
    for segment in segments:
        try:
            found.update(log.aborted_transactions(segment.base_offset, segment.next_offset))
        except (CorruptData, NotFound) as fault:
            damage.setdefault(
                segment.stem,
                Damage(
                    path=segment.log_path,
                    position=0,
                    end_position=segment.size,
                    offset=segment.base_offset,
                    end_offset=segment.next_offset,
                    reason=str(fault),
                ),
            )
    return sorted(found, key=lambda transaction: transaction.last_offset)


def _unsynced_paths(log: LocalLog) -> list[str]:
    """The record files below the last stable offset that may not be on disk."""
    stable_offset = log.last_stable_offset
    if log.synced_offset >= stable_offset:
        return []
    return [
        segment.log_path
        for segment in log.segments()
        if segment.state is not SegmentState.ARCHIVED and segment.base_offset < stable_offset
    ]


# Installing


def _put_in_place(log: LocalLog, cleaned: Cleaned) -> list[str]:
    """Swap files, in an order in which recovery can take over at any point. Raises OSError."""
    old = [s for s in log.segments() if cleaned.base_offset <= s.base_offset < cleaned.next_offset]
    paths = [path for segment in old for path in rename_deleted(log.filesystem, segment)]
    stem = segment_stem(log.directory, cleaned.base_offset)
    log.filesystem.rename(swap_path(log.directory, cleaned), stem + LOG_SUFFIX)
    # Until all are there, recovery finds a segment without indexes, and writes them anew.
    suffixes = (ABORTED_SUFFIX,) if cleaned.is_transactional else ()
    for suffix in (*suffixes, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        log.filesystem.rename(stem + CLEANED_MARK + suffix, stem + suffix)
    log.replace(
        old,
        Segment(
            stem=stem,
            base_offset=cleaned.base_offset,
            next_offset=cleaned.next_offset,
            size=cleaned.size,
            state=SegmentState.ARCHIVED,
            max_timestamp_ms=cleaned.max_timestamp_ms,
            closed_ms=max(segment.closed_ms for segment in old),
        ),
    )
    _log.info(
        "%(log)s: compacted offsets %(first_offset)d to %(last_offset)d from "
        "%(bytes_before)d bytes to %(bytes_after)d",
        {
            "log": log.name,
            "first_offset": cleaned.base_offset,
            "last_offset": cleaned.next_offset - 1,
            "bytes_before": sum(segment.size for segment in old),
            "bytes_after": cleaned.size,
        },
    )
    return paths
