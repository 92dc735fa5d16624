"""Spark's side of the sink: tasks stage files, the driver commits them.

Invariant: an abort deletes only what is not part of the table, since Spark also aborts a batch
whose commit took effect and then failed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import deltalake
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from millstream.clock import SystemClock
from millstream.errors import InvalidRequest
from millstream.spark.fingerprint import Fingerprint
from millstream.spark.lake import upkeep
from millstream.spark.lake.options import UPSERT, LakeOptions
from millstream.spark.lake.staging import Stage, StagedFile
from millstream.spark.lake.table import Batch, LakeTable, staging_folder
from millstream.spark.lake.table_files import open_files

_log = logging.getLogger(__name__)


@dataclass
class StagedTask(WriterCommitMessage):
    """What one task wrote."""

    query_id: str | None
    files: tuple[StagedFile, ...] = ()
    fingerprint: Fingerprint = field(default_factory=Fingerprint)


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: all rows in one commit."""

    def __init__(self, options: LakeOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite and options.mode == UPSERT:
            raise InvalidRequest(
                "mode('overwrite') replaces all rows, and option mode=upsert those of some keys: "
                "use mode('append') to upsert, or leave the option out to overwrite"
            )
        self._options = options
        self._schema_json = delta_schema_json(schema)
        self._overwrite = overwrite
        self._table().check_columns()
        self._table().check_table()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        return _stage(self._options, self._schema_json, iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        self._table().commit(self._batch(messages))

    def abort(self, messages: Sequence[Any]) -> None:
        self._table().abort(self._batch(messages))

    def _batch(self, messages: Sequence[Any]) -> Batch:
        return _batch(messages, None, replaces_all=self._overwrite)

    def _table(self) -> LakeTable:
        return LakeTable(self._options, deltalake.Schema.from_json(self._schema_json))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: one commit for each batch, and none for one that the table has."""

    def __init__(self, options: LakeOptions, schema: StructType) -> None:
        self._options = options
        self._schema_json = delta_schema_json(schema)
        self._table().check_columns()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        return _stage(self._options, self._schema_json, iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        if self._options.name is None and batchId == 0:
            _log.warning(
                "the query that writes to table %s has no name: if its checkpoint is lost, rows "
                "are written twice; give it one with option 'name' or queryName()",
                self._options.path,
            )
        table = self._table()
        table.commit(_batch(messages, batchId))
        if upkeep.is_due(self._options, batchId) and (current := table.open()) is not None:
            upkeep.keep_up(current, self._options)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        self._table().abort(_batch(messages, batchId))

    def _table(self) -> LakeTable:
        return LakeTable(self._options, deltalake.Schema.from_json(self._schema_json))


def delta_schema_json(schema: StructType) -> str:
    """Spark writes its schemas as Delta does.

    Every column may be null, as in each file that Spark writes; notes that Spark keeps with
    columns, such as watermarks, are no business of the table.
    """
    return json.dumps(_plain(json.loads(schema.json())))


def _plain(node: Any) -> Any:
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    plain = {name: _plain(each) for name, each in node.items()}
    for name in ("nullable", "containsNull", "valueContainsNull"):
        if name in plain:
            plain[name] = True
    if "metadata" in plain:
        plain["metadata"] = {}
    return plain


def _stage(options: LakeOptions, schema_json: str, batches: Iterator[pa.RecordBatch]) -> StagedTask:
    context = TaskContext.get()
    assert context is not None
    query_id = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    is_upsert = options.mode == UPSERT
    stage = Stage(
        open_files(options.path),
        folder=staging_folder(options, query_id, int(number or 0)) if is_upsert else "",
        stem=f"part-{context.partitionId():05d}",
        # Rows of an upsert are parted when they are merged.
        partition_by=() if is_upsert else options.partition_by,
        target_file_bytes=options.target_file_bytes,
        clock=SystemClock(),
    )
    schema = pa.schema(deltalake.Schema.from_json(schema_json).to_arrow())
    fingerprint = Fingerprint()
    try:
        for batch in batches:
            # Timestamps come in the session's time zone.
            rows = batch if batch.schema == schema else batch.cast(schema)
            fingerprint.add(rows)
            stage.add(rows)
        return StagedTask(query_id=query_id, files=stage.finish(), fingerprint=fingerprint)
    except BaseException:
        stage.discard()
        raise


def _batch(messages: Sequence[Any], number: int | None, *, replaces_all: bool = False) -> Batch:
    """Of what tasks wrote; those that failed sent nothing."""
    tasks = [each for each in messages if each is not None]
    return Batch(
        number=number,
        query_id=next((task.query_id for task in tasks), None),
        files=[staged for task in tasks for staged in task.files],
        fingerprint=Fingerprint.total(task.fingerprint for task in tasks),
        replaces_all=replaces_all,
    )
