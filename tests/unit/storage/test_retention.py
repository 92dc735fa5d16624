"""Which segments have outlived their keep."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from millstream.settings.log import LogSettings
from millstream.storage.retention import is_too_old, past_retention
from millstream.storage.segment import Segment, SegmentState

COMPACT = frozenset({"compact"})
BOTH = frozenset({"compact", "delete"})


def segments_of(*states: SegmentState) -> list[Segment]:
    """Segments of ten records and 100 bytes each."""
    return [
        Segment(f"/log/{number}", 10 * number, 10 * number + 10, 100, state)
        for number, state in enumerate(states)
    ]


ARCHIVED = (SegmentState.ARCHIVED,) * 4
WHOLE = (*ARCHIVED, SegmentState.ACTIVE)


def doomed(
    segments: Sequence[Segment],
    settings: LogSettings,
    *,
    start_offset: int = 0,
    stable_offset: int = 1000,
    expired: Sequence[int] = (),
) -> list[int]:
    """Base offsets of what is past its keep."""
    found = past_retention(
        segments,
        settings,
        start_offset=start_offset,
        stable_offset=stable_offset,
        is_expired=lambda segment: segment.base_offset in expired,
    )
    return [segment.base_offset for segment in found]


def test_nothing_goes_without_a_reason() -> None:
    assert doomed(segments_of(*WHOLE), LogSettings(retention_ms=-1)) == []


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [
        (-1, []),
        (0, [0, 10, 20, 30]),
        (100, [0, 10, 20, 30]),
        (101, [0, 10, 20]),
        (399, [0]),
        (400, [0]),
        (401, []),
        (10_000, []),
    ],
)
def test_segments_go_while_enough_is_left(retention_bytes: int, expected: list[int]) -> None:
    settings = LogSettings(retention_bytes=retention_bytes)
    assert doomed(segments_of(*WHOLE), settings) == expected


def test_expired_segments_go_from_the_front_only() -> None:
    segments = segments_of(*WHOLE)
    assert doomed(segments, LogSettings(), expired=[0, 10, 30]) == [0, 10]
    assert doomed(segments, LogSettings(), expired=[10]) == []


def test_active_segment_stays_whatever_its_age() -> None:
    everything = [0, 10, 20, 30, 40]
    assert doomed(segments_of(*WHOLE), LogSettings(), expired=everything) == everything[:-1]
    assert doomed(segments_of(SegmentState.ACTIVE), LogSettings(), expired=[0]) == []


@pytest.mark.parametrize(("start_offset", "expected"), [(9, []), (10, [0]), (25, [0, 10])])
def test_segments_before_the_start_go_under_any_policy(
    start_offset: int, expected: list[int]
) -> None:
    settings = LogSettings(cleanup_policy=COMPACT)
    assert doomed(segments_of(*WHOLE), settings, start_offset=start_offset) == expected


def test_size_does_not_count_where_the_policy_is_to_compact() -> None:
    settings = LogSettings(cleanup_policy=COMPACT, retention_bytes=0)
    assert doomed(segments_of(*WHOLE), settings) == []
    settings = LogSettings(cleanup_policy=BOTH, retention_bytes=0)
    assert doomed(segments_of(*WHOLE), settings) == [0, 10, 20, 30]


@pytest.mark.parametrize("kept", range(4))
def test_segment_that_is_not_on_disk_keeps_all_behind_it(kept: int) -> None:
    segments = segments_of(*WHOLE)
    segments[kept].state = SegmentState.FULL
    expected = [0, 10, 20, 30][:kept]
    assert doomed(segments, LogSettings(retention_bytes=0)) == expected


def test_segment_under_compaction_keeps_all_behind_it() -> None:
    segments = segments_of(*WHOLE)
    segments[1].compacting = True
    assert doomed(segments, LogSettings(retention_bytes=0)) == [0]


@pytest.mark.parametrize(
    ("age_ms", "retention_ms", "policy", "expected"),
    [
        (101, 100, BOTH, True),
        (100, 100, BOTH, False),
        (1000, 100, COMPACT, False),
        (1000, -1, BOTH, False),
        (1, 0, BOTH, True),
        (0, 0, BOTH, False),
        (-4000, 0, BOTH, False),
    ],
)
def test_records_are_too_old_when_all_are_past_their_time(
    age_ms: int, retention_ms: int, policy: frozenset[str], *, expected: bool
) -> None:
    settings = LogSettings(retention_ms=retention_ms, cleanup_policy=policy)
    assert is_too_old(age_ms, settings) is expected


@pytest.mark.parametrize(
    ("stable_offset", "expected"),
    [(5, []), (19, [0]), (20, [0, 10]), (39, [0, 10, 20]), (40, [0, 10, 20, 30])],
)
def test_segments_that_are_not_stable_stay(stable_offset: int, expected: list[int]) -> None:
    settings = LogSettings(retention_ms=1, retention_bytes=0)
    segments = segments_of(*WHOLE)
    assert doomed(segments, settings, start_offset=40, stable_offset=stable_offset) == expected
