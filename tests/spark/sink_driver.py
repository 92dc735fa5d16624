"""The sink's driver and tasks in the test's own process: any of their steps can be the last.

A `Dying` stands between them and a real broker. It counts what is asked of it that changes
anything, and dies before or after a given one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from millstream.client.kafka import Cluster, ClusterSettings
from millstream.clock import SystemClock
from millstream.spark.sink.committer import Batch, Committer
from millstream.spark.sink.options import SinkOptions
from millstream.spark.sink.task import Attempt, TaskPlan, write_once
from tests.fakes.patience import HANG_S

CHANGES = {"init", "end", "produce"}


class Died(BaseException):
    """As good as SIGKILL: nothing in the code under test catches it."""


class Life:
    """How many changes there have been, and which of them is the last."""

    def __init__(self, last: int | None = None, *, after: bool = False) -> None:
        self.count = 0
        self._last = last
        self._after = after

    def change(self, act: Any, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        is_last = self.count == self._last
        if is_last and not self._after:
            raise Died
        result = act(*args, **kwargs)
        if is_last:
            raise Died
        return result


class Dying:
    """Whatever it stands before, with a life that may end."""

    def __init__(self, inner: Any, life: Life) -> None:
        self._inner = inner
        self._life = life

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name == "transactions":
            return Dying(value, self._life)
        if name in CHANGES:
            return lambda *args, **kwargs: self._life.change(value, *args, **kwargs)
        return value


class Query:
    """A stream of batches. Each batch is a list of what each of its tasks has."""

    def __init__(self, address: str, name: str, topic: str, *, timeout_ms: int = 60_000) -> None:
        self.name = name
        self._options = SinkOptions(
            cluster=ClusterSettings(bootstrap=address),
            topic=topic,
            name=name,
            transaction_timeout_ms=timeout_ms,
        )
        self.query_id = "first-checkpoint"
        self.run = "run"

    def run_batch(self, number: int, tasks: Sequence[Sequence[bytes]], life: Life) -> None:
        """All that happens in a batch, in the order in which Spark does it."""
        with Cluster(self._options.cluster) as cluster:
            committer = self.committer(cluster, life)
            record = committer.recover()
            committer.sweep()
            plan = TaskPlan(options=self._options, name=self.name, record=record, is_stream=True)
            messages = [self.write(plan, number, task, values) for task, values in enumerate(tasks)]
        with Cluster(self._options.cluster) as cluster:
            committer = self.committer(cluster, life)
            committer.recover()
            batch = Batch(
                query_id=self.query_id, number=number, parts=[each.part for each in messages]
            )
            committer.commit(batch)

    def write(self, plan: TaskPlan, number: int, task: int, values: Sequence[bytes]) -> Any:
        batch = pa.record_batch({"value": pa.array(values, pa.binary())})
        attempt = Attempt(task=task, attempt=0, run=self.run, query_id=self.query_id, batch=number)
        return write_once(plan, iter([batch] if values else []), attempt)

    def committer(self, cluster: Cluster, life: Life | None = None) -> Committer:
        dying: Any = Dying(cluster, life or Life())
        return Committer(
            dying,
            self.name,
            timeout_ms=self._options.transaction_timeout_ms,
            clock=SystemClock(),
        )

    def plan(self) -> TaskPlan:
        with Cluster(self._options.cluster) as cluster:
            record = self.committer(cluster).recover()
        return TaskPlan(options=self._options, name=self.name, record=record, is_stream=True)

    def renamed(self, name: str) -> None:
        self.name = name
        self._options = replace(self._options, name=name)


def committed_values(address: str, topic: str, partitions: int = 1) -> list[bytes]:
    """What a reader that trusts only committed rows finds, with a client that is not ours."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"check-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    places = [TopicPartition(topic, number, 0) for number in range(partitions)]
    try:
        consumer.assign(places)
        found: list[bytes] = []
        ended = 0
        while ended < partitions:
            message = consumer.poll(HANG_S)
            assert message is not None, f"{topic} does not end"
            if message.error() is None:
                found.append(message.value() or b"")
            else:
                ended += 1
        return found
    finally:
        consumer.close()
