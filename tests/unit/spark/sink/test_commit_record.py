"""The commit record: its steps, its bytes, and what tasks make of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.errors import CorruptData
from millstream.spark.fingerprint import Fingerprint
from millstream.spark.sink.commit_record import (
    HISTORY_BATCHES,
    CommitRecord,
    Replay,
    TaskTransaction,
)
from millstream.spark.sink.standing import Standing, standing

EMPTY = CommitRecord(name="q")


def test_record_survives_its_bytes_in_every_state() -> None:
    decided = _decided(EMPTY, batch=0)
    done = decided.finished()
    replay = Replay(query_id="b", batch=0, seen=_rows(1))
    for record in (EMPTY, decided, decided.torn(decided.transactions), done, done.replayed(replay)):
        assert CommitRecord.from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version":2}', b'{"version":1}'])
def test_bytes_that_are_no_record_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData):
        CommitRecord.from_bytes(data)


def test_decision_that_is_taken_back_leaves_the_batch_before() -> None:
    done = _decided(EMPTY, batch=0).finished()
    assert _decided(done, batch=1).taken_back() == replace(done, previous=0)


def test_repair_keeps_the_batch_before_and_counts_the_rows_once() -> None:
    done = _decided(EMPTY, batch=0).finished()
    decided = _decided(done, batch=1)
    repaired = _decided(decided.torn(decided.transactions), batch=1)
    assert repaired.is_repair
    assert repaired.previous == 0
    assert repaired.finished() == decided.finished()


def test_history_is_given_up_when_there_were_too_many_batches() -> None:
    record = EMPTY
    for batch in range(HISTORY_BATCHES):
        record = _decided(record, batch=batch).finished()
    assert len(record.history) == HISTORY_BATCHES
    record = _decided(record, batch=HISTORY_BATCHES).finished()
    assert (record.written, record.history) == (None, ())


def test_task_writes_what_is_new_and_skips_what_is_done() -> None:
    done = _decided(_decided(EMPTY, batch=0).finished(), batch=1).finished()
    assert [standing(done, query_id="a", batch=batch) for batch in (0, 1, 2)] == [
        Standing.STALE,
        Standing.SKIP,
        Standing.WRITE,
    ]
    assert standing(EMPTY, query_id="a", batch=0) is Standing.WRITE
    assert standing(done, query_id="", batch=None) is Standing.WRITE


def test_torn_batch_is_repaired_by_its_own_query_only() -> None:
    decided = _decided(EMPTY, batch=0)
    torn = decided.torn(decided.transactions)
    assert standing(torn, query_id="a", batch=0) is Standing.REPAIR
    assert standing(torn, query_id="b", batch=0) is Standing.STALE


def test_query_with_another_checkpoint_replays_until_it_has_seen_all() -> None:
    record = _decided(_decided(EMPTY, batch=0).finished(), batch=1).finished()
    assert standing(record, query_id="b", batch=0) is Standing.REPLAY
    half = record.replayed(Replay(query_id="b", batch=0, seen=_rows(1)))
    assert standing(half, query_id="b", batch=0) is Standing.SKIP
    assert standing(half, query_id="b", batch=1) is Standing.REPLAY
    whole = half.replayed(Replay(query_id="b", batch=1, seen=_rows(2)))
    assert (whole.query_id, whole.batch, whole.replay) == ("b", 1, None)
    assert standing(whole, query_id="b", batch=2) is Standing.WRITE


def _rows(count: int) -> Fingerprint:
    return Fingerprint(row_count=count, total_hash=7 * count)


def _decided(record: CommitRecord, *, batch: int) -> CommitRecord:
    transaction = TaskTransaction(
        task=0, transactional_id="t", producer_id=1, producer_epoch=2, rows=1, places=("x-0",)
    )
    return record.decided(
        query_id="a", batch=batch, transactions=[transaction], parts={0: _rows(1)}
    )
