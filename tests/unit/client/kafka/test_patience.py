"""Waits between attempts, and when they end."""

from __future__ import annotations

import pytest

from millstream.client.kafka.patience import Patience
from millstream.clock import ManualClock
from millstream.errors import TimedOut

CAUSE = TimedOut(operation="it", timeout_ms=1)


def wait_often(patience: Patience) -> None:
    for _ in range(1000):
        patience.wait(CAUSE)


def test_waits_grow_and_end_before_the_deadline() -> None:
    clock = ManualClock()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.advance_ms(round(seconds * 1000))

    patience = Patience(5.0, clock=clock, sleep=sleep)
    start_ms = clock.now_ms()
    with pytest.raises(TimedOut) as caught:
        wait_often(patience)
    assert caught.value is CAUSE
    assert clock.now_ms() <= start_ms + 5000
    assert waits[0] <= 0.02
    assert 0.5 <= max(waits) <= 1.0
    assert len(waits) > 5


def test_progress_gives_all_the_time_again() -> None:
    clock = ManualClock()
    patience = Patience(1.0, clock=clock, sleep=lambda _: None)
    clock.advance_ms(1000)
    assert (patience.is_over, patience.left_s) == (True, 0.01)
    patience.renew()
    assert (patience.is_over, patience.left_s) == (False, 1.0)
    patience.wait(CAUSE)
