"""What only the memory engine does. All else is in the contract suite."""

from __future__ import annotations

from millstream.clock import ManualClock
from millstream.errors import StorageFailure
from millstream.settings.log import LogSettings
from millstream.storage.memory_log import MemoryLog
from millstream.storage.partition_log import PartitionLog
from tests.fakes.sample_batches import batch_of, idempotent_batch, values_of


def test_memory_log_is_a_partition_log() -> None:
    log: PartitionLog = MemoryLog("orders/0", LogSettings(), ManualClock())
    assert log.name == "orders/0"


def test_silent_producer_is_forgotten_and_may_then_start_anywhere() -> None:
    clock = ManualClock()
    log = MemoryLog("orders/0", LogSettings(producer_id_expiration_ms=60_000), clock)
    log.append([idempotent_batch(0)])
    clock.advance_ms(59_999)
    assert log.append([idempotent_batch(0)]) == [0]
    clock.advance_ms(60_000)
    assert log.append([idempotent_batch(17)]) == [1]
    assert [producer.producer_id for producer in log.producers.producers()] == [7]


def test_producer_with_old_timestamps_is_not_forgotten_early() -> None:
    """A backfill sends records of last year: what counts is when it sent them."""
    clock = ManualClock()
    log = MemoryLog("orders/0", LogSettings(producer_id_expiration_ms=60_000), clock)
    old = batch_of(b"a", timestamps_ms=[1], producer_id=7, epoch=0, sequence=0)
    log.append([bytearray(old)])
    clock.advance_ms(30_000)
    assert log.append([old]) == [0]


def test_deleted_batches_are_freed() -> None:
    log = MemoryLog("orders/0", LogSettings(), ManualClock())
    log.append([batch_of(b"a", b"b"), batch_of(b"c")])
    log.delete_records(1)
    assert len(log._batches) == 2
    log.delete_records(2)
    assert len(log._batches) == 1
    assert values_of(log) == [b"c"]


def test_truncation_below_the_start_empties_the_log() -> None:
    log = MemoryLog("orders/0", LogSettings(), ManualClock())
    log.append([batch_of(b"a"), batch_of(b"b", b"c")])
    log.delete_records(2)
    log.truncate(2)
    assert (log.start_offset, log.end_offset) == (1, 1)
    assert log.append([batch_of(b"d")]) == [1]


def test_closing_makes_everything_durable_unless_the_log_had_stopped() -> None:
    log = MemoryLog("orders/0", LogSettings(), ManualClock())
    log.append([batch_of(b"a")])
    log.close()
    assert log.synced_offset == 1
    stopped = MemoryLog("orders/0", LogSettings(), ManualClock())
    stopped.append([batch_of(b"a")])
    stopped.finish_sync(stopped.begin_sync(), OSError(5, "Input/output error"))
    stopped.close()
    assert stopped.synced_offset == 0
    (outcome,) = stopped.append([batch_of(b"b")])
    assert isinstance(outcome, StorageFailure)
    assert outcome.path == "orders/0"
