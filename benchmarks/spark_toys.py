"""Data sources that do as little as Spark lets one do, to compare ours with.

`toy_source` yields an Arrow batch that was built before, again and again, with the columns of our
source; as a stream it gives out so many rows in each batch. `toy_sink` takes Arrow batches and
drops them. Options: rows, tasks, batchRows (of a stream's batch).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from benchmarks.workload import VALUE_BYTES

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
_ARROW_ROWS = 16_384


class Share(InputPartition):
    """How many rows a task gives."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


class ToySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "toy_source"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it has one
        return _ToyReader(int(self.options["rows"]), int(self.options["tasks"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return _ToyStream(int(self.options["rows"]), int(self.options["batchRows"]))


class _ToyReader(DataSourceReader):
    def __init__(self, rows: int, tasks: int) -> None:
        self._rows = rows
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return _shares(self._rows, self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return _batches(partition.rows)


class _ToyStream(DataSourceStreamReader):
    def __init__(self, rows: int, batch_rows: int) -> None:
        self._rows = rows
        self._batch_rows = batch_rows

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"offset": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        return {"offset": min(start["offset"] + self._batch_rows, self._rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        rows = end["offset"] - start["offset"]
        return _shares(rows, 1) if rows else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return _batches(partition.rows)


class ToySink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "toy_sink"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
        return _ToyWriter()


class _ToyWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def _shares(rows: int, tasks: int) -> list[Share]:
    bounds = [rows * number // tasks for number in range(tasks + 1)]
    return [Share(high - low) for low, high in pairwise(bounds)]


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    whole = _batch(min(rows, _ARROW_ROWS))
    for left in range(rows, 0, -_ARROW_ROWS):
        yield whole if left >= whole.num_rows else whole.slice(0, left)


def _batch(rows: int) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.array([b"%0*d" % (VALUE_BYTES, n) for n in range(rows)], pa.binary()),
        "topic": pa.array(["bench"] * rows, pa.string()),
        "partition": pa.array([0] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([1_700_000_000_000_000] * rows, pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * rows, pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)
