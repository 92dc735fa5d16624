"""What every storage engine promises: the contract of `PartitionLog`.

What it promises about syncs, stops and crashes is in test_partition_log_durability.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from millstream.errors import (
    Fenced,
    InvalidBatch,
    MessageTooLarge,
    MillstreamError,
    OffsetOutOfRange,
    OutOfOrderSequence,
    UnsupportedCodec,
)
from millstream.records import Codec, stamp_append_time, validate
from millstream.records.batch import ATTRIBUTES_AT, MAGIC_AT, seal
from millstream.storage.partition_log import PartitionLog, TimedOffset
from tests.fakes.log_engines import ENGINES, LOG_NAME, LogEngine
from tests.fakes.log_steps import SMALL_SEGMENTS, append, fill, first_at, refusal, sync
from tests.fakes.sample_batches import (
    batch_of,
    headers_in,
    idempotent_batch,
    read_all,
    records_in,
    timed_batch,
    values_of,
)

MAX_SEQUENCE = 2**31 - 1


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> LogEngine:
    return ENGINES[request.param](tmp_path)


@pytest.fixture
def log(engine: LogEngine) -> Iterator[PartitionLog]:
    log = engine.open(SMALL_SEGMENTS)
    yield log
    log.close()


# --- appending


def test_new_log_is_empty(log: PartitionLog) -> None:
    assert log.name == LOG_NAME
    assert (log.start_offset, log.synced_offset, log.end_offset) == (0, 0, 0)
    assert len(log.read(0, 1000)) == 0
    assert log.offset_for_time(0) is None
    assert log.offset_of_max_timestamp() is None


def test_offsets_follow_each_other(log: PartitionLog) -> None:
    assert append(log, batch_of(b"a", b"b", b"c")) == [0]
    assert append(log, batch_of(b"d")) == [3]
    assert append(log, batch_of(b"e", b"f")) == [4]
    assert log.end_offset == 6
    assert [record.offset for record in read_all(log)] == list(range(6))
    assert values_of(log) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_several_batches_are_appended_in_order(log: PartitionLog) -> None:
    assert append(log, batch_of(b"a", b"b"), batch_of(b"c"), batch_of(b"d")) == [0, 2, 3]
    assert values_of(log) == [b"a", b"b", b"c", b"d"]


def test_more_batches_than_fit_a_segment_are_appended_at_once(log: PartitionLog) -> None:
    batches = [batch_of(b"%d" % number) for number in range(50)]
    assert append(log, *batches) == list(range(50))
    assert values_of(log) == [b"%d" % number for number in range(50)]


def test_nothing_is_appended_by_an_empty_call(log: PartitionLog) -> None:
    assert log.append([]) == []
    assert log.end_offset == 0


def test_offset_is_patched_into_the_buffer_and_the_checksum_still_holds(log: PartitionLog) -> None:
    append(log, batch_of(b"a", b"b"))
    batch = batch_of(b"c", b"d")
    append(log, batch)
    header = validate(batch)
    assert (header.base_offset, header.last_offset) == (2, 3)
    assert bytes(log.read(2, 1)) == bytes(batch)


def test_buffer_belongs_to_the_caller_again_after_the_append(log: PartitionLog) -> None:
    received = bytearray(100) + batch_of(b"a") + bytearray(100)
    log.append([memoryview(received)[100:-100]])
    received[:] = b"x" * len(received)
    assert values_of(log) == [b"a"]


def test_batch_that_brings_an_offset_gets_the_next_one(log: PartitionLog) -> None:
    other = batch_of(b"a")
    other[7] = 99
    assert append(log, other) == [0]


# --- refusing


def flipped(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


def sealed_with(batch: bytearray, position: int, value: int) -> bytearray:
    batch[position] = value
    seal(batch)
    return batch


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        pytest.param(flipped(batch_of(b"a")), InvalidBatch, id="bad checksum"),
        pytest.param(batch_of(b"a")[:-1], InvalidBatch, id="cut"),
        pytest.param(batch_of(b"a") + b"x", InvalidBatch, id="bytes left over"),
        pytest.param(batch_of(b"a")[:60], InvalidBatch, id="cut header"),
        pytest.param(bytearray(), InvalidBatch, id="nothing"),
        pytest.param(sealed_with(batch_of(b"a"), MAGIC_AT, 1), InvalidBatch, id="old magic"),
        pytest.param(
            sealed_with(batch_of(b"a"), ATTRIBUTES_AT + 1, 7), UnsupportedCodec, id="unknown codec"
        ),
        pytest.param(batch_of(b"a" * 1000), MessageTooLarge, id="too large"),
        pytest.param(idempotent_batch(-1), InvalidBatch, id="producer without a sequence"),
    ],
)
def test_refused_batch_leaves_the_others_in_place(
    log: PartitionLog, batch: bytearray, error: type[MillstreamError]
) -> None:
    first, refused, last = log.append([batch_of(b"1"), bytearray(batch), batch_of(b"2")])
    assert (first, last) == (0, 1)
    assert isinstance(refused, error)
    assert values_of(log) == [b"1", b"2"]


def test_largest_batch_is_accepted_and_one_byte_more_is_not(log: PartitionLog) -> None:
    overhead = len(batch_of(b"a" * 900)) - 900
    largest = batch_of(b"a" * (1000 - overhead))
    assert len(largest) == 1000
    assert append(log, largest) == [0]
    too_large = refusal(log, batch_of(b"a" * (1001 - overhead)))
    assert isinstance(too_large, MessageTooLarge)
    assert (too_large.size_bytes, too_large.limit_bytes) == (1001, 1000)


# --- idempotence


def test_repeated_batch_is_answered_with_its_first_offset(log: PartitionLog) -> None:
    append(log, batch_of(b"other"))
    assert append(log, idempotent_batch(0, count=2), idempotent_batch(2)) == [1, 3]
    assert append(log, idempotent_batch(0, count=2)) == [1]
    assert append(log, idempotent_batch(2)) == [3]
    assert log.end_offset == 4


def test_batch_repeated_within_one_call_is_stored_once(log: PartitionLog) -> None:
    assert append(log, idempotent_batch(0), idempotent_batch(0), idempotent_batch(1)) == [0, 0, 1]
    assert log.end_offset == 2


def test_gap_in_the_sequence_is_refused_and_the_rest_appended(log: PartitionLog) -> None:
    outcomes = log.append([idempotent_batch(0), idempotent_batch(5), idempotent_batch(1)])
    assert (outcomes[0], outcomes[2]) == (0, 1)
    gap = outcomes[1]
    assert isinstance(gap, OutOfOrderSequence)
    assert (gap.producer_id, gap.expected, gap.actual) == (7, 1, 5)


def test_only_the_last_five_batches_can_be_repeated(log: PartitionLog) -> None:
    append(log, *(idempotent_batch(sequence) for sequence in range(6)))
    for sequence in range(1, 6):
        assert append(log, idempotent_batch(sequence)) == [sequence]
    assert isinstance(refusal(log, idempotent_batch(0)), OutOfOrderSequence)


def test_old_epoch_is_fenced(log: PartitionLog) -> None:
    append(log, idempotent_batch(0, epoch=1))
    fenced = refusal(log, idempotent_batch(1, epoch=0))
    assert isinstance(fenced, Fenced)
    assert (fenced.kind, fenced.identity) == ("producer", 7)
    assert (fenced.epoch, fenced.current_epoch) == (0, 1)


def test_new_epoch_begins_at_sequence_zero(log: PartitionLog) -> None:
    append(log, idempotent_batch(0), idempotent_batch(1))
    assert isinstance(refusal(log, idempotent_batch(2, epoch=1)), OutOfOrderSequence)
    assert append(log, idempotent_batch(0, epoch=1)) == [2]


def test_refused_batch_does_not_count_in_the_sequence(log: PartitionLog) -> None:
    append(log, idempotent_batch(0))
    assert isinstance(refusal(log, flipped(idempotent_batch(1))), InvalidBatch)
    assert append(log, idempotent_batch(1)) == [1]


def test_sequence_goes_on_at_zero_after_the_largest(log: PartitionLog) -> None:
    last = idempotent_batch(MAX_SEQUENCE - 1, count=4)
    assert append(log, last, idempotent_batch(2)) == [0, 4]
    assert append(log, idempotent_batch(MAX_SEQUENCE - 1, count=4)) == [0]


def test_producers_have_sequences_of_their_own(log: PartitionLog) -> None:
    append(log, idempotent_batch(0, producer=1), idempotent_batch(40, producer=2))
    assert append(log, idempotent_batch(1, producer=1), batch_of(b"plain")) == [2, 3]
    assert append(log, idempotent_batch(41, producer=2)) == [4]


# --- reading


def test_read_starts_with_the_batch_that_holds_the_offset(log: PartitionLog) -> None:
    fill(log, 30)
    for offset in range(log.end_offset):
        first = headers_in(log.read(offset, 1000))[0]
        assert first.base_offset <= offset <= first.last_offset
        assert records_in(log.read(offset, 1))[-1].offset == first.last_offset


@pytest.mark.parametrize("max_bytes", [0, 1, 61, 100, 200, 599, 1_000_000])
def test_reads_in_sequence_give_every_record_once(log: PartitionLog, max_bytes: int) -> None:
    fill(log, 30)
    records = read_all(log, max_bytes=max_bytes)
    assert [record.offset for record in records] == list(range(log.end_offset))
    assert [record.value for record in records] == [b"%d" % n for n in range(log.end_offset)]


def test_read_keeps_to_its_limit_but_gives_one_batch(log: PartitionLog) -> None:
    batch = batch_of(b"a")
    append(log, *(bytearray(batch) for _ in range(5)))
    size = len(batch)
    for max_bytes, expected in [
        (0, 1),
        (1, 1),
        (size - 1, 1),
        (size, 1),
        (2 * size - 1, 1),
        (2 * size, 2),
        (3 * size + 1, 3),
    ]:
        assert len(log.read(1, max_bytes)) == expected * size


def test_read_at_the_end_is_empty(log: PartitionLog) -> None:
    fill(log, 5)
    assert len(log.read(log.end_offset, 1000)) == 0


@pytest.mark.parametrize("beyond", [-1, 10, 1000])
def test_read_outside_the_log_says_where_it_is(log: PartitionLog, beyond: int) -> None:
    append(log, *(batch_of(b"a") for _ in range(9)))
    log.delete_records(2)
    with pytest.raises(OffsetOutOfRange) as failure:
        log.read(beyond, 1000)
    assert failure.value.offset == beyond
    assert (failure.value.start_offset, failure.value.end_offset) == (2, 9)


def test_what_was_read_stays_as_it_was(log: PartitionLog) -> None:
    fill(log, 30)
    views = [log.read(offset, 300) for offset in range(0, log.end_offset, 3)]
    contents = [bytes(view) for view in views]
    fill(log, 30)
    sync(log)
    log.delete_records(log.end_offset)
    log.close()
    assert [bytes(view) for view in views] == contents


def test_read_view_cannot_be_written(log: PartitionLog) -> None:
    append(log, batch_of(b"a"))
    assert log.read(0, 1000).readonly


# --- times


def test_first_record_at_or_after_a_time(log: PartitionLog) -> None:
    append(log, timed_batch(100, 110), timed_batch(120), timed_batch(130, 140, 150))
    for timestamp_ms, offset, found_ms in [
        (0, 0, 100),
        (100, 0, 100),
        (101, 1, 110),
        (111, 2, 120),
        (130, 3, 130),
        (131, 4, 140),
        (150, 5, 150),
    ]:
        assert log.offset_for_time(timestamp_ms) == TimedOffset(offset, found_ms)
    assert log.offset_for_time(151) is None


def test_times_out_of_order_give_the_first_record_in_the_log(log: PartitionLog) -> None:
    append(
        log, timed_batch(100, 300, 200), timed_batch(150), timed_batch(400, 50), timed_batch(250)
    )
    expected = {0: 0, 101: 1, 250: 1, 300: 1, 301: 4, 400: 4}
    for timestamp_ms, offset in expected.items():
        found = log.offset_for_time(timestamp_ms)
        assert found is not None
        assert found.offset == offset
    assert log.offset_for_time(401) is None


@pytest.mark.parametrize("codec", list(Codec))
def test_time_is_exact_inside_a_batch_of_any_codec(log: PartitionLog, codec: Codec) -> None:
    append(log, timed_batch(*range(100, 200, 10), codec=codec))
    append(log, timed_batch(*range(200, 300, 10), codec=codec))
    assert log.offset_for_time(145) == TimedOffset(5, 150)
    assert log.offset_for_time(200) == TimedOffset(10, 200)
    assert log.offset_of_max_timestamp() == TimedOffset(19, 290)


def test_time_lookup_agrees_with_reading_everything(log: PartitionLog) -> None:
    for number in range(40):
        base = 1000 + 10 * number
        append(log, timed_batch(base, base - 37 * (number % 4), base + 55 * (number % 3)))
    records = read_all(log)
    for timestamp_ms in range(850, 1600, 7):
        assert log.offset_for_time(timestamp_ms) == first_at(records, timestamp_ms)


def test_append_time_is_the_time_of_every_record(log: PartitionLog) -> None:
    batch = timed_batch(100, 200)
    stamp_append_time(batch, 5000)
    append(log, batch)
    assert log.offset_for_time(300) == TimedOffset(0, 5000)
    assert log.offset_of_max_timestamp() == TimedOffset(0, 5000)


def test_earliest_of_the_newest_records_is_found(log: PartitionLog) -> None:
    append(log, timed_batch(100, 300), timed_batch(300, 200), timed_batch(50))
    assert log.offset_of_max_timestamp() == TimedOffset(1, 300)
    append(log, timed_batch(40, 301, 60, 301))
    assert log.offset_of_max_timestamp() == TimedOffset(6, 301)


def test_deleted_records_have_no_time(log: PartitionLog) -> None:
    append(log, timed_batch(900, 100, 200), timed_batch(300), timed_batch(150, 50))
    log.delete_records(1)
    assert log.offset_for_time(0) == TimedOffset(1, 100)
    assert log.offset_for_time(301) is None
    assert log.offset_of_max_timestamp() == TimedOffset(3, 300)
    log.delete_records(5)
    assert log.offset_for_time(51) is None
    assert log.offset_of_max_timestamp() == TimedOffset(5, 50)
    log.delete_records(6)
    assert log.offset_of_max_timestamp() is None


# --- deleting


def test_deleted_records_are_out_of_range(log: PartitionLog) -> None:
    append(log, batch_of(b"a", b"b", b"c"), batch_of(b"d"), batch_of(b"e"))
    assert log.delete_records(4) == 4
    assert (log.start_offset, log.end_offset) == (4, 5)
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 1000)
    assert values_of(log) == [b"e"]


def test_batch_that_is_deleted_in_part_is_still_read_whole(log: PartitionLog) -> None:
    append(log, batch_of(b"a", b"b", b"c"), batch_of(b"d"))
    assert log.delete_records(1) == 1
    assert headers_in(log.read(1, 1))[0].base_offset == 0
    assert values_of(log) == [b"b", b"c", b"d"]


def test_start_never_moves_back(log: PartitionLog) -> None:
    fill(log, 10)
    assert log.delete_records(5) == 5
    assert log.delete_records(3) == 5
    assert log.start_offset == 5


def test_log_emptied_by_deletion_goes_on_at_its_end(log: PartitionLog) -> None:
    fill(log, 20)
    end_offset = log.end_offset
    assert log.delete_records(end_offset) == end_offset
    assert len(log.read(end_offset, 1000)) == 0
    assert append(log, batch_of(b"next")) == [end_offset]
    assert values_of(log) == [b"next"]


@pytest.mark.parametrize("before_offset", [-1, 7])
def test_only_what_is_in_the_log_can_be_deleted(log: PartitionLog, before_offset: int) -> None:
    fill(log, 3)  # 6 records
    with pytest.raises(OffsetOutOfRange) as failure:
        log.delete_records(before_offset)
    assert (failure.value.offset, failure.value.end_offset) == (before_offset, 6)
    assert log.start_offset == 0


def test_producer_is_remembered_when_its_records_are_deleted(log: PartitionLog) -> None:
    append(log, idempotent_batch(0), idempotent_batch(1))
    log.delete_records(2)
    assert append(log, idempotent_batch(1)) == [1]
    assert isinstance(refusal(log, idempotent_batch(5)), OutOfOrderSequence)


# --- truncating


@pytest.mark.parametrize("end_offset", range(18))
def test_truncation_drops_whole_batches_and_the_log_goes_on(
    log: PartitionLog, end_offset: int
) -> None:
    fill(log, 9)  # 18 records
    sync(log)
    ends = accumulate((1, 2, 3) * 3)
    expected = max((end for end in ends if end <= end_offset), default=0)
    log.truncate(end_offset)
    assert log.end_offset == expected
    assert log.synced_offset <= expected
    assert values_of(log) == [b"%d" % n for n in range(expected)]
    assert append(log, batch_of(b"x", b"y")) == [expected]
    assert values_of(log)[-2:] == [b"x", b"y"]


@pytest.mark.parametrize("past", [0, 1, 1000])
def test_truncation_at_or_past_the_end_changes_nothing(log: PartitionLog, past: int) -> None:
    fill(log, 9)
    log.truncate(18 + past)
    assert log.end_offset == 18
    assert len(read_all(log)) == 18


def test_truncated_batches_are_not_found_by_time(log: PartitionLog) -> None:
    append(log, timed_batch(100), timed_batch(200), timed_batch(300))
    log.truncate(2)
    assert log.offset_for_time(201) is None
    assert log.offset_of_max_timestamp() == TimedOffset(1, 200)
    append(log, timed_batch(50))
    assert log.offset_for_time(201) is None


def test_truncated_batch_of_a_producer_is_new_again(log: PartitionLog) -> None:
    append(log, *(idempotent_batch(sequence) for sequence in range(10)))
    log.truncate(4)
    assert append(log, idempotent_batch(3)) == [3]
    assert isinstance(refusal(log, idempotent_batch(9)), OutOfOrderSequence)
    assert append(log, *(idempotent_batch(sequence) for sequence in range(4, 10))) == [
        *range(4, 10)
    ]


def test_truncation_unfences_an_epoch_that_was_never_seen(log: PartitionLog) -> None:
    append(log, idempotent_batch(0), idempotent_batch(0, epoch=1))
    log.truncate(1)
    assert append(log, idempotent_batch(1)) == [1]
