"""How old a segment may become."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidSetting
from millstream.settings.log import LogSettings
from millstream.storage.segment_age import segment_max_ms


def test_jitter_closes_segments_of_different_logs_at_different_times() -> None:
    settings = LogSettings(segment_ms=10_000, segment_jitter_ms=4_000)
    ages = {segment_max_ms(settings, f"t-{number}", 0) for number in range(100)}
    assert len(ages) > 80
    assert 6_000 <= min(ages) <= max(ages) <= 10_000
    assert segment_max_ms(settings, "t-1", 0) == segment_max_ms(settings, "t-1", 0)


def test_jitter_larger_than_the_age_leaves_a_millisecond() -> None:
    settings = LogSettings(segment_ms=2, segment_jitter_ms=1_000)
    ages = {segment_max_ms(settings, "t", number) for number in range(100)}
    assert ages == {1, 2}


def test_compacted_log_closes_its_segment_in_time_to_be_compacted() -> None:
    compacted = LogSettings(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=7)
    assert segment_max_ms(compacted, "t", 0) == 7
    assert segment_max_ms(LogSettings(max_compaction_lag_ms=7), "t", 0) == LogSettings().segment_ms


def test_longest_lag_below_the_shortest_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"no more than max\.compaction\.lag\.ms"):
        LogSettings(min_compaction_lag_ms=8, max_compaction_lag_ms=7)
