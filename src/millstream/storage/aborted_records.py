"""Tells which records of a part of a log belong to transactions that were aborted.

Invariant: a producer has one transaction at a time, so those of one producer do not overlap, and
all its transactional records from the first offset of one up to its marker belong to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from millstream.storage.aborted_transactions import AbortedTransaction


class AbortedRecords:
    """Looks transactional batches up among aborted transactions."""

    __slots__ = ("_first_offsets", "_markers")

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        # By producer, in parallel: where its transactions begin, and where their markers are.
        self._first_offsets: dict[int, list[int]] = {}
        self._markers: dict[int, list[int]] = {}
        for transaction in sorted(transactions, key=lambda t: t.first_offset):
            producer_id = transaction.producer_id
            self._first_offsets.setdefault(producer_id, []).append(transaction.first_offset)
            self._markers.setdefault(producer_id, []).append(transaction.last_offset)

    def include(self, producer_id: int, offset: int) -> bool:
        """Whether the transactional batch of a producer at an offset was aborted."""
        first_offsets = self._first_offsets.get(producer_id)
        if first_offsets is None:
            return False
        number = bisect_right(first_offsets, offset) - 1
        return number >= 0 and offset < self._markers[producer_id][number]
