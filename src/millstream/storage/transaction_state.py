"""The transactions of one partition: those under way, and those that its newest segment saw abort.

A transaction is under way from the first batch that its producer marked as part of one, until the
marker that commits or aborts it. Records from the first of those batches on are not stable: how
they end is not known yet.

Invariant: `under_way` is in the order of first offsets, which only grow, so that the first one is
the oldest; `oldest_offset` is its offset. `aborted` has the transactions whose marker lies at or
past `segment_offset`, in the order of the markers.

After a crash: as part of the producers' state; see `producer_state`.
"""

from __future__ import annotations

from millstream.storage.aborted_transactions import AbortedIndex, AbortedTransaction


class TransactionStates:
    """The transactions of one partition."""

    __slots__ = (
        "aborted",
        "doubtful",
        "has_aborted",
        "is_in_segment",
        "oldest_offset",
        "segment_offset",
        "under_way",
        "undo",
    )

    def __init__(self) -> None:
        # The first offset of each, by the id of its producer.
        self.under_way: dict[int, int] = {}
        # Those whose marker may have been in a damaged part of the log.
        self.doubtful: frozenset[int] = frozenset()
        self.oldest_offset: int | None = None
        self.aborted: list[AbortedTransaction] = []
        # False only if none of the log's transactions was ever aborted.
        self.has_aborted = False
        self.segment_offset = 0
        # Whether any batch at or past `segment_offset` is part of a transaction, or ends one.
        self.is_in_segment = False
        # What was before the first change since the last mark.
        self.undo: tuple[dict[int, int], int, bool] | None = None

    def stable_offset(self, end_offset: int, start_offset: int = 0) -> int:
        """The offset below which every transaction has ended."""
        if self.oldest_offset is None:
            return end_offset
        # Its end may be lost in a crash when its beginning was deleted.
        return max(self.oldest_offset, start_offset)

    def note(self) -> None:
        """A batch came that is part of a transaction."""
        if not self.is_in_segment:
            self._remember()
            self.is_in_segment = True

    def begin(self, producer_id: int, offset: int) -> None:
        """Let a producer's transaction be under way from an offset on, if it is not already."""
        if producer_id in self.under_way:
            return
        self._remember()
        self.under_way[producer_id] = offset
        if self.oldest_offset is None:
            self.oldest_offset = offset

    def end(self, producer_id: int, offset: int, *, is_commit: bool) -> None:
        """A marker at an offset ends a producer's transaction, if one is under way."""
        if producer_id not in self.under_way:
            return
        self._remember()
        first_offset = self.under_way.pop(producer_id)
        if self.doubtful:
            self.doubtful -= {producer_id}
        self._find_oldest()
        if not is_commit:
            self.has_aborted = True
            stable_offset = self.stable_offset(offset + 1)
            self.aborted.append(
                AbortedTransaction(producer_id, first_offset, offset, stable_offset)
            )

    def begin_segment(self, offset: int) -> None:
        """What aborts from here on belongs to another segment."""
        self.undo = None
        self.aborted = []
        self.segment_offset = offset
        self.is_in_segment = False

    def take_segment(self, other: TransactionStates) -> None:
        """Know what another one knows of its segment."""
        self.undo = None
        self.aborted = other.aborted
        self.segment_offset = other.segment_offset
        self.is_in_segment = other.is_in_segment

    def index(self, next_offset: int) -> bytes:
        """The file of the segment, which ends here; nothing if it is to have none."""
        if not self.is_in_segment:
            return b""
        stable_offset = self.stable_offset(next_offset)
        return AbortedIndex(self.aborted, stable_offset).encode(next_offset=next_offset)

    def doubt_all(self) -> None:
        """The log is damaged here: the markers of those under way may have been lost."""
        self.doubtful |= self.under_way.keys()

    def forget_under_way(self) -> None:
        """The log lost all that those under way had written."""
        self.under_way = {}
        self.doubtful = frozenset()
        self.oldest_offset = None

    def rollback(self) -> None:
        """Go back to the last mark."""
        if self.undo is not None:
            self.under_way, aborted, self.is_in_segment = self.undo
            del self.aborted[aborted:]
            self._find_oldest()
            self.undo = None

    def copy(self) -> TransactionStates:
        """The same, which goes its own way from here on."""
        copied = TransactionStates()
        copied.under_way = self.under_way.copy()
        copied.doubtful = self.doubtful
        copied.oldest_offset = self.oldest_offset
        copied.aborted = self.aborted.copy()
        copied.has_aborted = self.has_aborted
        copied.segment_offset = self.segment_offset
        copied.is_in_segment = self.is_in_segment
        return copied

    def _remember(self) -> None:
        if self.undo is None:
            self.undo = (self.under_way.copy(), len(self.aborted), self.is_in_segment)

    def _find_oldest(self) -> None:
        self.oldest_offset = next(iter(self.under_way.values()), None)
