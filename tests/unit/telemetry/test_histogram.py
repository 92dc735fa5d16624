"""Durations are counted where they belong, and quantiles are those of what was counted."""

from __future__ import annotations

import pytest

from millstream.telemetry.histogram import BOUNDS_NS, Histogram, quantile_ns


def test_duration_on_a_bound_counts_below_it() -> None:
    times = Histogram()
    for number, bound_ns in enumerate(BOUNDS_NS):
        times.observe(bound_ns, 10)
        times.observe(bound_ns + 1)
        assert (times.counts[number], times.counts[number + 1]) == (11 - (number == 0), 1)
    assert times.count == 11 * len(BOUNDS_NS)
    assert times.sum_ns == 11 * sum(BOUNDS_NS) + len(BOUNDS_NS)


def test_quantile_lies_in_the_bucket_that_holds_it() -> None:
    times = Histogram()
    assert quantile_ns(times.counts, 0.5) is None
    times.observe(600_000, 90)
    times.observe(20_000_000, 10)
    before = list(times.counts)
    assert 500_000 < (quantile_ns(before, 0.5) or 0) <= 1_000_000
    assert quantile_ns(before, 0.9) == pytest.approx(1_000_000)
    assert 10_000_000 < (quantile_ns(before, 0.99) or 0) <= 25_000_000
    times.observe(60_000_000_000)
    since = [now - then for now, then in zip(times.counts, before, strict=True)]
    assert quantile_ns(since, 0.5) == BOUNDS_NS[-1]
