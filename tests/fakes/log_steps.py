"""Steps that tests take on a log, whatever its engine."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.errors import MillstreamError
from millstream.records import Record
from millstream.settings.log import LogSettings
from millstream.storage.partition_log import PartitionLog, TimedOffset
from tests.fakes.sample_batches import batch_of

# Segments so small that an engine that has any crosses them all the time.
SMALL_SEGMENTS = LogSettings(segment_bytes=600, index_interval_bytes=100, max_message_bytes=1000)


def append(log: PartitionLog, *batches: bytearray) -> list[int]:
    """Append batches of which none is refused; their offsets."""
    offsets = []
    for outcome in log.append(batches):
        assert isinstance(outcome, int), outcome
        offsets.append(outcome)
    return offsets


def refusal(log: PartitionLog, batch: bytearray) -> MillstreamError:
    """Append a batch that must be refused; why it was."""
    end_offset = log.end_offset
    (outcome,) = log.append([batch])
    assert isinstance(outcome, MillstreamError)
    assert log.end_offset == end_offset
    return outcome


def sync(log: PartitionLog) -> None:
    task = log.begin_sync()
    task.run()
    log.finish_sync(task, None)


def fill(log: PartitionLog, batches: int) -> None:
    """Batches of one to three records, whose values are their offsets."""
    for number in range(batches):
        first = log.end_offset
        append(log, batch_of(*(b"%d" % (first + n) for n in range(number % 3 + 1))))


def first_at(records: Sequence[Record], timestamp_ms: int) -> TimedOffset | None:
    """The plain way to find a record by its time."""
    for record in records:
        if record.timestamp_ms >= timestamp_ms:
            return TimedOffset(record.offset, record.timestamp_ms)
    return None
