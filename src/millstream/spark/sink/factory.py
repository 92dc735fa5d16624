"""The writers that Spark asks the format `millstream` for.

For every batch Spark builds a stream's writer twice: one is pickled and sent to the tasks, and
when they are done another one is built, to commit or to abort. What was decided and not finished
is finished whenever one is built. But only the first may sweep, as for the second the batch's own
transactions are open; so that happens when a writer is pickled, which is before any task runs.

Invariant: a writer keeps nothing that a later one needs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from millstream.client.kafka import Cluster
from millstream.clock import SystemClock
from millstream.errors import InvalidOption, QueryUnnamed
from millstream.identity import new_name
from millstream.spark.sink.commit_record import CommitRecord
from millstream.spark.sink.committer import Batch, Committer
from millstream.spark.sink.options import SinkOptions
from millstream.spark.sink.rows import check_schema
from millstream.spark.sink.task import (
    Attempt,
    TaskMessage,
    TaskPlan,
    write_at_least_once,
    write_once,
)
from millstream.spark.target_topic import ensure_topic

Messages = Sequence[WriterCommitMessage | None]


def writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """For `table.write`."""
    parsed = _parse(options, schema, overwrite=overwrite)
    _ensure_topic(parsed)
    if not parsed.is_exactly_once:
        return _BatchAtLeastOnce(parsed)
    if parsed.batch_id is not None:
        return _BatchOnce(parsed, f"query/{parsed.name}", is_unique=False)
    is_unique = not parsed.name
    name = new_name("job") if is_unique else f"job/{parsed.name}"
    return _BatchOnce(parsed, name, is_unique=is_unique)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """For `stream.writeStream`."""
    parsed = _parse(options, schema, overwrite=overwrite)
    if not parsed.is_exactly_once:
        _ensure_topic(parsed)
        return _StreamAtLeastOnce(parsed)
    if parsed.batch_id is not None:
        raise InvalidOption(
            name="batchId", value=parsed.batch_id, expected="nothing: a stream numbers its batches"
        )
    name = f"query/{parsed.name}"
    if not parsed.name:
        if not parsed.checkpoint:
            raise QueryUnnamed
        name = f"checkpoint/{parsed.checkpoint}"
        warnings.warn(
            f"the query has no name, and is known by its checkpointLocation {parsed.checkpoint!r}: "
            f"with another one it would write its rows again; set option name or queryName",
            stacklevel=2,
        )
    _ensure_topic(parsed)
    return _StreamOnce(parsed, name)


def _parse(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SinkOptions:
    parsed = SinkOptions.parse(options)
    check_schema(schema, parsed)
    if overwrite:
        raise InvalidOption(name="mode", value="overwrite", expected="append: a topic only grows")
    return parsed


def _ensure_topic(options: SinkOptions) -> None:
    """Before any row is read: a task would find out only when it writes."""
    if options.topic:
        with Cluster(options.cluster) as cluster:
            ensure_topic(cluster, options.topic)


class _Once:
    """What the two exactly-once writers share."""

    def __init__(self, options: SinkOptions, name: str, *, is_stream: bool) -> None:
        self._options = options
        self._name = name
        self._is_stream = is_stream
        self._is_swept = False
        with Cluster(options.cluster) as cluster:
            repeats = is_stream or options.batch_id is not None
            record = self._committer(cluster).recover(repeats=repeats)
        self._plan = TaskPlan(
            options=options, name=name, record=_brief(record), is_stream=is_stream
        )

    def __getstate__(self) -> dict[str, object]:
        if not self._is_swept:
            with Cluster(self._options.cluster) as cluster:
                self._committer(cluster).sweep()
            self._is_swept = True
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_once(self._plan, iterator, Attempt.current())

    def _commit(self, messages: Messages, number: int | None) -> None:
        told = [each for each in messages if isinstance(each, TaskMessage)]
        query_ids = {each.query_id for each in told}
        assert len(query_ids) <= 1
        batch = Batch(
            query_id=query_ids.pop() if query_ids else "",
            number=number,
            parts=[each.part for each in told],
        )
        # A connection of now: a broker takes what comes through an older one for late.
        with Cluster(self._options.cluster) as cluster:
            self._committer(cluster).commit(batch)

    def _abort(self) -> None:
        with Cluster(self._options.cluster) as cluster:
            self._committer(cluster).abort()

    def _committer(self, cluster: Cluster) -> Committer:
        return Committer(
            cluster,
            self._name,
            timeout_ms=self._options.transaction_timeout_ms,
            clock=SystemClock(),
        )


class _StreamOnce(_Once, DataSourceStreamArrowWriter):
    """Writes each row of a stream once."""

    def __init__(self, options: SinkOptions, name: str) -> None:
        _Once.__init__(self, options, name, is_stream=True)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        self._commit(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: ARG002, N803
        self._abort()


class _BatchOnce(_Once, DataSourceArrowWriter):
    """Writes each row of a table once; all of them or none."""

    def __init__(self, options: SinkOptions, name: str, *, is_unique: bool) -> None:
        _Once.__init__(self, options, name, is_stream=False)
        self._is_unique = is_unique

    def commit(self, messages: Messages) -> None:
        self._commit(messages, self._options.batch_id)
        self._forget()

    def abort(self, messages: Messages) -> None:  # noqa: ARG002
        self._abort()
        self._forget()

    def _forget(self) -> None:
        if self._is_unique:
            with Cluster(self._options.cluster) as cluster:
                self._committer(cluster).forget()


class _StreamAtLeastOnce(DataSourceStreamArrowWriter):
    """Writes each row of a stream, and those of a batch that is run again once more."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_at_least_once(self._options, iterator)


class _BatchAtLeastOnce(DataSourceArrowWriter):
    """Writes each row of a table, and those of a task that is run again once more."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_at_least_once(self._options, iterator)


def _brief(record: CommitRecord) -> CommitRecord:
    """What tasks need of it."""
    return replace(record, history=(), prints={}, added=None)
