"""Which records count as aborted."""

from __future__ import annotations

import pytest

from millstream.storage.aborted_records import AbortedRecords
from millstream.storage.aborted_transactions import AbortedTransaction

ABORTED = AbortedRecords(
    [
        AbortedTransaction(7, 40, 49, 30),
        AbortedTransaction(7, 10, 19, 20),
        AbortedTransaction(8, 30, 60, 61),
    ]
)


@pytest.mark.parametrize("offset", [10, 15, 18, 40, 48])
def test_records_from_the_first_up_to_the_marker_are_aborted(offset: int) -> None:
    assert ABORTED.include(7, offset)


@pytest.mark.parametrize("offset", [0, 9, 20, 39, 50, 1000])
def test_records_before_between_and_behind_are_not(offset: int) -> None:
    assert not ABORTED.include(7, offset)


def test_records_of_other_producers_are_not() -> None:
    assert not ABORTED.include(8, 15)
    assert not ABORTED.include(9, 45)
    assert ABORTED.include(8, 45)
