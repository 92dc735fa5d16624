"""Reads topics as a table: `spark.read.format("millstream")`.

The driver plans ranges of offsets, or of segments where `path` is given; the executors read them.
The range is fixed when the query is planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from millstream.client.kafka import Cluster
from millstream.spark.filters import Pruning
from millstream.spark.offsets import OffsetRange, split_ranges
from millstream.spark.options import SourceOptions
from millstream.spark.partition_reader import ReadSettings, read_range
from millstream.spark.planning import Logs, resolve, select_places, surviving_ranges
from millstream.spark.segment_scan import SegmentRange, read_segment, segment_ranges
from millstream.spark.segment_survey import SegmentDirectory

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Plans and reads one query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        if options.path:
            directory = SegmentDirectory(options.path)
            return [
                task
                for each in self._ranges(directory)
                for task in segment_ranges(each, directory.survey(each.place))
            ]
        with Cluster(options.cluster) as cluster:
            ranges = self._ranges(cluster)
        return list(
            split_ranges(
                ranges,
                min_partitions=options.min_partitions,
                max_records=options.max_records_per_partition,
            )
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        if isinstance(partition, SegmentRange):
            return read_segment(partition, columns=options.columns, committed=options.committed)
        if not isinstance(partition, OffsetRange):
            # Where a query has nothing to read, Spark makes up a partition.
            return iter(())
        return read_range(partition, ReadSettings.of(options))

    def _ranges(self, logs: Logs) -> list[OffsetRange]:
        options, pruning = self._options, self._pruning
        places = select_places(logs, options.selection)
        start = resolve(logs, places, options.starting, committed=options.committed)
        end = resolve(logs, places, options.ending, committed=options.committed)
        places = [place for place in places if pruning.takes(place)]
        if pruning.min_timestamp_ms is not None and places:
            at = pruning.min_timestamp_ms
            for place, offset in logs.offsets(places, at, committed=options.committed).items():
                start[place] = max(start[place], offset)
        start = {place: max(start[place], pruning.min_offset) for place in places}
        end = {place: min(end[place], pruning.end_offset) for place in places}
        return surviving_ranges(
            logs,
            start,
            {place: offset for place, offset in end.items() if offset > start[place]},
            committed=options.committed,
            fail_on_data_loss=options.fail_on_data_loss,
        )


class PushdownReader(BatchReader):
    """Reads what its filters leave, for a table that one query reads once.

    Spark 4.3 keeps one plan for each table that was loaded, whatever it was filtered by: a second
    query of the same table, or a second scan in one query, would get the rows of the first filter
    alone. So this reader is for those who ask for it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        return self._pruning.take(filters)
