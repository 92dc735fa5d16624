"""The way back: rows of a Delta table or of Parquet files, sent to a topic as records.

All rows go in one transaction, so that readers of committed records see all of them or none.
After a crash: nothing to undo. The transaction is aborted by whoever replays to the topic next, or
when it times out; a replay that is repeated sends every row once.

Rows come in the order of the files, the oldest first, or sorted; sorting holds all of them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds

from millstream.client.kafka import Cluster
from millstream.clock import Clock
from millstream.errors import InvalidRequest, NotFound
from millstream.records.arrow_types import HEADERS
from millstream.spark.lake.options import LakeOptions
from millstream.spark.lake.reader import is_table, open_table, read_file, table_files
from millstream.spark.sink.options import SinkOptions
from millstream.spark.sink.topic_writer import TopicWriter

_BATCH_ROWS = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What becomes of a row."""

    source: str
    """The directory of a table, or a Parquet file, or a directory of such."""
    topic: str
    key: str | None = None
    """The column for the key; None: the column `key`, if there is one."""
    value: str | None = None
    """The column for the value; None: the column `value`, else the whole row as a JSON object."""
    order_by: tuple[str, ...] = ()
    keeps_partitions: bool = False
    """Whether the column `partition` says where a record goes, and not its key."""
    transaction_timeout_ms: int = 900_000


def replay(cluster: Cluster, plan: ReplayPlan, *, clock: Clock, tell: Callable[[int], None]) -> int:
    """Send all rows; how many. `tell` is called with how many were sent so far."""
    schema, batches = open_source(plan)
    shape = RecordShape(plan, schema)
    transactional_id = f"millstream-replay-{plan.topic}"
    options = SinkOptions(topic=plan.topic, transaction_timeout_ms=plan.transaction_timeout_ms)
    writer = TopicWriter(cluster, options, task=0, clock=clock, transactional_id=transactional_id)
    count = 0
    try:
        for batch in batches:
            writer.write(shape.records(batch))
            count += batch.num_rows
            tell(count)
        done = writer.finish()
    except BaseException:
        writer.give_up()
        raise
    writer.close()
    if done is not None:
        # The one place where the rows become records of the topic.
        cluster.transactions.end(
            transactional_id, done.producer_id, done.producer_epoch, commit=True
        )
    return count


def open_source(plan: ReplayPlan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of the rows, and the rows. Raises NotFound."""
    if is_table(plan.source):
        options = LakeOptions(path=plan.source)
        table = open_table(options)
        schema = pa.schema(table.schema().to_arrow())
        batches: Iterator[pa.RecordBatch] = (
            batch for file in table_files(table) for batch in read_file(options, file, schema)
        )
    else:
        if not Path(plan.source).exists():
            raise NotFound(kind="Delta table or Parquet file", name=plan.source)
        with _readable(plan.source):
            files = ds.dataset(plan.source, format="parquet", partitioning="hive")
        schema = files.schema
        batches = _batches(files, plan.source)
    if plan.order_by:
        _check_columns(schema, plan.order_by, "--order-by", plan.source)
        rows = pa.Table.from_batches(list(batches), schema)
        rows = rows.sort_by([(name, "ascending") for name in plan.order_by])
        batches = iter(rows.to_batches(max_chunksize=_BATCH_ROWS))
    return schema, batches


def _batches(files: ds.Dataset, source: str) -> Iterator[pa.RecordBatch]:
    batches = files.to_batches(batch_size=_BATCH_ROWS, use_threads=False)
    while True:
        with _readable(source):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextmanager
def _readable(source: str) -> Iterator[None]:
    """Raises InvalidRequest where files are no Parquet, as after a write that failed."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        reason = " ".join(str(error).split())
        raise InvalidRequest(f"{source} cannot be read as Parquet: {reason}") from None


class RecordShape:
    """Makes records of rows: columns key, value, headers, timestamp and partition."""

    def __init__(self, plan: ReplayPlan, schema: pa.Schema) -> None:
        names = schema.names
        for option, name in (("--key", plan.key), ("--value", plan.value)):
            if name is not None:
                _check_columns(schema, [name], option, plan.source)
        self._key = plan.key or ("key" if "key" in names else None)
        self._value = plan.value or ("value" if "value" in names else None)
        # Those of records that were archived as they were.
        self._has_headers = "headers" in names and schema.field("headers").type == HEADERS
        self._has_timestamp = "timestamp" in names and pa.types.is_timestamp(
            schema.field("timestamp").type
        )
        self._keeps_partitions = plan.keeps_partitions
        if plan.keeps_partitions:
            _check_columns(schema, ["partition"], "--keep-partitions", plan.source)

    def records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        if self._key is not None:
            columns["key"] = _as_bytes(batch.column(self._key))
        if self._value is not None:
            columns["value"] = _as_bytes(batch.column(self._value))
        else:
            columns["value"] = pa.array([_json(row) for row in batch.to_pylist()], pa.binary())
        if self._has_headers:
            columns["headers"] = batch.column("headers")
        if self._has_timestamp:
            columns["timestamp"] = batch.column("timestamp")
        if self._keeps_partitions:
            columns["partition"] = batch.column("partition").cast(pa.int32())
        return pa.RecordBatch.from_pydict(columns)


def _check_columns(schema: pa.Schema, names: Sequence[str], option: str, source: str) -> None:
    for name in names:
        if name not in schema.names:
            raise InvalidRequest(
                f"{option} needs column {name!r}: {source} has {', '.join(schema.names)}"
            )


def _as_bytes(column: pa.Array) -> pa.Array:
    """Text and bytes as they are, and all else as JSON."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.binary())
    return pa.array([None if v is None else _json(v) for v in column.to_pylist()], pa.binary())


def _json(value: Any) -> bytes:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: object) -> object:
    """What JSON has no shape for."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        # Arrow makes pandas' own of what counts nanoseconds, as the Parquet files of Spark do.
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no shape in JSON")
