"""The idempotence rules, their undoing, and the snapshot format."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import CorruptData, Fenced, OutOfOrderSequence
from millstream.records import parse_header
from millstream.records.batch import assign_offset
from millstream.records.checksum import crc32c
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.producer_state import (
    BATCHES_KEPT,
    MAX_SEQUENCE,
    OpenTransaction,
    Producer,
    ProducerStates,
    RecentBatch,
)
from tests.fakes.sample_batches import abort_marker, commit_marker, transactional_batch

PRODUCER = 7


def states_after(
    *batches: tuple[int, int], epoch: int = 0, base_offset: int = 100
) -> ProducerStates:
    """The state after batches of these sequences, one offset for each, timestamps as offsets."""
    states = ProducerStates()
    for offset, (first, last) in enumerate(batches, base_offset):
        states.record(PRODUCER, epoch, first, last, offset, offset, offset)
    return states


def contents(states: ProducerStates) -> list[Producer]:
    return sorted(states.producers())


# --- deciding


@pytest.mark.parametrize("base_sequence", [0, 1, 12345, MAX_SEQUENCE])
def test_unknown_producer_starts_anywhere(base_sequence: int) -> None:
    assert ProducerStates().check(PRODUCER, 3, base_sequence, base_sequence) is None


def test_next_sequence_is_accepted() -> None:
    assert states_after((0, 4)).check(PRODUCER, 0, 5, 9) is None


@pytest.mark.parametrize("base_sequence", [0, 3, 4, 6, 1000])
def test_gap_or_overlap_is_refused_with_what_was_expected(base_sequence: int) -> None:
    with pytest.raises(OutOfOrderSequence) as refused:
        states_after((0, 4)).check(PRODUCER, 0, base_sequence, base_sequence + 10)
    assert refused.value.producer_id == PRODUCER
    assert refused.value.expected == 5
    assert refused.value.actual == base_sequence


def test_sequence_wraps_to_zero() -> None:
    states = states_after((MAX_SEQUENCE - 1, MAX_SEQUENCE))
    assert states.check(PRODUCER, 0, 0, 3) is None
    with pytest.raises(OutOfOrderSequence):
        states.check(PRODUCER, 0, 1, 3)


def test_batch_that_spans_the_wrap_is_followed_and_found_again() -> None:
    states = states_after((MAX_SEQUENCE - 1, 1))
    assert states.check(PRODUCER, 0, MAX_SEQUENCE - 1, 1) == 100
    assert states.check(PRODUCER, 0, 2, 2) is None


def test_each_of_the_last_five_batches_is_a_duplicate_and_the_sixth_is_not() -> None:
    states = states_after(*((2 * n, 2 * n + 1) for n in range(6)))
    for n in range(1, 6):
        assert states.check(PRODUCER, 0, 2 * n, 2 * n + 1) == 100 + n
    with pytest.raises(OutOfOrderSequence):
        states.check(PRODUCER, 0, 0, 1)


def test_duplicate_must_match_both_ends() -> None:
    states = states_after((0, 4), (5, 9))
    for first, last in [(0, 3), (1, 4), (0, 9), (5, 10)]:
        with pytest.raises(OutOfOrderSequence):
            states.check(PRODUCER, 0, first, last)


def test_older_epoch_is_fenced_even_for_what_it_wrote() -> None:
    states = states_after((0, 4), epoch=3)
    with pytest.raises(Fenced) as refused:
        states.check(PRODUCER, 2, 0, 4)
    assert refused.value.kind == "producer"
    assert refused.value.identity == PRODUCER
    assert (refused.value.epoch, refused.value.current_epoch) == (2, 3)


def test_newer_epoch_starts_at_zero() -> None:
    states = states_after((0, 4))
    assert states.check(PRODUCER, 1, 0, 4) is None
    with pytest.raises(OutOfOrderSequence) as refused:
        states.check(PRODUCER, 1, 5, 9)
    assert refused.value.expected == 0


def test_newer_epoch_forgets_the_batches_of_the_old_one() -> None:
    states = states_after((0, 4), (5, 9))
    states.record(PRODUCER, 1, 0, 0, 200, 200, 200)
    batches = (RecentBatch(0, 0, 200, 200, 200),)
    assert contents(states) == [Producer(PRODUCER, 1, batches, 200, None, -1)]
    with pytest.raises(OutOfOrderSequence):
        states.check(PRODUCER, 1, 0, 4)


def test_producers_do_not_disturb_each_other() -> None:
    states = states_after((0, 4))
    states.record(8, 0, 17, 17, 101, 101, 101)
    assert states.check(PRODUCER, 0, 5, 5) is None
    assert states.check(8, 0, 18, 18) is None
    assert states.check(8, 0, 17, 17) == 101


def test_check_changes_nothing() -> None:
    states = states_after((0, 4))
    before = contents(states)
    states.check(PRODUCER, 0, 5, 9)
    states.check(PRODUCER, 1, 0, 0)
    states.check(8, 0, 0, 0)
    assert contents(states) == before


def test_producer_lists_its_batches_oldest_first() -> None:
    (producer,) = states_after(*((n, n) for n in range(9))).producers()
    assert producer.epoch == 0
    assert [batch.base_offset for batch in producer.batches] == [104, 105, 106, 107, 108]
    assert producer.last_timestamp_ms == 108


# --- undoing a failed append


def test_batches_of_one_append_see_each_other() -> None:
    states = ProducerStates()
    states.mark()
    states.record(PRODUCER, 0, 0, 0, 0, 0, 0)
    assert states.check(PRODUCER, 0, 0, 0) == 0
    assert states.check(PRODUCER, 0, 1, 1) is None


def test_rollback_returns_to_the_mark() -> None:
    states = states_after(*((n, n) for n in range(BATCHES_KEPT)))
    states.record(8, 0, 0, 0, 200, 200, 200)
    before = contents(states)
    states.mark()
    for n in range(BATCHES_KEPT, 3 * BATCHES_KEPT):
        states.record(PRODUCER, 0, n, n, 200 + n, 200 + n, 200)
    states.record(8, 1, 0, 0, 300, 300, 300)
    states.record(9, 0, 0, 0, 301, 301, 301)
    states.rollback()
    assert contents(states) == before
    with pytest.raises(OutOfOrderSequence):
        states.check(PRODUCER, 0, BATCHES_KEPT + 1, BATCHES_KEPT + 1)


def test_rollback_spares_what_was_recorded_before_the_mark() -> None:
    states = states_after((0, 0))
    states.mark()
    states.record(PRODUCER, 0, 1, 1, 101, 101, 101)
    states.mark()
    states.record(PRODUCER, 0, 2, 2, 102, 102, 102)
    states.rollback()
    assert states.check(PRODUCER, 0, 1, 1) == 101
    assert states.check(PRODUCER, 0, 2, 2) is None


def test_second_rollback_does_nothing() -> None:
    states = states_after((0, 0))
    states.mark()
    states.record(PRODUCER, 0, 1, 1, 101, 101, 101)
    states.rollback()
    before = contents(states)
    states.rollback()
    assert contents(states) == before


def test_expired_producer_does_not_come_back_by_rollback() -> None:
    states = ProducerStates()
    states.mark()
    states.record(PRODUCER, 0, 0, 0, 0, 0, 0)
    states.expire(now_ms=1000, expiration_ms=10)
    states.rollback()
    assert contents(states) == []


# --- forgetting


def test_silent_producer_expires_and_may_then_start_anywhere() -> None:
    states = states_after((0, 0))  # at time 100
    states.record(8, 0, 0, 0, 200, 200, 101)
    states.expire(now_ms=1100, expiration_ms=1000)
    assert [producer.producer_id for producer in states.producers()] == [8]
    assert states.check(PRODUCER, 0, 55, 55) is None


def test_truncation_forgets_batches_that_reach_past_the_end() -> None:
    states = ProducerStates()
    states.record(PRODUCER, 0, 0, 4, 0, 4, 0)
    states.record(PRODUCER, 0, 5, 9, 5, 9, 0)
    assert states.truncate(9)
    assert states.check(PRODUCER, 0, 5, 9) is None
    assert states.check(PRODUCER, 0, 0, 4) == 0


def test_truncation_at_the_end_of_a_batch_keeps_it() -> None:
    states = states_after((0, 0))
    assert not states.truncate(101)
    assert states.check(PRODUCER, 0, 0, 0) == 100


def test_producer_with_no_batch_left_by_truncation_is_unknown() -> None:
    states = states_after((0, 0), epoch=4)
    assert states.truncate(100)
    assert contents(states) == []
    assert states.check(PRODUCER, 0, 9, 9) is None


# --- snapshots


def test_snapshot_has_the_bytes_that_its_format_shows() -> None:
    states = ProducerStates()
    states.record(7, 2, 0, 2, 100, 102, 1000)
    assert states.snapshot(103).hex() == (
        "4d535053" "0002" "6ecd1ed0"
        "0000000000000067" "0000000000000000" "00" "00000001" "00000000"
        "0000000000000007" "0002" "ffffffff" "ffffffffffffffff" "01"
        "00000000" "00000002" "0000000000000064" "0000000000000066" "00000000000003e8"
    )  # fmt: skip


def test_snapshot_tells_of_transactions_as_its_format_shows() -> None:
    states = ProducerStates()
    states.transactions.begin_segment(100)
    states.record(7, 2, 0, 2, 100, 102, 1000)
    replayed(states, transactional_batch(3, epoch=2), 103)
    replayed(states, abort_marker(epoch=3), 104)
    replayed(states, transactional_batch(0, epoch=3), 105)
    assert states.snapshot(106).hex() == (
        "4d535053" "0002" "1fac8622"
        "000000000000006a" "0000000000000064" "03" "00000001" "00000001"
        "0000000000000007" "0003" "00000003" "0000000000000069" "02"
        "ffffffff" "ffffffff" "0000000000000068" "0000000000000068" "00000000000007d0"
        "00000000" "00000000" "0000000000000069" "0000000000000069" "00000000000007d0"
        "0000000000000007" "0000000000000067" "0000000000000068" "0000000000000069"
    )  # fmt: skip
    loaded, _ = ProducerStates.load(states.snapshot(106), path="p")
    assert list(loaded.open_transactions()) == [OpenTransaction(7, 3, 105)]
    assert loaded.transactions.aborted == [AbortedTransaction(7, 103, 104, 105)]
    assert loaded.snapshot(106) == states.snapshot(106)


def replayed(states: ProducerStates, batch: bytearray, offset: int) -> None:
    assign_offset(batch, offset, 0)
    states.replay(parse_header(batch), batch, timestamp_ms=2000)


@pytest.mark.parametrize("ends_with", [abort_marker, commit_marker])
def test_rollback_undoes_the_beginnings_and_ends_of_transactions(
    ends_with: Callable[..., bytearray],
) -> None:
    states = ProducerStates()
    for offset, producer in enumerate((1, 2, 3)):
        replayed(states, transactional_batch(0, producer=producer), offset)
    replayed(states, abort_marker(producer=3), 3)
    before = states.snapshot(4)
    states.mark()
    replayed(states, ends_with(producer=1, epoch=1), 4)
    replayed(states, transactional_batch(0, producer=1, epoch=1), 5)
    replayed(states, transactional_batch(0, producer=9), 6)
    assert [t.producer_id for t in states.open_transactions()] == [2, 1, 9]
    states.rollback()
    assert states.snapshot(4) == before
    assert [t.first_offset for t in states.open_transactions()] == [0, 1]
    assert states.transactions.stable_offset(4) == 0


def test_batch_that_compaction_emptied_begins_no_transaction() -> None:
    states = ProducerStates()
    header = parse_header(transactional_batch(0))._replace(records_count=0)
    states.replay(header, transactional_batch(0), timestamp_ms=0)
    assert list(states.open_transactions()) == []
    assert states.check(PRODUCER, 0, 0, 0) == 0


def test_producer_known_by_its_marker_alone_goes_on_anywhere() -> None:
    states = ProducerStates()
    replayed(states, commit_marker(epoch=2), 10)
    assert states.check(PRODUCER, 2, 55, 55) is None
    with pytest.raises(Fenced):
        states.check(PRODUCER, 1, 0, 0)
    replayed(states, abort_marker(epoch=3), 11)
    with pytest.raises(OutOfOrderSequence):
        states.check(PRODUCER, 3, 55, 55)


def test_empty_snapshot_loads() -> None:
    states, next_offset = ProducerStates.load(ProducerStates().snapshot(42), path="p")
    assert next_offset == 42
    assert contents(states) == []


sequences = st.integers(0, MAX_SEQUENCE)
offsets = st.integers(0, 2**63 - 1)
recorded = st.tuples(
    st.integers(0, 5),  # few producers, so that they meet
    st.integers(0, 3),
    sequences,
    sequences,
    offsets,
    offsets,
    st.integers(-1, 2**63 - 1),
)


@given(st.lists(recorded), offsets)
def test_snapshot_round_trip(batches: list[tuple[int, ...]], next_offset: int) -> None:
    states = ProducerStates()
    for batch in batches:
        states.record(*batch)
    loaded, loaded_offset = ProducerStates.load(states.snapshot(next_offset), path="p")
    assert loaded_offset == next_offset
    assert contents(loaded) == contents(states)
    assert loaded.snapshot(next_offset) == states.snapshot(next_offset)


@given(st.lists(recorded), st.lists(recorded))
def test_rollback_undoes_any_append(
    before: list[tuple[int, ...]], appended: list[tuple[int, ...]]
) -> None:
    states = ProducerStates()
    for batch in before:
        states.record(*batch)
    expected = contents(states)
    states.mark()
    for batch in appended:
        states.record(*batch)
    states.rollback()
    assert contents(states) == expected


def test_replaying_the_headers_after_a_snapshot_gives_the_state_at_the_end() -> None:
    live = ProducerStates()
    snapshots = []
    for n in range(20):
        snapshots.append(live.snapshot(n))
        live.record(n % 3, n // 10, n, n, n, n, n)
    for snapshot in snapshots:
        replayed, next_offset = ProducerStates.load(snapshot, path="p")
        for n in range(next_offset, 20):
            replayed.record(n % 3, n // 10, n, n, n, n, n)
        assert contents(replayed) == contents(live)


def test_every_flipped_bit_is_found() -> None:
    snapshot = states_after((0, 4), (5, 9)).snapshot(102)
    for position in range(len(snapshot)):
        for bit in range(8):
            damaged = bytearray(snapshot)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptData):
                ProducerStates.load(bytes(damaged), path="p")


def test_every_cut_is_found() -> None:
    snapshot = states_after((0, 4), (5, 9)).snapshot(102)
    for size in range(len(snapshot)):
        with pytest.raises(CorruptData):
            ProducerStates.load(snapshot[:size], path="p")


def test_damage_names_the_file() -> None:
    with pytest.raises(CorruptData) as damage:
        ProducerStates.load(b"nonsense" * 10, path="orders/0/00000000000000000102.snapshot")
    assert damage.value.path == "orders/0/00000000000000000102.snapshot"


def sealed(body: bytes, version: int = 2) -> bytes:
    return struct.pack(">4shI", b"MSPS", version, crc32c(body)) + body


BATCH = struct.pack(">iiqqq", 0, 0, 0, 0, 0)


def counts(producers: int, aborted: int = 0) -> bytes:
    return struct.pack(">qqBII", 0, 0, 0, producers, aborted)


def producer(batches: int) -> bytes:
    return struct.pack(">qhiqB", 7, 0, -1, -1, batches)


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(sealed(counts(0), version=3), id="newer version"),
        pytest.param(sealed(counts(0) + b"x"), id="bytes left over"),
        pytest.param(sealed(counts(1)), id="producer missing"),
        pytest.param(sealed(counts(0, aborted=1)), id="aborted transaction missing"),
        pytest.param(sealed(counts(1) + producer(1) + BATCH[:-1]), id="batch cut"),
        pytest.param(sealed(counts(1) + producer(2) + BATCH), id="batch missing"),
        pytest.param(sealed(counts(1) + producer(0)), id="no batches"),
        pytest.param(sealed(counts(1) + producer(6) + 6 * BATCH), id="six batches"),
    ],
)
def test_well_sealed_nonsense_is_refused(snapshot: Any) -> None:
    with pytest.raises(CorruptData):
        ProducerStates.load(snapshot, path="p")


def _many(count: int, *, max_count: int) -> ProducerStates:
    states = ProducerStates()
    states.max_count = max_count
    for number in range(count):
        states.mark()
        states.record(number, 0, 0, 0, number, number, number)
    return states


def test_producers_that_were_silent_for_longest_make_room_for_others() -> None:
    states = _many(1000, max_count=100)
    known = [producer.producer_id for producer in states.producers()]
    assert len(known) <= 100
    assert known == list(range(1000 - len(known), 1000))


def test_append_that_fails_brings_back_the_producers_that_made_room_for_it() -> None:
    states = _many(100, max_count=100)
    before = list(states.producers())
    states.mark()
    for number in range(1000, 1300):
        states.record(number, 0, 0, 0, number, number, number)
    states.rollback()
    assert sorted(states.producers()) == before


def test_producer_whose_transaction_is_under_way_makes_no_room() -> None:
    states = ProducerStates()
    states.max_count = 10
    batch = transactional_batch(0, producer=PRODUCER)
    states.record_transactional(parse_header(batch), batch, base_offset=0, timestamp_ms=0)
    for number in range(1000, 1100):
        states.record(number, 0, 0, 0, number, number, number)
    assert PRODUCER in {producer.producer_id for producer in states.producers()}
