"""What the broker itself tells: topics and logs, groups, queues, pipelines, upkeep and process.

A look reads what is in memory, but for the pipelines, whose progress is in a topic, and the disk's
free room. What cannot be found out is left out, and the rest is told.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator

from millstream import __version__
from millstream.broker.broker import Broker
from millstream.broker.group_lag import partition_lags
from millstream.broker.housekeeping import Housekeeping
from millstream.broker.memory_budget import USES
from millstream.broker.metrics import Source
from millstream.broker.partition import Partition
from millstream.errors import MillstreamError
from millstream.storage.segment import SegmentState
from millstream.telemetry import catalogue as known
from millstream.telemetry.metric import Metric, Number, Reading
from millstream.telemetry.process import process_figures

_log = logging.getLogger(__name__)

_STATES = {
    SegmentState.ACTIVE: "active",
    SegmentState.FULL: "full",
    SegmentState.ARCHIVED: "archived",
}
_RUNNING = "running"


def watch(broker: Broker, housekeeping: Housekeeping) -> None:
    """Let the metrics of a broker tell of all that is behind its doors."""
    metrics = broker.metrics
    started_ms = broker.clock.now_ms()
    metrics.watch(broker)
    for source in _sources(broker, housekeeping, started_ms):
        metrics.add(source)
    metrics.add_slow(lambda reading: _pipelines(broker, reading))
    metrics.add_slow(lambda reading: _disk(broker, reading))


def _sources(broker: Broker, housekeeping: Housekeeping, started_ms: int) -> list[Source]:
    return [
        _Once(lambda reading: _whole(broker, reading, started_ms)).add,
        lambda reading: _topics(broker, reading),
        lambda reading: _groups(broker, reading),
        lambda reading: _subscriptions(broker, reading),
        _Once(lambda reading: _flushing(broker, reading)).add,
        _Once(lambda reading: _damage(broker, reading)).add,
        _Once(lambda reading: _memory(broker, reading)).add,
        lambda reading: _upkeep(housekeeping, reading),
    ]


class _Once:
    """A source that is quick."""

    def __init__(self, add: Callable[[Reading], None]) -> None:
        self._add = add

    def add(self, reading: Reading) -> Iterator[None]:
        self._add(reading)
        yield


def _whole(broker: Broker, reading: Reading, started_ms: int) -> None:
    reading.add(known.INFO, 1, __version__, broker.topics.cluster_id)
    reading.add_histogram(known.LOOP_DELAY, broker.metrics.loop_delay)
    reading.add(known.PROCESS_START, started_ms / 1000)
    for metric, value in process_figures():
        reading.add(metric, value)


# Topics


class _LogTotals:
    """What is added up over all logs."""

    __slots__ = ("offline", "refusing", "scanned_bytes", "torn", "unclean")

    def __init__(self) -> None:
        self.offline = self.refusing = self.unclean = self.torn = 0
        self.scanned_bytes = 0

    def add(self, partition: Partition) -> None:
        failure = partition.failure or partition.log.failure
        self.offline += failure is not None
        self.refusing += partition.is_refusing
        if partition.failure is None:
            report = partition.log.report
            if not report.clean and report.scanned_bytes:
                self.unclean += 1
                self.scanned_bytes += report.scanned_bytes
            self.torn += bool(report.torn)


def _topics(broker: Broker, reading: Reading) -> Iterator[None]:
    """Hot: once for every partition there is. Cost: benchmarks/metrics_cost.py."""
    totals = _LogTotals()
    partitions = topics = 0
    for topic in tuple(broker.topics.all()):
        topics += not topic.is_internal
        partitions += len(topic.partitions)
        labels, traffic = (topic.name,), topic.traffic
        reading.of(known.MESSAGES_IN).append((labels, traffic.messages_in))
        reading.of(known.BYTES_IN).append((labels, traffic.bytes_in))
        reading.of(known.MESSAGES_OUT).append((labels, traffic.messages_out))
        reading.of(known.BYTES_OUT).append((labels, traffic.bytes_out))
        states = dict.fromkeys(SegmentState, 0)
        for partition in topic.partitions:
            totals.add(partition)
            if partition.failure is None:
                _log_figures(partition, reading, states)
            yield
        for state, name in _STATES.items():
            reading.of(known.SEGMENTS).append(((topic.name, name), states[state]))
    reading.add(known.TOPICS, topics)
    reading.add(known.PARTITIONS, partitions)
    reading.add(known.OFFLINE_PARTITIONS, totals.offline)
    reading.add(known.REFUSING_PARTITIONS, totals.refusing)
    reading.add(known.RECOVERED_LOGS, totals.unclean)
    reading.add(known.RECOVERY_SCANNED, totals.scanned_bytes)
    reading.add(known.RECOVERY_TORN, totals.torn)


def _log_figures(partition: Partition, reading: Reading, states: dict[SegmentState, int]) -> None:
    log = partition.log
    labels = (partition.topic.name, str(partition.number))
    size_bytes = 0
    for segment in log.segments():
        size_bytes += segment.size
        states[segment.state] += 1
    reading.of(known.LOG_START).append((labels, log.start_offset))
    reading.of(known.LOG_END).append((labels, log.end_offset))
    reading.of(known.LOG_SIZE).append((labels, size_bytes))


def _damage(broker: Broker, reading: Reading) -> None:
    reports = broker.topics.reports
    reading.add(known.DAMAGED_PLACES, sum(len(report.unresolved) for report in reports))
    reading.add(known.REPAIRED_PLACES, sum(len(report.repaired) for report in reports))
    reading.add(known.COPIES_BEHIND, sum(bool(report.copy_failure) for report in reports))
    reading.add(known.REBUILT_INDEXES, sum(len(report.rebuilt_indexes) for report in reports))


# Groups and queues


def _groups(broker: Broker, reading: Reading) -> Iterator[None]:
    states: Counter[str] = Counter()
    for group, offsets in broker.groups.committed():
        states[group.state] += 1
        for each in partition_lags(broker.topics, dict(offsets), end_of=_end_offset):
            labels = (group.group_id, each.topic, str(each.partition))
            if each.committed is not None:
                reading.add(known.COMMITTED, each.committed.offset, *labels)
            if each.lag is not None:
                reading.add(known.LAG, each.lag, *labels)
                if each.committed is None:
                    reading.add(known.NEVER_READ, each.lag, *labels)
            yield
        yield
    for state, count in sorted(states.items()):
        reading.add(known.GROUPS, count, state)


def _end_offset(partition: Partition) -> int:
    return partition.log.end_offset


def _subscriptions(broker: Broker, reading: Reading) -> Iterator[None]:
    waiting = 0
    for told in broker.subscriptions.described():
        labels = (told.topic, told.name)
        reading.add(known.SUBSCRIPTION_CONSUMERS, len(told.consumers), *labels)
        reading.add(known.BACKLOG, told.backlog, *labels)
        reading.add(known.IN_FLIGHT, told.in_flight, *labels)
        reading.add(known.DELAYED, told.delayed, *labels)
        reading.add(known.REFUSED, told.waiting, *labels)
        reading.add(known.REDELIVERED, told.redelivered, *labels)
        reading.add(known.DEAD_LETTERS, told.dead, *labels)
        reading.add(known.SUBSCRIPTION_LOST, told.lost, *labels)
        waiting += told.receivers
        yield
    reading.add(known.PURGATORY, waiting, "receive")
    reading.add(known.PURGATORY, broker.reader.waiting, "read")


def _memory(broker: Broker, reading: Reading) -> None:
    memory = broker.memory
    reading.add(known.MEMORY_LIMIT, memory.limit_bytes)
    for use in USES:
        reading.add(known.MEMORY_BUDGET, memory.used[use], use)
    reading.add(known.UNREAD_DROPPED, memory.dropped)


async def _pipelines(broker: Broker, reading: Reading) -> None:
    try:
        found = await broker.pipelines.all()
    except MillstreamError as error:
        _log.error("pipelines cannot be told of: %(error)s", {"error": error})
        return
    for progress in found:
        name = progress["pipeline"]
        is_up = progress.get("state") == _RUNNING and not progress["is_stale"]
        reading.add(known.PIPELINE_UP, int(is_up), name)
        for field, metric in _PIPELINE_FIELDS.items():
            # It is what a pipeline says of itself, so it may be anything.
            value = _number(progress.get(field))
            if value is not None:
                reading.add(metric, value, name)


_PIPELINE_FIELDS: dict[str, Metric] = {
    "rows_in": known.PIPELINE_ROWS_IN,
    "rows_out": known.PIPELINE_ROWS_OUT,
    "bad_rows": known.PIPELINE_BAD_ROWS,
    "lag": known.PIPELINE_LAG,
}


def _number(told: object) -> Number | None:
    is_number = isinstance(told, int | float) and not isinstance(told, bool)
    return told if is_number else None  # type: ignore[return-value]


# The disk and its upkeep


def _flushing(broker: Broker, reading: Reading) -> None:
    flusher = broker.flusher
    reading.add_histogram(known.FLUSH, flusher.latency)
    reading.add(known.FLUSH_FAILURES, flusher.failures)
    reading.add(known.FLUSH_QUEUE, flusher.under_way)
    reading.add(known.PURGATORY, flusher.waiting_count, "produce")


async def _disk(broker: Broker, reading: Reading) -> None:
    try:
        # In a thread: a disk that hangs must not hold up the clients.
        found = await asyncio.to_thread(os.statvfs, broker.topics.data_path)
    except OSError:
        # There is none where all data is in memory.
        return
    reading.add(known.DISK_FREE, found.f_bavail * found.f_frsize)
    reading.add(known.DISK_TOTAL, found.f_blocks * found.f_frsize)


def _upkeep(housekeeping: Housekeeping, reading: Reading) -> Iterator[None]:
    retention, work = housekeeping.retention, housekeeping.work
    reading.add(known.RETENTION_SEGMENTS, retention.deleted_segments)
    reading.add(known.RETENTION_BYTES, retention.deleted_bytes)
    for (topic, number), size_bytes in tuple(retention.held_bytes.items()):
        reading.add(known.RETENTION_HELD, size_bytes, topic, str(number))
    for reader, count in tuple(retention.at_risk.items()):
        labels = (reader.topic, str(reader.partition), reader.group_id)
        reading.add(known.RETENTION_AT_RISK, count, *labels)
        yield
    for reader, count in tuple(retention.lost.items()):
        labels = (reader.topic, str(reader.partition), reader.group_id)
        reading.add(known.RETENTION_LOST, count, *labels)
        yield
    reading.add(known.CLEANER_PASSES, work.passes)
    reading.add(known.CLEANER_FAILURES, work.failures)
    reading.add(known.CLEANER_READ, work.read_bytes)
    reading.add(known.CLEANER_SAVED, work.saved_bytes)
    reading.add(known.CLEANER_RUNNING, int(housekeeping.is_compacting))
    reading.add_histogram(known.CLEANER_TIME, work.times)
    yield
