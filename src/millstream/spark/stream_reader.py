"""Reads topics as a stream: `spark.readStream.format("millstream")`.

The driver keeps one of these for the life of a query and asks it, batch after batch, how far to
read; executors get a copy that only reads. Offsets are remembered in Spark's checkpoint alone; the
consumer group is told of progress so that people and tools see the lag.

Invariant: when Spark asks for the next end, all before the start that it names is done. So that is
what the group is told, and it never runs ahead of the query.
After a crash: Spark plans the last batch again from its checkpoint; the same ranges give the same
records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from millstream.client.kafka import Cluster
from millstream.errors import RefusedByBroker, Unavailable, UnknownTopic
from millstream.errors.spark import LostRange
from millstream.spark.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    Place,
    from_json,
    limit_bytes,
    limit_rows,
    split_ranges,
    to_json,
)
from millstream.spark.options import SourceOptions
from millstream.spark.partition_reader import ReadSettings, bytes_per_offset, read_range
from millstream.spark.planning import (
    existing_places,
    log,
    report_loss,
    resolve,
    select_places,
    surviving_ranges,
)

if TYPE_CHECKING:
    import pyarrow as pa

NestedOffsets = Mapping[str, Mapping[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads one query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        # What there was when a query began that reads what there is and ends.
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._told_group: Offsets = {}
        self._is_group_told = True
        self._told_lost: set[Place] = set()

    def __getstate__(self) -> dict[str, Any]:
        """For an executor, which needs no connection of the driver's."""
        return {**self.__dict__, "_cluster": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        options = self._options
        places = self._select()
        start = resolve(self._logs, places, options.starting, committed=options.committed)
        return dict(to_json(start))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_offsets_per_trigger:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = from_json(start)
        self._latest = self._ends()
        self._tell_group(begin)
        reachable = self._reachable(begin)
        begin |= self._begin_of_new(reachable, begin)
        lost = _missing(begin, reachable)
        # What was lost is told once; the query does not meet it again.
        fresh = [each for each in lost if (each.topic, each.partition) not in self._told_lost]
        report_loss(fresh, fail=self._options.fail_on_data_loss)
        self._told_lost |= {(each.topic, each.partition) for each in lost}
        if isinstance(limit, ReadAllAvailable):
            return dict(to_json(reachable))
        return dict(to_json(self._limited(begin, reachable)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return dict(to_json(self._latest)) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        options = self._options
        begin, until = from_json(start), from_json(end)
        ranges = surviving_ranges(
            self._logs,
            begin,
            until,
            committed=options.committed,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return list(
            split_ranges(
                ranges,
                min_partitions=options.min_partitions,
                max_records=options.max_records_per_partition,
            )
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return read_range(partition, ReadSettings.of(self._options))

    def commit(self, end: dict[str, Any]) -> None:
        self._tell_group(from_json(end))

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    @property
    def _logs(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options.cluster)
        return self._cluster

    def _select(self) -> list[Place]:
        return select_places(self._logs, self._options.selection)

    def _ends(self) -> Offsets:
        """Where each partition that there is ends now. A topic may have been deleted."""
        try:
            places = self._select()
        except UnknownTopic:
            places = existing_places(self._logs, self._options.selection.takes)
        return self._logs.offsets(places, LATEST, committed=self._options.committed)

    def _reachable(self, begin: Offsets) -> Offsets:
        """How far this query may read now."""
        if self._target is None:
            return dict(self._latest)
        # What a restart finds in the checkpoint may be beyond what a target was set for.
        return {
            place: max(min(end, self._target[place]), min(end, begin.get(place, 0)))
            for place, end in self._latest.items()
            if place in self._target
        }

    def _begin_of_new(self, reachable: Offsets, begin: Offsets) -> Offsets:
        new = [place for place in reachable if place not in begin]
        if not new:
            return {}
        return self._logs.offsets(new, EARLIEST, committed=self._options.committed)

    def _limited(self, begin: Offsets, reachable: Offsets) -> Offsets:
        options = self._options
        end = reachable
        if options.max_offsets_per_trigger:
            end = limit_rows(begin, end, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger:
            waiting = [place for place in end if end[place] > begin[place]]
            starts = self._logs.offsets(waiting, EARLIEST, committed=options.committed)
            starts = {place: max(begin[place], first) for place, first in starts.items()}
            rates = bytes_per_offset(self._logs, starts, committed=options.committed)
            end = limit_bytes(begin, end, options.max_bytes_per_trigger, rates)
        return end

    def _tell_group(self, done: Offsets) -> None:
        """Commit progress to the group, where one is named.

        A group that is away, or that a consumer has joined, is no reason to end a query.
        """
        news = {
            place: at
            for place, at in done.items()
            # A partition that is gone has no progress.
            if place in self._latest and self._told_group.get(place) != at
        }
        if not self._options.group or not news:
            return
        try:
            self._logs.commit(self._options.group, news)
        except (Unavailable, RefusedByBroker) as cause:
            if self._is_group_told:
                log.warning("group %s is not told of progress: %s", self._options.group, cause)
            self._is_group_told = False
            return
        self._is_group_told = True
        self._told_group |= news


def _missing(begin: Offsets, reachable: Offsets) -> list[LostRange]:
    """Partitions that the query was reading and that are gone, or shorter than it had read."""
    lost = []
    for (topic, partition), at in sorted(begin.items()):
        end = reachable.get((topic, partition))
        if end is None:
            reason = "the partition is gone"
        elif end < at:
            reason = f"the log now ends at {end}: it was deleted and made anew"
        else:
            continue
        lost.append(LostRange(topic=topic, partition=partition, start=at, end=None, reason=reason))
    return lost
