"""What a task does: write its rows, or only count them, and tell the driver.

Runs in an executor, and knows of the batch what its driver has read before, and what Spark's
TaskContext says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from millstream.client.kafka import Cluster
from millstream.clock import SystemClock
from millstream.errors import MillstreamError
from millstream.spark.fingerprint import Fingerprint
from millstream.spark.sink.commit_record import CommitRecord, TaskTransaction
from millstream.spark.sink.committer import Part, id_prefix
from millstream.spark.sink.options import SinkOptions
from millstream.spark.sink.rows import sink_columns
from millstream.spark.sink.standing import Standing, standing
from millstream.spark.sink.topic_writer import TopicWriter

_RUN_DIGITS = 8


@dataclass(frozen=True, kw_only=True)
class TaskMessage(WriterCommitMessage):
    """To the driver, with Spark's own message of a task's end."""

    query_id: str
    part: Part


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """From the driver, before the tasks run."""

    options: SinkOptions
    name: str
    record: CommitRecord
    """As it was when the batch was planned."""
    is_stream: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Who a task is: what Spark says of it."""

    task: int
    attempt: int
    run: str
    """Of the query; another one each time that it is started."""
    query_id: str = ""
    batch: int | None = None

    @classmethod
    def current(cls) -> Self:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        return cls(
            task=context.partitionId(),
            attempt=context.attemptNumber(),
            run=(context.getLocalProperty("spark.jobGroup.id") or "job")[:_RUN_DIGITS],
            query_id=context.getLocalProperty("sql.streaming.queryId") or "",
            batch=None if batch is None else int(batch),
        )

    def transactional_id(self, name: str) -> str:
        """Used again by the next batch. Other attempts of a task and other runs of a query have
        others, so that none of them fences one that counts.
        """
        return f"{id_prefix(name)}{self.run}/{self.task}.{self.attempt}"


def write_once(plan: TaskPlan, batches: Iterator[pa.RecordBatch], attempt: Attempt) -> TaskMessage:
    """Write the rows of a task inside a transaction that stays open."""
    task = attempt.task
    batch = attempt.batch if plan.is_stream else plan.options.batch_id
    kind = standing(plan.record, query_id=attempt.query_id, batch=batch)
    lost = {each.task for each in plan.record.transactions}
    if kind is Standing.WRITE or (kind is Standing.REPAIR and task in lost):
        fingerprint, transaction = _write(plan, batches, attempt)
    else:
        fingerprint, transaction = _count(batches), None
    part = Part(task=task, standing=kind, fingerprint=fingerprint, transaction=transaction)
    return TaskMessage(query_id=attempt.query_id, part=part)


def write_at_least_once(
    options: SinkOptions, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """Write the rows of a task; when this returns, all are stored."""
    context = TaskContext.get()
    assert context is not None
    with Cluster(options.cluster) as cluster:
        writer = TopicWriter(cluster, options, task=context.partitionId(), clock=SystemClock())
        try:
            for batch in batches:
                writer.write(sink_columns(batch))
            writer.finish()
        finally:
            writer.close()
    return WriterCommitMessage()


def _count(batches: Iterator[pa.RecordBatch]) -> Fingerprint:
    fingerprint = Fingerprint()
    for batch in batches:
        fingerprint.add(sink_columns(batch))
    return fingerprint


def _write(
    plan: TaskPlan, batches: Iterator[pa.RecordBatch], attempt: Attempt
) -> tuple[Fingerprint, TaskTransaction | None]:
    fingerprint = Fingerprint()
    with Cluster(plan.options.cluster) as cluster:
        writer = TopicWriter(
            cluster,
            plan.options,
            task=attempt.task,
            clock=SystemClock(),
            transactional_id=attempt.transactional_id(plan.name),
        )
        try:
            for batch in batches:
                columns = sink_columns(batch)
                fingerprint.add(columns)
                writer.write(columns)
            return fingerprint, writer.finish()
        except BaseException:
            # What went wrong is raised again; an abort that fails is the driver's to repeat.
            with suppress(MillstreamError):
                writer.give_up()
            raise
        finally:
            writer.close()
