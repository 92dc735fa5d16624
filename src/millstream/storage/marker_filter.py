"""Decides which markers of transactions compaction keeps.

A marker stays for its time, as a tombstone does. Past that it still stays where somebody would
take its transaction for an open one without it, or for one that had another end:

- while records of its transaction are left before it;
- while a segment that compaction leaves alone may hold some;
- while a snapshot of the producers speaks of its transaction as open, since a start that begins
  with that snapshot reads on from there and must find the end.

Invariant: whoever replays the log, from its start or from a snapshot, finds the same transactions
open before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.records.batch import BatchHeader
from millstream.storage.filesystem import Filesystem
from millstream.storage.producer_snapshots import ProducerSnapshots
from millstream.storage.segment_scan import EVERYTHING


class MarkerFilter:
    """Follows one pass through the batches of a log, in their order."""

    def __init__(self, *, expired_below: int, awaited: Mapping[int, Sequence[int]]) -> None:
        """`awaited` is what `awaited_markers` found."""
        self._expired_below = expired_below
        self._awaited = dict(awaited)
        # The producers with records that stay since their last marker.
        self._has_records: set[int] = set()
        # Those with aborted records, since their last marker too, that go.
        self._has_dropped: set[int] = set()
        # Whether segments were skipped, and whose markers were met since the last one.
        self._has_skipped = False
        self._met: set[int] = set()

    @property
    def is_one_missing(self) -> bool:
        """Whether there were records that no marker has followed yet."""
        return bool(self._has_records or self._has_dropped)

    def note_records(self, producer_id: int) -> None:
        """A batch of a producer's transaction stays, or a part of it."""
        self._has_records.add(producer_id)

    def note_dropped(self, producer_id: int) -> None:
        """Records go because a producer's transaction is aborted."""
        self._has_dropped.add(producer_id)

    def skip(self) -> None:
        """A segment is left alone, and may hold records of any transaction."""
        self._has_skipped = True
        self._met.clear()

    def keeps(self, header: BatchHeader) -> bool:
        """Whether a marker, the next one of its producer, stays."""
        producer_id, offset = header.producer_id, header.base_offset
        has_records = producer_id in self._has_records
        self._has_records.discard(producer_id)
        self._has_dropped.discard(producer_id)
        is_awaited = self._is_awaited(producer_id, offset)
        is_doubtful = self._is_doubtful(producer_id)
        return offset >= self._expired_below or has_records or is_awaited or is_doubtful

    def _is_doubtful(self, producer_id: int) -> bool:
        """Whether its transaction may have begun in a skipped segment."""
        if not self._has_skipped or producer_id in self._met:
            return False
        self._met.add(producer_id)
        return True

    def _is_awaited(self, producer_id: int, offset: int) -> bool:
        """Whether this is the first marker of its producer after a snapshot that waits for it."""
        snapshots = self._awaited.get(producer_id)
        if not snapshots:
            return False
        self._awaited[producer_id] = later = [s for s in snapshots if s > offset]
        return len(later) < len(snapshots)


def awaited_markers(filesystem: Filesystem, directory: str) -> dict[int, list[int]]:
    """For each producer the offsets of the snapshots in which it has a transaction open."""
    snapshots = ProducerSnapshots(filesystem, directory)
    awaited: dict[int, list[int]] = {}
    found = snapshots.newest(EVERYTHING)
    while found.snapshot_offset > 0:
        for transaction in found.states.open_transactions():
            awaited.setdefault(transaction.producer_id, []).append(found.snapshot_offset)
        found = snapshots.newest(found.snapshot_offset - 1)
    return awaited
