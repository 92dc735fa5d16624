"""Upsert: of the rows of a batch, the newest for each key replaces the table's, or is added.

Newest is the one with most in the `orderBy` column; without it, the last that a task was given.
A batch is held in the driver's memory while it is merged.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable

from millstream.errors import InvalidRequest
from millstream.spark.lake.options import LakeOptions
from millstream.spark.lake.staging import StagedFile
from millstream.spark.lake.table_files import TableFiles

_ROW = "__millstream_row"


def newest(files: TableFiles, staged: Sequence[StagedFile], options: LakeOptions) -> pa.Table:
    """One row for each key. Raises InvalidRequest if a key is null."""
    parts = []
    for each in staged:
        with files.open(each.path) as stream:
            parts.append(pq.read_table(stream))
    if not parts:
        return pa.table({})
    rows = pa.concat_tables(parts)
    for name in options.key:
        if nulls := rows.column(name).null_count:
            raise InvalidRequest(
                f"key column {name!r} is null in {nulls} rows for table {options.path}: "
                f"a row without its key replaces nothing; filter such rows out"
            )
    if options.order_by:
        order = pc.sort_indices(
            rows, sort_keys=[(options.order_by, "ascending")], null_placement="at_start"
        )
        rows = rows.take(order)
    numbered = rows.select(list(options.key)).append_column(
        _ROW, pa.array(range(rows.num_rows), pa.int64())
    )
    last = numbered.group_by(list(options.key)).aggregate([(_ROW, "max")])
    return rows.take(last.column(f"{_ROW}_max"))


def merge(
    table: DeltaTable, rows: pa.Table, options: LakeOptions, properties: CommitProperties
) -> None:
    """Commit rows, one for each key, in one version of the table."""
    if not rows.num_rows:
        return
    matches = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in options.key)
    is_newer = None
    if options.order_by:
        column = _quoted(options.order_by)
        is_newer = f"t.{column} IS NULL OR s.{column} >= t.{column}"
    (
        table.merge(
            rows,
            matches,
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
        )
        .when_matched_update(
            {_quoted(name): f"s.{_quoted(name)}" for name in rows.column_names}, predicate=is_newer
        )
        .when_not_matched_insert(
            {_quoted(name): f"s.{_quoted(name)}" for name in rows.column_names}
        )
        .execute()
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
