"""Waits between attempts to connect."""

from __future__ import annotations

from millstream.client.backoff import Backoff, draw


def test_waits_double_up_to_the_limit_and_begin_anew() -> None:
    backoff = Backoff(first_s=0.1, limit_s=0.5, draw=lambda: 1.0)
    assert [round(backoff.next_s(), 3) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    backoff.reset()
    assert backoff.next_s() == 0.1


def test_waits_are_spread_over_their_upper_half() -> None:
    assert Backoff(first_s=1, limit_s=1, draw=lambda: 0.0).next_s() == 0.5
    assert Backoff(first_s=1, limit_s=1, draw=lambda: 0.5).next_s() == 0.75
    drawn = [draw() for _ in range(100)]
    assert all(0 <= each < 1 for each in drawn)
    assert len(set(drawn)) > 90
