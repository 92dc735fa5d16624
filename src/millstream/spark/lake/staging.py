"""What a task does: it writes its rows to Parquet files that no reader of the table knows yet.

Files are named so that no two attempts ever share one: an attempt that is repeated never touches
what an earlier one wrote, which may be part of the table by now.
After a crash: files that were not committed stay, unknown to all, until a vacuum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.clock import Clock
from millstream.identity import new_name
from millstream.spark.lake import partition_values
from millstream.spark.lake.file_statistics import statistics
from millstream.spark.lake.partition_values import Values
from millstream.spark.lake.table_files import TableFiles

# A row group: enough rows to compress and to skip well, few enough to hold for many partitions.
_GROUP_ROWS = 1 << 18
_GROUP_BYTES = 32 << 20
# What a task holds for all partitions together.
_HELD_BYTES = 192 << 20
_MOST_OPEN = 100
_COMPRESSION = "zstd"
_COMPRESSION_LEVEL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    path: str
    """Relative to the table, as on the disk."""
    size: int
    rows: int
    values: Values
    statistics: str
    modified_ms: int


@dataclass(slots=True)
class _Lane:
    """Rows of one partition, and the file that they go to."""

    values: Values
    held: list[pa.RecordBatch] = field(default_factory=list)
    held_bytes: int = 0
    held_rows: int = 0
    path: str = ""
    stream: pa.NativeFile | None = None
    writer: pq.ParquetWriter | None = None
    metadata: list[pq.FileMetaData] = field(default_factory=list)


class Stage:
    """The files of one task. Finish it or discard it."""

    def __init__(
        self,
        files: TableFiles,
        *,
        folder: str,
        stem: str,
        partition_by: Sequence[str],
        target_file_bytes: int,
        clock: Clock,
    ) -> None:
        self._files = files
        self._folder = folder
        self._stem = stem
        self._partition_by = tuple(partition_by)
        self._target_file_bytes = target_file_bytes
        self._clock = clock
        self._lanes: dict[Values, _Lane] = {}
        self._held_bytes = 0
        self._done: list[StagedFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for values, rows in partition_values.split(batch, self._partition_by):
            lane = self._lanes.setdefault(values, _Lane(values))
            lane.held.append(rows)
            lane.held_rows += rows.num_rows
            lane.held_bytes += rows.nbytes
            self._held_bytes += rows.nbytes
            limit = min(_GROUP_BYTES, self._target_file_bytes)
            if lane.held_rows >= _GROUP_ROWS or lane.held_bytes >= limit:
                self._write_group(lane)
        if self._held_bytes > _HELD_BYTES:
            for lane in self._lanes.values():
                self._write_group(lane)

    def finish(self) -> tuple[StagedFile, ...]:
        for lane in self._lanes.values():
            self._write_group(lane)
            self._close(lane)
        self._lanes.clear()
        return tuple(self._done)

    def discard(self) -> None:
        """Leave nothing behind."""
        for lane in self._lanes.values():
            if lane.writer is not None and lane.stream is not None:
                lane.writer.close()
                lane.stream.close()
                self._files.delete(lane.path)
        for staged in self._done:
            self._files.delete(staged.path)

    def _write_group(self, lane: _Lane) -> None:
        if not lane.held:
            return
        rows = pa.Table.from_batches(lane.held)
        if lane.writer is None:
            self._open(lane, rows.schema)
        assert lane.writer is not None
        assert lane.stream is not None
        lane.writer.write_table(rows, row_group_size=rows.num_rows)
        self._held_bytes -= lane.held_bytes
        lane.held, lane.held_bytes, lane.held_rows = [], 0, 0
        if lane.stream.tell() >= self._target_file_bytes:
            self._close(lane)

    def _open(self, lane: _Lane, schema: pa.Schema) -> None:
        is_open = [each for each in self._lanes.values() if each.writer is not None]
        if len(is_open) >= _MOST_OPEN:
            # The largest, whose end makes the fewest small files.
            self._close(max(is_open, key=lambda each: each.stream.tell() if each.stream else 0))
        inside = partition_values.folder(self._partition_by, lane.values)
        lane.path = f"{self._folder}{inside}{new_name(self._stem)}.{_COMPRESSION}.parquet"
        lane.stream = self._files.create(lane.path)
        lane.metadata = []
        lane.writer = pq.ParquetWriter(
            lane.stream,
            schema,
            compression=_COMPRESSION,
            compression_level=_COMPRESSION_LEVEL,
            metadata_collector=lane.metadata,
        )

    def _close(self, lane: _Lane) -> None:
        if lane.writer is None or lane.stream is None:
            return
        lane.writer.close()
        size = lane.stream.tell()
        lane.stream.close()
        lane.writer = lane.stream = None
        self._done.append(
            StagedFile(
                path=lane.path,
                size=size,
                rows=lane.metadata[0].num_rows,
                values=lane.values,
                statistics=statistics(lane.metadata[0]),
                modified_ms=self._clock.now_ms(),
            )
        )
