"""What every storage engine promises about syncs, stops and crashes.

The second half of the contract of `PartitionLog`; the first is in test_partition_log_contract.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from millstream.errors import Conflict, DiskFull, OutOfOrderSequence, StorageFailure
from millstream.storage.partition_log import PartitionLog
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash
from tests.fakes.log_engines import ENGINES, FAULTY_ENGINES, LogEngine
from tests.fakes.log_steps import SMALL_SEGMENTS, append, fill, first_at, sync
from tests.fakes.sample_batches import batch_of, idempotent_batch, read_all, timed_batch, values_of

MODES: tuple[CrashMode, ...] = ("kept", "lost", "torn")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> LogEngine:
    return ENGINES[request.param](tmp_path)


@pytest.fixture
def log(engine: LogEngine) -> Iterator[PartitionLog]:
    log = engine.open(SMALL_SEGMENTS)
    yield log
    log.close()


@pytest.fixture(params=ENGINES)
def kept_engine(request: pytest.FixtureRequest, tmp_path: Path) -> LogEngine:
    return ENGINES[request.param](tmp_path)


@pytest.fixture(params=FAULTY_ENGINES)
def faulty_engine(request: pytest.FixtureRequest, tmp_path: Path) -> LogEngine:
    return ENGINES[request.param](tmp_path)


# --- syncing


def test_synced_offset_moves_when_a_sync_is_finished(log: PartitionLog) -> None:
    fill(log, 20)
    end_offset = log.end_offset
    assert log.synced_offset < end_offset
    task = log.begin_sync()
    assert task.target_offset == end_offset
    fill(log, 20)
    task.run()
    assert log.synced_offset < end_offset
    log.finish_sync(task, None)
    assert end_offset <= log.synced_offset < log.end_offset
    sync(log)
    assert log.synced_offset == log.end_offset


def test_syncs_finish_in_any_order(log: PartitionLog) -> None:
    fill(log, 20)
    first = log.begin_sync()
    fill(log, 20)
    second = log.begin_sync()
    second.run()
    first.run()
    log.finish_sync(second, None)
    log.finish_sync(first, None)
    assert log.synced_offset == log.end_offset


def test_sync_of_nothing_changes_nothing(log: PartitionLog) -> None:
    sync(log)
    assert log.synced_offset == 0


def test_truncation_is_refused_while_a_sync_is_under_way(log: PartitionLog) -> None:
    """The sync would vouch for what is appended in place of what was dropped."""
    fill(log, 9)
    task = log.begin_sync()
    with pytest.raises(Conflict):
        log.truncate(3)
    assert log.end_offset == 18
    task.run()
    log.finish_sync(task, None)
    log.truncate(3)
    assert log.synced_offset == log.end_offset == 3


def test_failed_sync_stops_the_log_for_good(log: PartitionLog) -> None:
    append(log, batch_of(b"a"))
    sync(log)
    append(log, batch_of(b"b"))
    early, failed = log.begin_sync(), log.begin_sync()
    log.finish_sync(failed, OSError(5, "Input/output error"))
    outcomes = log.append([batch_of(b"c"), batch_of(b"d")])
    assert [type(outcome) for outcome in outcomes] == [StorageFailure, StorageFailure]
    log.finish_sync(early, None)
    assert log.synced_offset == 1
    assert log.end_offset == 2
    assert values_of(log) == [b"a", b"b"]


# --- stopping


def test_log_is_closed_twice(log: PartitionLog) -> None:
    fill(log, 20)
    log.close()
    log.close()


def test_reopened_log_is_as_it_was(kept_engine: LogEngine) -> None:
    log = kept_engine.open(SMALL_SEGMENTS)
    fill(log, 30)
    append(log, idempotent_batch(0), idempotent_batch(1), timed_batch(100, 5, 300))
    log.delete_records(7)
    records, newest = read_all(log), log.offset_of_max_timestamp()
    log.close()
    again = kept_engine.open(SMALL_SEGMENTS)
    assert (again.start_offset, again.end_offset) == (7, log.end_offset)
    assert again.synced_offset == again.end_offset
    assert read_all(again) == records
    assert again.offset_of_max_timestamp() == newest
    assert again.offset_for_time(101) == first_at(records, 101)
    assert append(again, idempotent_batch(0), idempotent_batch(2)) == [60, 65]
    again.close()


def test_reopened_log_goes_on_after_truncation(kept_engine: LogEngine) -> None:
    log = kept_engine.open(SMALL_SEGMENTS)
    fill(log, 30)
    log.truncate(31)
    records = read_all(log)
    log.close()
    again = kept_engine.open(SMALL_SEGMENTS)
    assert read_all(again) == records
    assert append(again, batch_of(b"next")) == [records[-1].offset + 1]
    again.close()


# --- crashing


def after_crash(engine: LogEngine, mode: CrashMode, seed: int = 0) -> PartitionLog:
    return engine.after_crash(mode, seed).open(SMALL_SEGMENTS)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(10))
def test_synced_batches_survive_a_crash(
    faulty_engine: LogEngine, mode: CrashMode, seed: int
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    fill(log, 20)
    sync(log)
    fill(log, 10)
    before, synced_offset = read_all(log), log.synced_offset
    found = after_crash(faulty_engine, mode, seed)
    assert synced_offset <= found.end_offset <= len(before)
    assert read_all(found) == before[: found.end_offset]
    assert append(found, batch_of(b"next")) == [found.end_offset - 1]


@pytest.mark.parametrize("mode", MODES)
def test_closed_log_survives_a_crash_whole(faulty_engine: LogEngine, mode: CrashMode) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    fill(log, 20)
    log.close()
    found = after_crash(faulty_engine, mode)
    assert [record.offset for record in read_all(found)] == list(range(log.end_offset))


@pytest.mark.parametrize("batches", [3, 20])
def test_what_recovery_calls_synced_survives_the_next_crash(
    faulty_engine: LogEngine, batches: int
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    fill(log, batches)
    second_engine = faulty_engine.after_crash("kept", 0)
    kept = second_engine.open(SMALL_SEGMENTS)
    assert values_of(kept) == values_of(log)
    found = after_crash(second_engine, "lost")
    assert values_of(found)[: kept.synced_offset] == values_of(log)[: kept.synced_offset]


@pytest.mark.parametrize("operation", range(1, 40))
def test_sync_covers_what_a_process_before_left_unsynced(
    faulty_engine: LogEngine, operation: int
) -> None:
    faulty_engine.crash_at(operation)
    with suppress(Crash):
        log = faulty_engine.open(SMALL_SEGMENTS)
        fill(log, 9)
        sync(log)
        log.close()
    second_engine = faulty_engine.after_crash("kept", 0)
    second = second_engine.open(SMALL_SEGMENTS)
    append(second, batch_of(b"acknowledged"))
    sync(second)
    assert values_of(after_crash(second_engine, "lost")) == values_of(second)


def test_sync_vouches_only_for_what_has_reached_the_disk(faulty_engine: LogEngine) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    fill(log, 2)
    log.begin_sync()  # under way in another thread, and slow
    overlapping = log.begin_sync()
    overlapping.run()
    log.finish_sync(overlapping, None)
    found = after_crash(faulty_engine, "lost")
    assert values_of(found)[: log.synced_offset] == values_of(log)[: log.synced_offset]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(10))
def test_deleted_records_stay_deleted_after_a_crash(
    faulty_engine: LogEngine, mode: CrashMode, seed: int
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    fill(log, 20)
    sync(log)
    log.delete_records(17)
    assert after_crash(faulty_engine, mode, seed).start_offset == 17


def test_deletion_of_what_a_crash_took_away_does_not_reach_later_records(
    faulty_engine: LogEngine,
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    append(log, batch_of(b"a"))
    sync(log)
    fill(log, 20)
    log.delete_records(log.end_offset)
    second_engine = faulty_engine.after_crash("lost", 0)
    found = second_engine.open(SMALL_SEGMENTS)
    (offset,) = append(found, batch_of(b"acknowledged"))
    sync(found)
    again = after_crash(second_engine, "lost")
    assert again.start_offset <= offset < again.end_offset
    assert values_of(again)[-1] == b"acknowledged"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(10))
def test_truncated_batches_stay_dropped_after_a_crash(
    faulty_engine: LogEngine, mode: CrashMode, seed: int
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    fill(log, 20)
    sync(log)
    faulty_engine.note_checkpoint()
    log.truncate(17)
    end_offset = log.end_offset
    found = after_crash(faulty_engine, mode, seed)
    assert found.end_offset == end_offset
    assert values_of(found) == [b"%d" % n for n in range(end_offset)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(10))
def test_appends_after_a_truncation_survive_a_crash_once_synced(
    faulty_engine: LogEngine, mode: CrashMode, seed: int
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    fill(log, 20)
    sync(log)
    faulty_engine.note_checkpoint()
    log.truncate(17)
    append(log, batch_of(b"x", b"y"), batch_of(b"z"))
    sync(log)
    expected = values_of(log)
    assert values_of(after_crash(faulty_engine, mode, seed)) == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(5))
def test_producer_is_remembered_after_a_crash(
    faulty_engine: LogEngine, mode: CrashMode, seed: int
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    append(log, *(idempotent_batch(sequence) for sequence in range(12)))
    sync(log)
    found = after_crash(faulty_engine, mode, seed)
    assert found.end_offset == 12
    for sequence in range(7, 12):
        assert append(found, idempotent_batch(sequence)) == [sequence]
    assert append(found, idempotent_batch(12)) == [12]


# --- running out of space


def test_full_disk_refuses_batches_and_takes_them_when_space_returns(
    faulty_engine: LogEngine,
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    append(log, idempotent_batch(0))
    faulty_engine.leave_space(0)
    batches = [batch_of(b"x" * 600), idempotent_batch(1), idempotent_batch(1), idempotent_batch(2)]
    for _ in range(3):
        for outcome in log.append([bytearray(batch) for batch in batches]):
            assert isinstance(outcome, DiskFull | OutOfOrderSequence)
    assert log.end_offset == 1
    assert append(log, idempotent_batch(0)) == [0]
    assert values_of(log) == [b"sequence 0"]
    faulty_engine.leave_space(None)
    assert append(log, *batches) == [1, 2, 2, 3]
    sync(log)
    assert log.synced_offset == 4


def test_full_disk_refuses_more_batches_than_fit_a_segment(faulty_engine: LogEngine) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    faulty_engine.leave_space(0)
    outcomes = log.append([batch_of(b"x" * 400) for _ in range(4)])
    assert [type(outcome) for outcome in outcomes] == [DiskFull] * 4
    faulty_engine.leave_space(None)
    assert append(log, *(batch_of(b"%d" % n * 400) for n in range(4))) == [0, 1, 2, 3]
    log.close()
    assert values_of(faulty_engine.open(SMALL_SEGMENTS)) == [b"%d" % n * 400 for n in range(4)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(5))
def test_batches_refused_by_a_full_disk_are_not_found_after_a_crash(
    faulty_engine: LogEngine, mode: CrashMode, seed: int
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    append(log, batch_of(b"a"))
    faulty_engine.leave_space(0)
    outcomes = log.append([batch_of(b"1"), batch_of(b"2"), batch_of(b"x" * 300)])
    assert isinstance(outcomes[-1], DiskFull)
    faulty_engine.leave_space(None)
    append(log, batch_of(b""))
    sync(log)
    expected = values_of(log)
    assert values_of(after_crash(faulty_engine, mode, seed)) == expected


def test_batch_refused_by_a_full_disk_does_not_take_the_place_of_a_later_one(
    faulty_engine: LogEngine,
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    append(log, batch_of(b"a"))
    sync(log)
    faulty_engine.leave_space(0)
    outcomes = log.append([batch_of(b"refused"), batch_of(b"x" * 380)])
    assert [type(outcome) for outcome in outcomes] == [DiskFull, DiskFull]
    faulty_engine.leave_space(None)
    append(log, batch_of(b"later"))
    for seed in range(50):
        found = after_crash(faulty_engine, "torn", seed)
        assert values_of(found) == values_of(log)[: found.end_offset]


def test_full_disk_does_not_stop_the_log_at_a_sync(faulty_engine: LogEngine) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    append(log, *(idempotent_batch(sequence) for sequence in range(20)))
    faulty_engine.leave_space(0)
    task = log.begin_sync()
    try:
        task.run()
    except OSError as error:
        log.finish_sync(task, error)
    else:
        log.finish_sync(task, None)
    faulty_engine.leave_space(None)
    assert append(log, idempotent_batch(20)) == [20]
    sync(log)
    assert log.synced_offset == 21


# --- failing to sync


def stop_by_failed_sync(engine: LogEngine, log: PartitionLog) -> None:
    """Append one batch, and let the disk lose it."""
    append(log, idempotent_batch(log.end_offset))
    engine.fail_next_sync()
    task = log.begin_sync()
    with pytest.raises(OSError, match="Input/output") as failure:
        task.run()
    log.finish_sync(task, failure.value)


def test_failed_sync_is_not_tried_again(faulty_engine: LogEngine) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    append(log, idempotent_batch(0))
    sync(log)
    stop_by_failed_sync(faulty_engine, log)
    with pytest.raises(StorageFailure):
        log.begin_sync()
    (outcome,) = log.append([idempotent_batch(2)])
    assert isinstance(outcome, StorageFailure)
    with suppress(StorageFailure):
        log.close()
    assert log.synced_offset == 1


@pytest.mark.parametrize("mode", MODES)
def test_log_goes_on_in_a_new_process_after_a_failed_sync(
    faulty_engine: LogEngine, mode: CrashMode
) -> None:
    log = faulty_engine.open(SMALL_SEGMENTS)
    append(log, idempotent_batch(0))
    sync(log)
    stop_by_failed_sync(faulty_engine, log)
    found = after_crash(faulty_engine, mode)
    assert values_of(found)[0] == b"sequence 0"
    assert append(found, idempotent_batch(0), idempotent_batch(1)) == [0, 1]


def test_what_a_failed_sync_lost_is_not_taken_for_durable_by_the_next_process(
    faulty_engine: LogEngine,
) -> None:
    """It is still in memory, and clean: only writing it again makes a sync of it mean anything."""
    log = faulty_engine.open(SMALL_SEGMENTS)
    stop_by_failed_sync(faulty_engine, log)
    second_engine = faulty_engine.after_crash("kept", 0)
    second = second_engine.open(SMALL_SEGMENTS)
    assert append(second, idempotent_batch(0)) == [0]
    sync(second)
    assert values_of(after_crash(second_engine, "lost")) == [b"sequence 0"]
