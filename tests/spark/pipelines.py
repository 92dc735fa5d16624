"""Pipelines as tests run them: in the shared session, or by the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from millstream.client.kafka import Cluster
from millstream.clock import SystemClock
from millstream.spark.pipeline import queries
from millstream.spark.pipeline.model import Pipeline
from millstream.spark.pipeline.registry import Registry
from millstream.spark.pipeline.runner import Runner
from tests.fakes.child_process import ChildProcess
from tests.fakes.patience import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_once(pipeline: Pipeline, spark: SparkSession, cluster: Cluster) -> list[dict[str, Any]]:
    """Run a pipeline until it ends; returns all that it told."""
    told: list[dict[str, Any]] = []
    clock = SystemClock()
    registry = Registry(cluster, clock)
    registry.create()
    for name in queries.written_topics(pipeline):
        cluster.create_topic(name, exist_ok=True)
    generation = registry.generation(pipeline.name)
    runner = Runner(pipeline, spark, registry, clock, generation=generation, tell=told.append)
    runner.run()
    return told


def contents(address: str, topic: str) -> list[Any]:
    """All committed records of a topic of one partition."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none"})
    try:
        place = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=HANG_S)
        consumer.assign([place])
        found = []
        # Transaction markers have offsets too.
        while consumer.position([place])[0].offset < end:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(message)
        return found
    finally:
        consumer.close()


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "millstream", "pipeline", *words]


def output(*words: str) -> str:
    with ChildProcess(*command(*words)) as process:
        finished = process.finish()
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
