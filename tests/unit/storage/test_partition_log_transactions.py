"""What every storage engine promises about transactions, as part of the contract of a log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import (
    Fenced,
    InvalidBatch,
    InvalidTransactionState,
    OffsetOutOfRange,
    OutOfOrderSequence,
)
from millstream.records import Record, build
from millstream.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.partition_log import PartitionLog
from millstream.storage.producer_state import OpenTransaction
from tests.fakes.log_engines import ENGINES, LogEngine
from tests.fakes.log_steps import SMALL_SEGMENTS, append, fill, refusal
from tests.fakes.sample_batches import (
    abort_marker,
    batch_of,
    commit_marker,
    headers_in,
    idempotent_batch,
    transactional_batch,
)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> LogEngine:
    return ENGINES[request.param](tmp_path)


@pytest.fixture
def log(engine: LogEngine) -> Iterator[PartitionLog]:
    log = engine.open(SMALL_SEGMENTS)
    yield log
    log.close()


def open_in(log: PartitionLog) -> list[OpenTransaction]:
    return list(log.producers.open_transactions())


def aborted_in(log: PartitionLog) -> list[AbortedTransaction]:
    return log.aborted_transactions(log.start_offset, log.end_offset)


# --- beginning and ending


def test_log_without_transactions_is_stable_to_its_end(log: PartitionLog) -> None:
    assert log.last_stable_offset == 0
    append(log, batch_of(b"a"), idempotent_batch(0))
    assert log.last_stable_offset == 2
    assert open_in(log) == []
    assert aborted_in(log) == []
    assert not log.has_aborted_transactions


def test_first_batch_of_a_transaction_begins_it(log: PartitionLog) -> None:
    append(log, batch_of(b"before"), transactional_batch(0, count=2), transactional_batch(2))
    assert open_in(log) == [OpenTransaction(7, 0, 1)]
    assert log.producers.open_transaction(7) == OpenTransaction(7, 0, 1)
    assert log.producers.open_transaction(8) is None
    assert log.last_stable_offset == 1


def test_commit_makes_the_log_stable(log: PartitionLog) -> None:
    append(log, transactional_batch(0), commit_marker())
    assert (log.last_stable_offset, open_in(log), aborted_in(log)) == (2, [], [])
    assert not log.has_aborted_transactions


def test_abort_is_told_with_its_first_and_last_offset(log: PartitionLog) -> None:
    append(log, batch_of(b"a"), transactional_batch(0), batch_of(b"b"), abort_marker())
    assert aborted_in(log) == [AbortedTransaction(7, 1, 3, 4)]
    assert (log.last_stable_offset, open_in(log)) == (4, [])
    assert log.has_aborted_transactions


def test_oldest_of_several_transactions_holds_the_log_back(log: PartitionLog) -> None:
    append(log, *(transactional_batch(0, producer=producer) for producer in (1, 2, 3)))
    stable = []
    for producer in (2, 1, 3):
        append(log, abort_marker(producer=producer))
        stable.append(log.last_stable_offset)
    assert stable == [0, 2, 6]
    assert aborted_in(log) == [
        AbortedTransaction(2, 1, 3, 0),
        AbortedTransaction(1, 0, 4, 2),
        AbortedTransaction(3, 2, 5, 6),
    ]


def test_marker_without_a_transaction_aborts_nothing(log: PartitionLog) -> None:
    append(log, abort_marker(), transactional_batch(0), commit_marker(), abort_marker())
    assert (aborted_in(log), log.last_stable_offset) == ([], 4)


def test_repeated_batch_of_an_ended_transaction_is_refused_and_begins_none(
    log: PartitionLog,
) -> None:
    append(log, transactional_batch(0), commit_marker())
    assert isinstance(refusal(log, transactional_batch(0)), OutOfOrderSequence)
    assert (open_in(log), log.end_offset) == ([], 2)
    append(log, transactional_batch(1))
    assert log.append([transactional_batch(1)]) == [2]
    assert isinstance(refusal(log, transactional_batch(0)), OutOfOrderSequence)


def test_refused_batch_begins_no_transaction(log: PartitionLog) -> None:
    append(log, idempotent_batch(0))
    assert isinstance(refusal(log, transactional_batch(5)), OutOfOrderSequence)
    assert open_in(log) == []


# --- epochs and sequences


def test_sequence_goes_on_after_a_marker_of_the_same_epoch(log: PartitionLog) -> None:
    append(log, transactional_batch(0, count=2), commit_marker(), transactional_batch(2))
    assert isinstance(refusal(log, transactional_batch(0)), OutOfOrderSequence)


def test_marker_of_a_newer_epoch_fences_the_old_one_and_restarts_its_sequence(
    log: PartitionLog,
) -> None:
    append(log, transactional_batch(0, count=2), abort_marker(epoch=1))
    fenced = refusal(log, transactional_batch(2, epoch=0))
    assert isinstance(fenced, Fenced)
    assert (fenced.epoch, fenced.current_epoch) == (0, 1)
    assert isinstance(refusal(log, transactional_batch(2, epoch=1)), OutOfOrderSequence)
    append(log, transactional_batch(0, epoch=1), transactional_batch(1, epoch=1))
    assert open_in(log) == [OpenTransaction(7, 1, 3)]


def test_marker_of_an_old_epoch_is_fenced(log: PartitionLog) -> None:
    append(log, transactional_batch(0, epoch=4))
    assert isinstance(refusal(log, abort_marker(epoch=3)), Fenced)
    assert open_in(log) == [OpenTransaction(7, 4, 0)]


def test_batch_outside_of_the_transaction_under_way_is_refused(log: PartitionLog) -> None:
    append(log, transactional_batch(0))
    refused = refusal(log, idempotent_batch(1))
    assert isinstance(refused, InvalidTransactionState)
    assert refused.identity == 7
    append(log, idempotent_batch(0, producer=8), commit_marker(), idempotent_batch(1))


def test_newer_epoch_waits_for_the_end_of_the_transaction_under_way(log: PartitionLog) -> None:
    append(log, transactional_batch(0))
    assert isinstance(refusal(log, transactional_batch(0, epoch=1)), InvalidTransactionState)
    append(log, abort_marker(epoch=1), transactional_batch(0, epoch=1))


def test_broker_writes_to_a_transaction_without_sequences(log: PartitionLog) -> None:
    append(log, transactional_batch(-1, epoch=2), transactional_batch(-1, epoch=2))
    assert open_in(log) == [OpenTransaction(7, 2, 0)]
    assert isinstance(refusal(log, transactional_batch(-1, epoch=1)), Fenced)
    append(log, commit_marker(epoch=2), transactional_batch(-1, epoch=2))
    assert log.last_stable_offset == 3


def test_marker_that_is_none_is_refused(log: PartitionLog) -> None:
    nonsense = build(
        [Record(0, 0, b"\0\0\0\7", b"\0\0\0\0\0\0")],
        producer_id=7,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    assert isinstance(refusal(log, nonsense), InvalidBatch)


def test_producer_is_described_with_its_transaction(log: PartitionLog) -> None:
    append(log, transactional_batch(0, count=3), commit_marker(), transactional_batch(3))
    append(log, transactional_batch(0, producer=8), abort_marker(producer=8, epoch=1))
    first, second = log.producers.producers()
    assert (first.epoch, first.last_sequence, first.transaction_offset) == (0, 3, 4)
    assert first.coordinator_epoch == 3
    assert (second.epoch, second.last_sequence, second.transaction_offset) == (1, -1, None)
    assert (second.batches, second.coordinator_epoch) == ((), 3)


# --- reading


def test_read_stops_below_an_offset(log: PartitionLog) -> None:
    fill(log, 40)
    starts = [h.base_offset for h in headers_in(log.read(0, 1 << 20))]
    everything: list[int] = []
    while everything[-1:] != [log.end_offset]:
        view = log.read(everything[-1] if everything else 0, 1 << 20)
        everything += [h.next_offset for h in headers_in(view)]
    assert len(everything) == 40
    for below in (*starts, *everything):
        seen: list[int] = []
        while view := log.read(seen[-1] if seen else 0, 250, below=below):
            seen += [h.next_offset for h in headers_in(view)]
        assert seen == [offset for offset in everything if offset <= below]


def test_read_at_or_past_the_limit_is_empty(log: PartitionLog) -> None:
    fill(log, 10)
    for offset in (3, 4, log.end_offset):
        assert len(log.read(offset, 1 << 20, below=3)) == 0
    with pytest.raises(OffsetOutOfRange):
        log.read(log.end_offset + 1, 1, below=3)


def test_large_batch_is_read_below_the_limit_whatever_its_size(log: PartitionLog) -> None:
    append(log, batch_of(b"x" * 300), batch_of(b"y" * 300))
    assert [h.base_offset for h in headers_in(log.read(0, 1, below=1))] == [0]


def test_aborted_transaction_is_told_to_whoever_reads_a_batch_of_it(log: PartitionLog) -> None:
    """Its batches lie segments apart, with others between them that hold nothing of it."""
    parts = []
    for sequence in range(3):
        parts += append(log, transactional_batch(sequence))
        fill(log, 30)
    (marker,) = append(log, abort_marker())
    fill(log, 30)
    expected = [AbortedTransaction(7, 0, marker, marker + 1)]
    for offset in (*parts, marker):
        assert log.aborted_transactions(offset, offset + 1) == expected
    assert log.aborted_transactions(0, log.end_offset) == expected
    assert log.aborted_transactions(marker + 1, log.end_offset) == []


def test_only_transactions_that_reach_into_the_range_are_told(log: PartitionLog) -> None:
    for number in range(30):
        append(log, transactional_batch(number), batch_of(b"x"), abort_marker())
    for first in (0, 30, 60):
        found = log.aborted_transactions(first, first + 6)
        assert [(t.first_offset, t.last_offset) for t in found] == [
            (first, first + 2),
            (first + 3, first + 5),
        ]


# --- taking out


def test_records_of_a_transaction_under_way_cannot_be_deleted(log: PartitionLog) -> None:
    append(log, batch_of(b"a"), batch_of(b"b"), transactional_batch(0))
    with pytest.raises(OffsetOutOfRange) as refused:
        log.delete_records(3)
    assert (refused.value.start_offset, refused.value.end_offset) == (0, 2)
    assert log.delete_records(2) == 2
    append(log, commit_marker())
    assert log.delete_records(4) == 4


def test_truncated_end_of_a_transaction_leaves_it_under_way(log: PartitionLog) -> None:
    append(log, transactional_batch(0), abort_marker(epoch=1), batch_of(b"a"))
    log.truncate(1)
    assert open_in(log) == [OpenTransaction(7, 0, 0)]
    assert (log.last_stable_offset, aborted_in(log)) == (0, [])
    append(log, transactional_batch(1), commit_marker())
    assert (log.last_stable_offset, aborted_in(log)) == (3, [])


def test_truncated_beginning_of_a_transaction_leaves_none(log: PartitionLog) -> None:
    append(log, batch_of(b"a"), transactional_batch(0))
    log.truncate(1)
    assert (open_in(log), log.last_stable_offset) == ([], 1)


def test_truncation_keeps_what_was_aborted_before_it(log: PartitionLog) -> None:
    for number in range(20):
        append(log, transactional_batch(number), abort_marker())
    expected = aborted_in(log)
    log.truncate(31)
    assert aborted_in(log) == expected[:15]
    assert open_in(log) == [OpenTransaction(7, 0, 30)]


def test_bits_are_those_of_the_format() -> None:
    header = headers_in(memoryview(abort_marker()))[0]
    assert header.attributes == TRANSACTIONAL_BIT | CONTROL_BIT
