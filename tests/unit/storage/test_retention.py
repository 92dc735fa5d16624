"""Which segments have outlived their keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from millstream.settings.log import LogSettings
from millstream.storage.retention import is_too_old, looking_ahead, past_retention
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


@dataclass(frozen=True)
class Log:
    """All that retention looks at."""

    held: Sequence[Segment]
    start_offset: int = 0
    last_stable_offset: int = 1000
    ages_ms: Mapping[int, int] = field(default_factory=dict)
    """By base offset; the others are new."""

    def segments(self) -> Sequence[Segment]:
        return self.held

    def age_ms(self, segment: Segment) -> int:
        return self.ages_ms.get(segment.base_offset, 0)


def doomed(
    segments: Sequence[Segment],
    settings: LogSettings,
    *,
    start_offset: int = 0,
    stable_offset: int = 1000,
    expired: Sequence[int] = (),
) -> list[int]:
    """Base offsets of what is past its keep."""
    ages_ms = dict.fromkeys(expired, settings.retention_ms + 1)
    log = Log(segments, start_offset, stable_offset, ages_ms)
    return [segment.base_offset for segment in past_retention(log, settings).doomed]


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


# --- what groups hold back

BY_TIME = LogSettings(retention_ms=100, retention_hold_max_bytes=10_000, retention_hold_max_ms=1000)
ALL_OLD = dict.fromkeys((0, 10, 20, 30), 101)


def outcome(
    settings: LogSettings,
    held_from: int | None,
    *,
    ages_ms: Mapping[int, int] = ALL_OLD,
    start_offset: int = 0,
) -> tuple[list[int], list[int]]:
    """Base offsets of what goes, and of what is held."""
    log = Log(segments_of(*WHOLE), start_offset, ages_ms=ages_ms)
    found = past_retention(log, settings, held_from=held_from)
    return [s.base_offset for s in found.doomed], [s.base_offset for s in found.held]


@pytest.mark.parametrize(
    ("held_from", "gone", "held"),
    [
        (None, [0, 10, 20, 30], []),
        (0, [], [0, 10, 20, 30]),
        (9, [], [0, 10, 20, 30]),
        (10, [0], [10, 20, 30]),
        (39, [0, 10, 20], [30]),
        (40, [0, 10, 20, 30], []),
        (1000, [0, 10, 20, 30], []),
    ],
)
def test_what_a_group_has_not_read_is_held_and_the_rest_goes(
    held_from: int | None, gone: list[int], held: list[int]
) -> None:
    assert outcome(BY_TIME, held_from) == (gone, held)


def test_size_is_held_back_like_age() -> None:
    settings = LogSettings(retention_bytes=200)
    assert outcome(settings, 15, ages_ms={}) == ([0], [10, 20])
    assert outcome(settings, None, ages_ms={}) == ([0, 10, 20], [])


@pytest.mark.parametrize(
    ("max_bytes", "gone"),
    [
        (400, []),
        (399, [0]),
        (300, [0]),
        (100, [0, 10, 20]),
        (99, [0, 10, 20, 30]),
        (0, [0, 10, 20, 30]),
    ],
)
def test_hold_past_its_bytes_gives_up_the_oldest(max_bytes: int, gone: list[int]) -> None:
    settings = replace(BY_TIME, retention_hold_max_bytes=max_bytes)
    assert outcome(settings, 0)[0] == gone


@pytest.mark.parametrize(
    ("retention_ms", "max_ms", "age_ms", "gone"),
    [
        (100, 1000, 1100, []),
        (100, 1000, 1101, [0, 10]),
        (100, 0, 101, [0, 10]),
        (100, -1, 10**12, []),
        (-1, 1000, 1000, []),
        (-1, 1000, 1001, [0, 10]),
    ],
)
def test_hold_past_its_time_gives_up_what_is_that_old(
    retention_ms: int, max_ms: int, age_ms: int, gone: list[int]
) -> None:
    settings = LogSettings(
        retention_ms=retention_ms, retention_bytes=0, retention_hold_max_ms=max_ms
    )
    assert outcome(settings, 0, ages_ms={0: age_ms, 10: age_ms})[0] == gone


def test_records_deleted_by_request_are_not_held() -> None:
    assert outcome(BY_TIME, 0, start_offset=20) == ([0, 10], [20, 30])


def test_compacted_log_is_not_held() -> None:
    settings = LogSettings(cleanup_policy=COMPACT, retention_ms=1, retention_bytes=0)
    assert outcome(settings, 0) == ([], [])


def test_looking_ahead_finds_what_goes_soon() -> None:
    soon = looking_ahead(BY_TIME)
    assert outcome(BY_TIME, None, ages_ms={0: 95}) == ([], [])
    assert outcome(soon, None, ages_ms={0: 95}) == ([0], [])
    forever = LogSettings(retention_ms=-1, retention_bytes=-1, retention_hold_max_ms=-1)
    assert replace(looking_ahead(forever), retention_hold_max_bytes=0) == replace(
        forever, retention_hold_max_bytes=0
    )
