"""Offsets by time."""

from __future__ import annotations

from millstream.subscriptions.schedule import Schedule


def test_those_whose_time_has_come_are_taken_in_order() -> None:
    schedule = Schedule()
    assert len(schedule) == 0
    for at_ms, offset in ((30, 1), (10, 2**62), (20, 3), (20, 0)):
        schedule.add(at_ms, offset)
    assert schedule.next_ms == 10
    assert schedule.pop_due(9) == []
    assert schedule.pop_due(20) == [(10, 2**62), (20, 0), (20, 3)]
    assert len(schedule) == 1
    assert schedule.pop_due(2**50) == [(30, 1)]


def test_what_no_longer_counts_is_dropped_once_it_is_most() -> None:
    schedule = Schedule()
    for offset in range(5000):
        schedule.add(offset % 7, offset)
    schedule.prune(3000, lambda _, offset: offset < 3000)
    assert len(schedule) == 5000
    schedule.prune(10, lambda _, offset: offset < 10)
    assert len(schedule) == 10
    assert [offset for _, offset in schedule.pop_due(9)] == [0, 7, 1, 8, 2, 9, 3, 4, 5, 6]


def test_as_many_as_asked_for_are_taken_and_the_rest_stays() -> None:
    schedule = Schedule()
    for offset in range(5):
        schedule.add(10, offset)
    assert [offset for _, offset in schedule.pop_due(10, 2)] == [0, 1]
    assert schedule.pop_due(10, 0) == []
    assert [offset for _, offset in schedule.pop_due(10, 9)] == [2, 3, 4]
