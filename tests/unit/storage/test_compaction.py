"""What compaction keeps, what it lets go of, and when."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.records import BatchHeader, Codec, stamp_append_time
from millstream.storage.compaction import install
from millstream.storage.partition_log import TimedOffset
from millstream.storage.segment import SegmentState
from tests.fakes.keyed_log import (
    COMPACTED,
    DELETE_RETENTION_MS,
    SEGMENT_MS,
    KeyedLog,
    Pair,
    keyed_batch,
)
from tests.fakes.log_steps import append, first_at
from tests.fakes.sample_batches import START_MS, headers_in

# Room for a single key.
ONE_KEY = 1

INDEXES = (".index", ".timeindex")


@pytest.fixture
def keyed(tmp_path: Path) -> KeyedLog:
    return KeyedLog(str(tmp_path / "users-0"))


def segment_ranges(keyed: KeyedLog) -> list[tuple[int, int]]:
    return [(s.base_offset, s.next_offset) for s in keyed.log.segments()]


def all_headers(keyed: KeyedLog) -> list[BatchHeader]:
    headers: list[BatchHeader] = []
    while view := keyed.log.read(headers[-1].next_offset if headers else 0, 5000):
        headers += headers_in(view)
    return headers


# --- which records stay


def test_newest_record_of_each_key_stays_at_its_offset(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    keyed.put_segment((b"c", b"1"), (b"b", b"2"))
    keyed.compact()
    assert [(r.offset, r.key, r.value) for r in keyed.records()] == [
        (2, b"a", b"2"),
        (3, b"c", b"1"),
        (4, b"b", b"2"),
    ]


def test_records_that_are_compacted_already_give_way_to_newer_ones(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", b"1"))
    keyed.compact()
    keyed.put_segment((b"a", b"2"))
    keyed.compact()
    keyed.put_segment((b"a", b"3"))
    keyed.compact()
    assert keyed.pairs() == [(b"b", b"1"), (b"a", b"3")]


def test_active_and_unsynced_segments_are_left_alone(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", b"1"))
    keyed.put((b"a", b"2"), (b"a", b"3"))
    keyed.clock.advance_ms(SEGMENT_MS)
    keyed.log.roll_if_due()
    keyed.put((b"b", b"2"))
    assert [s.state for s in keyed.log.segments()][1:] == [SegmentState.FULL, SegmentState.ACTIVE]
    keyed.compact()
    assert keyed.offsets() == [0, 1, 2, 3, 4]
    keyed.log.sync()
    keyed.compact()
    assert keyed.offsets() == [1, 3, 4]


@pytest.mark.parametrize("codec", list(Codec))
def test_packed_batch_is_packed_again(keyed: KeyedLog, codec: Codec) -> None:
    pairs: list[Pair] = [(b"key %d" % (n % 7), b"value %d" % n * 9) for n in range(30)]
    append(keyed.log, keyed_batch(*pairs, codec=codec))
    keyed.archive()
    keyed.compact()
    assert keyed.pairs() == pairs[-7:]
    (header,) = headers_in(keyed.log.read(0, 5000))
    assert header.codec is codec
    assert (header.base_offset, header.last_offset, header.records_count) == (0, 29, 7)


def test_batch_that_stays_whole_is_copied_as_it_is(keyed: KeyedLog) -> None:
    kept = keyed_batch((b"a", b"1"), (b"b", b"1"), codec=Codec.ZSTD)
    append(keyed.log, keyed_batch((b"a", b"0")), kept)
    keyed.archive()
    keyed.compact()
    assert bytes(keyed.log.read(0, 5000)) == bytes(kept)


def test_empty_and_long_keys_are_keys(keyed: KeyedLog) -> None:
    long, longer = b"k" * 1000, b"k" * 1001
    keyed.put_segment((b"", b"1"), (long, b"1"), (longer, b"1"), (b"", b"2"), (long, b"2"))
    keyed.compact()
    assert keyed.pairs() == [(longer, b"1"), (b"", b"2"), (long, b"2")]


def test_record_without_a_key_stays(keyed: KeyedLog) -> None:
    keyed.put_segment((None, b"1"), (b"a", b"1"), (None, None))
    keyed.put_segment((b"a", b"2"))
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.put_segment((b"b", b"1"))
    keyed.compact()
    assert keyed.pairs() == [(None, b"1"), (None, None), (b"a", b"2"), (b"b", b"1")]


def test_time_of_append_stays(keyed: KeyedLog) -> None:
    batch = keyed_batch((b"a", b"1"), (b"b", b"1"), timestamps_ms=[5, 6])
    stamp_append_time(batch, START_MS + 9)
    append(keyed.log, batch)
    keyed.put_segment((b"b", b"2"))
    keyed.compact()
    assert [r.timestamp_ms for r in keyed.records()] == [START_MS + 9, START_MS]


# --- tombstones


def test_tombstone_stays_for_its_time_and_goes_then(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", b"1"))
    keyed.put_segment((b"a", None))
    keyed.put((b"z", b"1"))
    keyed.compact()
    assert keyed.pairs() == [(b"b", b"1"), (b"a", None), (b"z", b"1")]
    keyed.clock.advance_ms(DELETE_RETENTION_MS - 1)
    assert keyed.plan() is None
    keyed.clock.advance_ms(1)
    keyed.compact()
    assert keyed.pairs() == [(b"b", b"1"), (b"z", b"1")]
    assert keyed.plan() is None


def test_each_tombstone_counts_from_the_first_pass_over_it(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", None))
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS // 2)
    keyed.put_segment((b"b", None))
    keyed.put((b"z", b"1"))
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS // 2)
    keyed.compact()
    assert keyed.pairs() == [(b"b", None), (b"z", b"1")]
    keyed.reopen()
    keyed.clock.advance_ms(DELETE_RETENTION_MS // 2)
    keyed.compact()
    assert keyed.pairs() == [(b"z", b"1")]


def test_tombstone_is_never_gone_before_what_it_deletes(keyed: KeyedLog) -> None:
    keyed.reopen(replace(COMPACTED, delete_retention_ms=0))
    keyed.put_segment((b"a", b"1"))
    keyed.put_segment((b"a", None))
    keyed.put((b"z", b"1"))
    keyed.compact_once()
    assert keyed.pairs() == [(b"a", None), (b"z", b"1")]
    keyed.compact_once()
    assert keyed.pairs() == [(b"z", b"1")]


def test_last_batch_stays_until_something_follows_it(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", b"1"))
    keyed.put_segment((b"b", b"2"), (b"b", None))
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    assert keyed.pairs() == [(b"a", b"1"), (b"b", None)]
    assert keyed.plan() is None
    keyed.reopen()
    keyed.put_segment((b"c", b"1"))
    keyed.compact()
    assert keyed.pairs() == [(b"a", b"1"), (b"c", b"1")]


def test_lost_state_keeps_tombstones_for_longer(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", None), (b"b", b"1"))
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    Path(keyed.directory, "cleaning-state").unlink()
    keyed.compact()
    assert keyed.pairs() == [(b"a", None), (b"b", b"1")]
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    assert keyed.pairs() == [(b"b", b"1")]


def test_segment_of_tombstones_alone_ends_up_empty(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"))
    keyed.put_segment((b"a", None))
    keyed.put((b"b", b"1"))
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    for _ in range(2):
        assert keyed.pairs() == [(b"b", b"1")]
        assert (keyed.log.start_offset, keyed.log.end_offset) == (0, 3)
        assert keyed.log.offset_for_time(0) == TimedOffset(2, START_MS)
        keyed.reopen()
    keyed.reopen_after_kill()
    assert keyed.pairs() == [(b"b", b"1")]


# --- when it runs


def test_log_that_is_only_deleted_from_is_not_compacted(keyed: KeyedLog) -> None:
    keyed.reopen(replace(COMPACTED, cleanup_policy=frozenset({"delete"})))
    keyed.put_segment((b"a", b"1"), (b"a", b"2"))
    assert keyed.plan() is None


def test_log_is_compacted_when_enough_of_it_is_dirty(keyed: KeyedLog) -> None:
    keyed.reopen(replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
    keyed.put_segment(*((b"%d" % n, b"v") for n in range(40)))
    keyed.compact()
    keyed.put_segment(*((b"%d" % n, b"w") for n in range(20)))
    assert keyed.plan() is None
    keyed.put_segment(*((b"%d" % n, b"x") for n in range(20)))
    keyed.compact()
    assert keyed.offsets() == [*range(20, 40), *range(60, 80)]


def test_ratio_of_zero_does_not_compact_what_is_clean(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"))
    keyed.compact()
    assert keyed.plan() is None


def test_young_records_are_not_compacted(keyed: KeyedLog) -> None:
    keyed.reopen(replace(COMPACTED, min_compaction_lag_ms=10_000))
    for number in range(3):
        now_ms = keyed.clock.now_ms()
        append(keyed.log, keyed_batch((b"a", b"%d" % number), timestamps_ms=[now_ms]))
        keyed.archive()
    assert keyed.plan() is None
    keyed.clock.advance_ms(10_000 - 2 * SEGMENT_MS)
    keyed.compact()
    assert keyed.offsets() == [1, 2]
    keyed.clock.advance_ms(SEGMENT_MS)
    keyed.reopen()
    keyed.compact()
    assert keyed.offsets() == [2]


def test_records_without_a_time_are_as_old_as_their_segment(keyed: KeyedLog) -> None:
    keyed.reopen(replace(COMPACTED, min_compaction_lag_ms=10_000))
    append(keyed.log, keyed_batch((b"a", b"1"), (b"a", b"2"), timestamps_ms=[-1, -1]))
    keyed.archive()
    assert keyed.plan() is None
    keyed.clock.advance_ms(10_000)
    keyed.compact()
    assert keyed.offsets() == [1]


def test_second_plan_waits_for_the_first(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"a", b"2"))
    plan = keyed.sure_plan()
    assert keyed.plan() is None
    install(keyed.log, plan, plan.run())
    assert keyed.plan() is None
    keyed.put_segment((b"a", b"3"))
    assert keyed.plan() is not None


# --- memory


@pytest.mark.parametrize("buffer_bytes", [ONE_KEY, 400, 1000, 1 << 20])
def test_small_memory_takes_more_passes_to_the_same_end(keyed: KeyedLog, buffer_bytes: int) -> None:
    for number in range(6):
        keyed.put((b"%d" % (number % 4), b"v%d" % number), (b"x", None), (b"%d" % number, b"w"))
        if number % 2:
            keyed.archive()
    keyed.compact(buffer_bytes=buffer_bytes)
    assert keyed.offsets() == [8, 11, 12, 14, 15, 16, 17]


def test_round_of_passes_goes_on_whatever_the_ratio(keyed: KeyedLog) -> None:
    keyed.reopen(replace(COMPACTED, min_cleanable_dirty_ratio=1.0))
    keyed.put_segment((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2"))
    plan = keyed.sure_plan(buffer_bytes=ONE_KEY)
    result = plan.run()
    assert not result.is_finished
    assert result.key_count == 1
    install(keyed.log, plan, result)
    keyed.reopen()
    keyed.compact(buffer_bytes=ONE_KEY)
    assert keyed.offsets() == [2, 3]


# --- segments


def test_small_neighbours_become_one_segment(keyed: KeyedLog) -> None:
    for number in range(6):
        keyed.put_segment((b"a", b"%d" % number), (b"%d" % number, b"v"))
    keyed.compact()
    assert segment_ranges(keyed) == [(0, 12), (12, 12)]
    assert keyed.offsets() == [1, 3, 5, 7, 9, 10, 11]


def test_segments_grow_no_larger_than_they_may(keyed: KeyedLog) -> None:
    keyed.reopen(replace(COMPACTED, segment_bytes=1000))
    for number in range(12):
        keyed.put_segment((b"a", b"x" * 100), (b"%d" % number, b"y" * 200))
    keyed.compact()
    assert all(segment.size <= 1000 for segment in keyed.log.segments())
    assert 3 < len(keyed.log.segments()) <= 7
    assert keyed.offsets() == [*range(1, 22, 2), 22, 23]


def test_segment_that_stays_whole_is_not_written_again(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"))
    keyed.put_segment((b"b", b"1"))
    before = [(Path(s.log_path).stat().st_ino, s.size) for s in keyed.log.segments()]
    assert keyed.compact_once() == []
    assert [(Path(s.log_path).stat().st_ino, s.size) for s in keyed.log.segments()] == before
    assert keyed.plan() is None


def test_many_small_segments_are_merged_though_all_records_stay(keyed: KeyedLog) -> None:
    for number in range(20):
        keyed.put_segment((b"%d" % number, b"v"))
    keyed.compact()
    assert segment_ranges(keyed) == [(0, 20), (20, 20)]
    assert keyed.offsets() == list(range(20))


def test_index_of_a_compacted_segment_is_what_a_scan_would_give(keyed: KeyedLog) -> None:
    for number in range(40):
        keyed.put((b"%d" % (number % 9), b"v" * number), (b"%d" % number, b"w"))
        if number % 10 == 9:
            keyed.archive()
    keyed.compact()
    paths = [Path(s.stem + suffix) for s in keyed.log.segments()[:-1] for suffix in INDEXES]
    written = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    keyed.reopen()
    assert [path.read_bytes() for path in paths] == written


def test_every_offset_can_be_read_from_across_gaps(keyed: KeyedLog) -> None:
    for number in range(60):
        keyed.put((b"%d" % (number % 7), b"v" * (number % 50)), (b"%d" % (number % 31), b"w"))
        if number % 9 == 8:
            keyed.archive()
    keyed.compact()
    for _ in range(2):
        batches = all_headers(keyed)
        for offset in range(keyed.log.end_offset):
            (found, *_) = headers_in(keyed.log.read(offset, 1))
            assert found == next(header for header in batches if header.last_offset >= offset)
        keyed.reopen_after_kill()


def test_records_are_found_by_their_time(keyed: KeyedLog) -> None:
    times_ms = [START_MS + (n * 37) % 50 for n in range(50)]
    for first in range(0, 50, 5):
        pairs: list[Pair] = [(b"%d" % (n % 13), b"v") for n in range(first, first + 5)]
        batch = keyed_batch(*pairs, timestamps_ms=times_ms[first : first + 5])
        append(keyed.log, batch)
        if first % 15 == 10:
            keyed.archive()
    keyed.compact()
    for _ in range(2):
        records = keyed.records()
        for time_ms in range(START_MS - 1, START_MS + 52):
            assert keyed.log.offset_for_time(time_ms) == first_at(records, time_ms)
        latest_ms = max(record.timestamp_ms for record in records)
        assert keyed.log.offset_of_max_timestamp() == first_at(records, latest_ms)
        keyed.reopen()


# --- beside other work


def test_log_is_used_while_a_plan_runs(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", b"1"))
    keyed.put_segment((b"a", b"2"))
    with ThreadPoolExecutor(1) as worker:
        plan = keyed.sure_plan()
        running = worker.submit(plan.run)
        keyed.put_segment((b"a", b"3"))
        keyed.put((b"b", b"2"))
        assert keyed.offsets() == [0, 1, 2, 3, 4]
        result = running.result()
    keyed.put((b"c", b"1"))
    install(keyed.log, plan, result)
    assert keyed.offsets() == [1, 2, 3, 4, 5]
    assert segment_ranges(keyed) == [(0, 3), (3, 4), (4, 6)]


def test_reader_of_a_replaced_segment_finishes(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"a", b"2"))
    view = keyed.log.read(0, 5000)
    before = bytes(view)
    for path in keyed.compact_once():
        Path(path).unlink(missing_ok=True)
    assert bytes(view) == before
    assert keyed.offsets() == [1]


def test_replaced_files_are_left_to_be_removed(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"))
    keyed.put_segment((b"a", b"2"))
    paths = keyed.compact_once()
    deleted = [name for name in keyed.names() if name.endswith(".deleted")]
    assert len(deleted) == 6
    assert set(deleted) <= {Path(path).name for path in paths}
    assert not [name for name in keyed.names() if "cleaned" in name or "swap" in name]


def test_retention_spares_segments_that_are_being_compacted(keyed: KeyedLog) -> None:
    both = frozenset({"compact", "delete"})
    keyed.reopen(replace(COMPACTED, cleanup_policy=both, retention_ms=50_000))
    keyed.put_segment((b"a", b"1"), (b"b", b"1"))
    keyed.put_segment((b"a", b"2"))
    plan = keyed.sure_plan()
    result = plan.run()
    keyed.clock.advance_ms(60_000)
    assert keyed.log.expire() == []
    install(keyed.log, plan, result)
    assert keyed.offsets() == [1, 2]
    assert keyed.log.expire() != []
    assert keyed.offsets() == []
    assert keyed.log.start_offset == 3


def test_deleted_records_stay_deleted(keyed: KeyedLog) -> None:
    keyed.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    keyed.put_segment((b"a", b"2"))
    keyed.log.delete_records(2)
    keyed.compact()
    for _ in range(2):
        assert keyed.log.start_offset == 2
        assert keyed.offsets() == [2, 3]
        keyed.reopen()


def test_truncated_log_is_compacted_again_from_there(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", None))
    keyed.put_segment((b"a", b"2"))
    keyed.put_segment((b"c", b"1"))
    keyed.compact()
    keyed.log.truncate(3)
    assert keyed.pairs() == [(b"b", None), (b"a", b"2")]
    keyed.put_segment((b"a", b"3"), (b"d", None))
    keyed.compact()
    assert keyed.pairs() == [(b"b", None), (b"a", b"3"), (b"d", None)]
    keyed.clock.advance_ms(DELETE_RETENTION_MS - SEGMENT_MS)
    keyed.compact()
    assert keyed.pairs() == [(b"a", b"3"), (b"d", None)]
