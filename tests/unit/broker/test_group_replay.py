"""Groups from their log: which record of a key decides, whatever compaction has dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from millstream.broker.group_replay import ENCODERS, stored_groups
from millstream.broker.state_log import StoredBatch, TransactionalProducer
from millstream.groups.group_records import Committed, OffsetCommitted, OffsetTombstone
from millstream.records import Record

G = "g"
_Stored = OffsetCommitted | OffsetTombstone
_Batch = tuple[int, str, int, _Stored | None]
"""Its offset, whether it is data or how a transaction ends, its producer, and its record."""


class History:
    """Batches of one record each, at offsets that have gaps where a batch was dropped."""

    def __init__(self) -> None:
        self.batches: list[_Batch] = []

    def plain(self, partition: int, offset: int) -> None:
        self._add("data", -1, committed(partition, offset))

    def tombstone(self, partition: int) -> None:
        self._add("data", -1, OffsetTombstone(G, "t", partition))

    def pending(self, producer_id: int, partition: int, offset: int) -> None:
        self._add("data", producer_id, committed(partition, offset))

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        self._add("commit" if is_commit else "abort", producer_id, None)

    def _add(self, kind: str, producer_id: int, record: _Stored | None) -> None:
        self.batches.append((len(self.batches), kind, producer_id, record))

    def stored(self) -> Iterator[StoredBatch]:
        for offset, kind, producer_id, record in self.batches:
            producer = None if producer_id < 0 else TransactionalProducer(producer_id, 3)
            if record is None:
                yield StoredBatch(iter(()), producer, kind == "commit")
            else:
                key, value = ENCODERS[type(record)](record)
                yield StoredBatch(iter([Record(offset, 0, key, value)]), producer)


def committed(partition: int, offset: int) -> OffsetCommitted:
    return OffsetCommitted(G, "t", partition, Committed(offset, -1, "", 0))


def replayed(history: History) -> tuple[dict[int, int], dict[tuple[int, int], int]]:
    """By partition what is committed; by producer and partition what is pending."""
    group = stored_groups(history.stored()).get(G)
    if group is None:
        return {}, {}
    offsets = {key[1]: kept.offset for key, kept in group.offsets.items()}
    waiting = {(who, key[1]): each.committed.offset for who, key, each in group.pending.all()}
    return offsets, waiting


def test_offsets_of_a_transaction_count_when_it_was_committed() -> None:
    history = History()
    history.pending(1, 0, 10)
    history.pending(2, 1, 20)
    history.pending(3, 2, 30)
    assert replayed(history) == ({}, {(1, 0): 10, (2, 1): 20, (3, 2): 30})
    history.end(1, is_commit=True)
    history.end(2, is_commit=False)
    assert replayed(history) == ({0: 10}, {(3, 2): 30})


def test_later_plain_commit_outlasts_the_transaction() -> None:
    history = History()
    history.pending(1, 0, 10)
    history.plain(0, 4)
    assert replayed(history) == ({0: 4}, {})
    history.end(1, is_commit=True)
    assert replayed(history) == ({0: 4}, {})


def test_tombstone_ends_what_was_pending_before_it() -> None:
    history = History()
    history.plain(0, 4)
    history.pending(1, 0, 10)
    history.tombstone(0)
    assert replayed(history) == ({}, {})
    history.pending(1, 0, 11)
    history.end(1, is_commit=True)
    assert replayed(history) == ({0: 11}, {})


def test_producer_goes_on_with_its_next_transaction() -> None:
    history = History()
    history.pending(1, 0, 10)
    history.end(1, is_commit=True)
    history.pending(1, 0, 11)
    history.end(1, is_commit=False)
    history.pending(1, 0, 12)
    assert replayed(history) == ({0: 10}, {(1, 0): 12})


def test_pending_offsets_know_where_they_lie_and_the_epoch_of_their_producer() -> None:
    history = History()
    history.plain(1, 1)
    history.pending(1, 0, 10)
    [(_, _, found)] = stored_groups(history.stored())[G].pending.all()
    assert (found.record_offset, found.producer_epoch) == (1, 3)


@pytest.mark.parametrize("seed", range(200))
def test_newest_committed_record_decides_before_and_after_compaction(seed: int) -> None:
    random = Random(seed)
    history = History()
    for number in range(random.randint(1, 30)):
        partition, producer_id = random.randrange(3), random.randrange(3)
        chance = random.random()
        if chance < 0.2:
            history.plain(partition, number)
        elif chance < 0.3:
            history.tombstone(partition)
        elif chance < 0.7:
            history.pending(producer_id, partition, number)
        else:
            history.end(producer_id, is_commit=random.random() < 0.6)
    expected = judged(history)
    assert replayed(history) == expected
    compact(history, random)
    assert replayed(history) == expected


def fates(history: History) -> dict[int, str]:
    """By offset, for each record: committed, aborted or open."""
    found = {}
    for place, (offset, _, producer_id, record) in enumerate(history.batches):
        if record is not None:
            later = [kind for _, kind, who, _ in history.batches[place:] if who == producer_id]
            ends = [kind for kind in later if kind != "data"]
            found[offset] = "commit" if producer_id < 0 else (ends or ["open"])[0]
    return found


def judged(history: History) -> tuple[dict[int, int], dict[tuple[int, int], int]]:
    """What must be replayed, by the words of the rule."""
    fate = fates(history)
    newest: dict[int, _Stored] = {}
    newest_at: defaultdict[int, int] = defaultdict(lambda: -1)
    pending: dict[tuple[int, int], tuple[int, OffsetCommitted]] = {}
    for offset, _, producer_id, record in history.batches:
        if record is None:
            continue
        if fate[offset] == "commit":
            newest[record.partition], newest_at[record.partition] = record, offset
        elif fate[offset] == "open" and isinstance(record, OffsetCommitted):
            pending[producer_id, record.partition] = (offset, record)
    offsets = {
        partition: record.committed.offset
        for partition, record in newest.items()
        if isinstance(record, OffsetCommitted)
    }
    waiting = {
        key: record.committed.offset
        for key, (offset, record) in pending.items()
        if offset > newest_at[key[1]]
    }
    return offsets, waiting


def compact(history: History, random: Random) -> None:
    """Drop some of what compaction may drop, all of it below the oldest open transaction."""
    fate = fates(history)
    stable = min((at for at, each in fate.items() if each == "open"), default=len(history.batches))
    newest: dict[int, int] = {}
    for offset, _, _, record in history.batches:
        if record is not None and offset < stable and fate[offset] == "commit":
            newest[record.partition] = offset

    def is_waste(offset: int, record: _Stored) -> bool:
        if offset >= stable:
            return False
        is_old = offset != newest.get(record.partition)
        return fate[offset] == "abort" or is_old

    history.batches = [
        batch
        for batch in history.batches
        if batch[3] is None or not is_waste(batch[0], batch[3]) or random.random() < 0.2
    ]
    history.batches = list(_without_idle_ends(history.batches, stable, random))


def _without_idle_ends(batches: Sequence[_Batch], stable: int, random: Random) -> Iterator[_Batch]:
    """Ends of transactions that something is left of stay; of the others, some go."""
    has_records: set[int] = set()
    for batch in batches:
        offset, _, producer_id, record = batch
        if record is not None:
            has_records.add(producer_id)
            yield batch
        elif producer_id in has_records or offset >= stable or random.random() < 0.3:
            has_records.discard(producer_id)
            yield batch
