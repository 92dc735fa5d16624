"""A Delta table as a Spark table, with no jar: a task for each large file, or for many small ones.

Invariant: all tasks read one version, the newest when the query was planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from millstream.errors import InvalidRequest, NotFound
from millstream.spark.lake import partition_values
from millstream.spark.lake.options import LakeOptions
from millstream.spark.lake.table_files import open_files

_BATCH_ROWS = 32_768


# What a task reads, and what it costs to begin with a file.
_MOST_TASK_BYTES = 128 << 20
_LEAST_TASK_BYTES = 8 << 20
_FILE_COST_BYTES = 1 << 20
_WANTED_TASKS = 16


@dataclass(frozen=True)
class TableFile:
    """One file, and the values of the columns that it does not hold."""

    path: str
    size: int
    values: tuple[tuple[str, str | None], ...]


def open_table(options: LakeOptions) -> DeltaTable:
    """Raises NotFound, or InvalidRequest for a table that needs more than plain files."""
    if not is_table(options.path):
        raise NotFound(kind="Delta table", name=options.path)
    table = DeltaTable(options.path)
    features = set(table.protocol().reader_features or ())
    if unknown := features - {"timestampNtz"}:
        raise InvalidRequest(
            f"table {options.path} uses {', '.join(sorted(unknown))}, which is not read here: "
            f"read it with a client of Delta, or rewrite it without"
        )
    return table


def is_table(path: str) -> bool:
    return Path(path).is_dir() and DeltaTable.is_deltatable(path)


def table_files(table: DeltaTable) -> list[TableFile]:
    """Of the version that was opened, the oldest first."""
    actions = pa.table(table.get_add_actions()).to_pylist()
    actions.sort(key=lambda action: (action["modification_time"], action["path"]))
    columns = table.metadata().partition_columns
    return [
        TableFile(
            path=unquote(action["path"]),
            size=action["size_bytes"],
            values=tuple((name, _text(action["partition"][name])) for name in columns),
        )
        for action in actions
    ]


@dataclass(frozen=True)
class FileGroup(InputPartition):
    """What one task reads."""

    files: tuple[TableFile, ...]


def grouped(files: Sequence[TableFile]) -> list[FileGroup]:
    """Every file in one group, in order; small ones together."""
    total = sum(file.size + _FILE_COST_BYTES for file in files)
    limit = min(_MOST_TASK_BYTES, max(_LEAST_TASK_BYTES, total // _WANTED_TASKS))
    groups: list[list[TableFile]] = []
    filled = limit
    for file in files:
        if filled >= limit:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += file.size + _FILE_COST_BYTES
    return [FileGroup(tuple(group)) for group in groups]


class TableReader(DataSourceReader):
    def __init__(self, options: LakeOptions, schema: StructType) -> None:
        self._options = options
        self._names = schema.fieldNames()
        table = open_table(options)
        self._schema = pa.schema(table.schema().to_arrow())
        self._files = table_files(table)

    def partitions(self) -> list[InputPartition]:
        return list(grouped(self._files))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FileGroup)
        schema = pa.schema([self._schema.field(name) for name in self._names])
        for file in partition.files:
            yield from read_file(self._options, file, schema)


def read_file(options: LakeOptions, file: TableFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Its rows with all columns of a schema; those that it was written without are null."""
    values = dict(file.values)
    with open_files(options.path).open(file.path) as stream:
        content = pq.ParquetFile(stream)
        names = [name for name in schema.names if name in content.schema_arrow.names]
        for batch in content.iter_batches(_BATCH_ROWS, columns=names):
            columns = []
            for field in schema:
                if field.name in values:
                    value = partition_values.parse(values[field.name], field.type)
                    columns.append(pa.repeat(value, batch.num_rows))
                elif field.name in names:
                    columns.append(batch.column(field.name).cast(field.type))
                else:
                    columns.append(pa.nulls(batch.num_rows, field.type))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)
