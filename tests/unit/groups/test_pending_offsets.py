"""Offsets of transactions under way: which of them can still count, and what their ends commit."""

from __future__ import annotations

from millstream.groups.group_records import Committed
from millstream.groups.pending_offsets import Pending, PendingOffsets

T0, T1 = ("t", 0), ("t", 1)


def offset(number: int) -> Committed:
    return Committed(number, -1, "", 0)


def pending(*entries: tuple[int, tuple[str, int], int]) -> PendingOffsets:
    """Of producers and partitions, offsets whose records lie in this order."""
    offsets = PendingOffsets()
    for record_offset, (producer_id, key, number) in enumerate(entries):
        offsets.add(producer_id, key, Pending(offset(number), record_offset, 0))
    return offsets


def test_commit_gives_the_last_offset_of_each_partition() -> None:
    offsets = pending((1, T0, 10), (1, T1, 20), (1, T0, 11), (2, T1, 5))
    assert offsets.end(1, is_commit=True) == {T0: offset(11), T1: offset(20)}
    assert list(offsets) == [T1]


def test_abort_gives_nothing_and_leaves_the_others() -> None:
    offsets = pending((1, T0, 10), (2, T0, 5))
    assert offsets.end(1, is_commit=False) == {}
    assert offsets.end(2, is_commit=True) == {T0: offset(5)}
    assert not offsets


def test_unknown_producer_ends_nothing() -> None:
    offsets = pending((1, T0, 10))
    assert offsets.end(2, is_commit=True) == {}
    assert T0 in offsets


def test_later_record_outside_of_transactions_makes_all_before_it_void() -> None:
    offsets = pending((1, T0, 10), (2, T0, 5), (2, T1, 6))
    offsets.supersede(T0)
    assert T0 not in offsets
    assert offsets.end(1, is_commit=True) == {}
    assert offsets.end(2, is_commit=True) == {T1: offset(6)}


def test_superseded_offset_may_be_followed_by_another() -> None:
    offsets = pending((1, T0, 10))
    offsets.supersede(T0)
    offsets.add(1, T0, Pending(offset(12), 9, 0))
    assert offsets.end(1, is_commit=True) == {T0: offset(12)}


def test_earlier_record_does_not_count_after_a_later_one_is_committed() -> None:
    offsets = pending((1, T0, 10), (2, T0, 5))
    assert offsets.end(2, is_commit=True) == {T0: offset(5)}
    assert not offsets
    assert offsets.end(1, is_commit=True) == {}


def test_later_record_counts_after_an_earlier_one_is_committed() -> None:
    offsets = pending((1, T0, 10), (2, T0, 5))
    assert offsets.end(1, is_commit=True) == {T0: offset(10)}
    assert T0 in offsets
    assert offsets.end(2, is_commit=True) == {T0: offset(5)}


def test_all_are_told_with_their_producers() -> None:
    offsets = pending((1, T0, 10), (2, T0, 5), (2, T1, 6))
    found = {(producer, key): each.committed.offset for producer, key, each in offsets.all()}
    assert found == {(1, T0): 10, (2, T0): 5, (2, T1): 6}
