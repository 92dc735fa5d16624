"""Finds the aborted transactions that a reader of some part of a log must know.

Those whose marker lies in a closed segment are read from its file, the others are part of the
producers' state.

Invariant: none is left out. A file that is missing or damaged is noticed, since the offset index of
the segment says that there must be one, and replayed from the log.
"""

from __future__ import annotations

import logging

from millstream.storage.aborted_transactions import (
    AbortedIndex,
    AbortedTransaction,
    overlapping,
)
from millstream.storage.filesystem import Filesystem, write_atomically
from millstream.storage.offset_index import DamagedIndex
from millstream.storage.producer_replay import states_after
from millstream.storage.producer_snapshots import ProducerSnapshots
from millstream.storage.recovery_report import RecoveryReport
from millstream.storage.segment import Segment, SegmentState
from millstream.storage.segment_chain import SegmentChain
from millstream.storage.transaction_state import TransactionStates

_log = logging.getLogger(__name__)


class AbortedHistory:
    """The aborted transactions of all segments of a log."""

    def __init__(
        self,
        filesystem: Filesystem,
        chain: SegmentChain,
        snapshots: ProducerSnapshots,
        report: RecoveryReport,
    ) -> None:
        self._filesystem = filesystem
        self._chain = chain
        self._snapshots = snapshots
        self._report = report

    def find(
        self, from_offset: int, to_offset: int, newest: TransactionStates
    ) -> list[AbortedTransaction]:
        """Those with a batch in a range of offsets, and perhaps others that reach across it."""
        found: list[AbortedTransaction] = []
        stable_offset = from_offset
        for segment in self._chain.segments_from(from_offset):
            if segment.state is SegmentState.ACTIVE:
                found += overlapping(newest.aborted, from_offset, to_offset)
                break
            index = self._index_of(segment)
            if index is not None:
                found += overlapping(index.transactions, from_offset, to_offset)
                stable_offset = index.last_stable_offset
            elif stable_offset >= segment.base_offset:
                # Nothing ends in a segment without transactions, so that what was not stable at
                # its beginning is not at its end; but nothing begins there either.
                stable_offset = segment.next_offset
            if stable_offset >= to_offset:
                break
        return found

    def _index_of(self, segment: Segment) -> AbortedIndex | None:
        """What the file of a closed segment says; None if it is to have none."""
        reader = self._chain.reader(segment)
        if not reader.is_transactional:
            return None
        if reader.aborted is None:
            reader.aborted = self._opened(segment)
        return reader.aborted

    def _opened(self, segment: Segment) -> AbortedIndex:
        path, next_offset = segment.aborted_path, segment.next_offset
        try:
            return AbortedIndex.open(self._filesystem, path, next_offset=next_offset)
        except DamagedIndex as damage:
            _log.warning(
                "%(log)s: rebuilding an index: %(damage)s",
                {"log": self._report.log, "damage": damage},
            )
        transactions = states_after(self._chain, segment, self._snapshots).transactions
        index = AbortedIndex(transactions.aborted, transactions.stable_offset(next_offset))
        try:
            write_atomically(self._filesystem, path, index.encode(next_offset=next_offset))
        except OSError as error:
            # It is right all the same, and made once more when it is next needed.
            _log.warning(
                "%(log)s: %(path)s was not written: %(error)s",
                {"log": self._report.log, "path": path, "error": error},
            )
        else:
            self._report.rebuilt_indexes.append(path)
        return index
