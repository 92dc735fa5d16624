"""Pipelines from topics to topics and tables: what comes out, what is dead, and going on later."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from millstream.client.kafka import Cluster
from millstream.clock import SystemClock
from millstream.errors import InvalidPipeline, PipelineFailed
from millstream.spark.pipeline.declaration import read
from millstream.spark.pipeline.registry import Registry
from tests.clients.broker_process import BrokerProcess
from tests.spark.pipelines import contents, output, run_once
from tests.spark.records import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

FILE = """\
name: {topic}
kafka: {{bootstrap.servers: "{address}"}}
sources:
  - name: orders
    topic: {topic}
    format: json
    schema:
      id: bigint not null
      category: string
      price: double
      at: timestamp
    watermark: {{column: at, delay: 1 second}}
steps:
  - name: revenue
    sql: |
      SELECT window.start AS minute, category, count(*) AS n, sum(price) AS revenue
      FROM orders GROUP BY window(at, '1 minute'), category
sinks:
  - from: revenue
    topic: {topic}.revenue
    key: category
    output: update
  - from: revenue
    delta: totals
    upsert_by: [minute, category]
    output: update
  - from: orders
    delta: table
trigger: once
spark:
  spark.master: local[2]
  spark.driver.memory: 1g
  spark.sql.shuffle.partitions: 2
"""


def orders(start: int, count: int) -> Iterator[bytes]:
    """One in ten of them is no order."""
    for number in range(start, start + count):
        if number % 10 == 3:
            yield f"order {number}".encode()
            continue
        order = {"id": number, "category": "abc"[number % 3], "price": 2.0}
        yield json.dumps({**order, "at": f"2026-01-01T00:{number // 60 % 60:02}:00Z"}).encode()


def write(home: Path, topic: str, address: str) -> Path:
    path = home / "pipeline.yaml"
    path.write_text(FILE.format(topic=topic, address=address))
    return path


def table(home: Path) -> list[int]:
    rows = deltalake.DeltaTable(str(home / "table")).to_pyarrow_table()
    return sorted(rows.column("id").to_pylist())


def good(count: int) -> list[int]:
    return [number for number in range(count) if number % 10 != 3]


def test_rows_come_out_once_over_several_runs_and_again_after_a_reset(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic)
    path = write(tmp_path, topic, broker.address)
    pipeline = read(path)
    with Cluster(broker.address) as cluster:
        produce(broker.address, topic, orders(0, 100))
        first = run_once(pipeline, spark, cluster)[-1]
        produce(broker.address, topic, orders(100, 100))
        second = run_once(pipeline, spark, cluster)[-1]
        published = Registry(cluster, SystemClock()).get(topic)
        groups = cluster.committed(f"{topic}.orders-delta", [(topic, 0)])

    assert (first["state"], first["bad_rows"], first["lag"]) == ("finished", 10, 0)
    assert (second["state"], second["bad_rows"], second["lag"]) == ("finished", 10, 0)
    assert published == second
    assert groups == {(topic, 0): 200}
    assert table(tmp_path) == good(200)
    sums = Counter[str]()
    latest = {}
    for message in contents(broker.address, f"{topic}.revenue"):
        value = json.loads(message.value())
        latest[value["minute"], message.key().decode()] = value
    for (_, category), value in latest.items():
        sums[category] += value["n"]
        assert value["revenue"] == 2.0 * value["n"]
        assert value["category"] == category
    totals = deltalake.DeltaTable(str(tmp_path / "totals")).to_pyarrow_table().to_pylist()
    assert {(each["category"], each["n"], each["revenue"]) for each in totals} == {
        (each["category"], each["n"], each["revenue"]) for each in latest.values()
    }
    assert len(totals) == len(latest)
    assert sums == Counter("abc"[number % 3] for number in good(200))
    letters = contents(broker.address, f"{topic}.dead-letters")
    assert [each.value() for each in letters] == [b"order %d" % n for n in range(3, 200, 10)]

    assert "begins anew" in output("reset", str(path), "--yes")
    assert not (tmp_path / "checkpoints" / topic / "g1").exists()
    with Cluster(broker.address) as cluster:
        anew = run_once(pipeline, spark, cluster)[-1]
    assert (anew["generation"], anew["bad_rows"]) == (2, 20)
    assert table(tmp_path) == sorted(good(200) * 2)


ROWS = """\
name: {topic}
kafka: {{bootstrap.servers: "{address}"}}
sources:
  - {{name: lines, topic: {topic}}}
steps:
  - {{name: twice, sql: "SELECT offset, partition AS offset FROM lines"}}
sinks:
  - {sink}
trigger: once
"""
PARQUET = "{from: lines, parquet: rows}"
AMBIGUOUS = "{from: twice, topic: out}"


def test_parquet_of_an_earlier_beginning_is_in_the_way_of_a_new_one(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic)
    path = tmp_path / "pipeline.yaml"
    path.write_text(ROWS.format(topic=topic, address=broker.address, sink=PARQUET))
    pipeline = read(path)
    folder = tmp_path / "rows"

    def offsets() -> list[int]:
        return sorted(row.offset for row in spark.read.parquet(str(folder)).collect())

    with Cluster(broker.address) as cluster:
        for start in (0, 10):
            produce(broker.address, topic, orders(start, 10))
            run_once(pipeline, spark, cluster)
        assert offsets() == list(range(20))
        # As a reset does, with rows that came after it.
        snapshot = {"pipeline": topic, "generation": 2, "state": "reset", "at": 0}
        Registry(cluster, SystemClock()).publish(topic, snapshot)
        produce(broker.address, topic, orders(20, 10))
        with pytest.raises(InvalidPipeline, match="move that away"):
            run_once(pipeline, spark, cluster)
        folder.rename(tmp_path / "rows of before")
        run_once(pipeline, spark, cluster)
        assert offsets() == list(range(30))


def test_query_that_spark_does_not_start_fails_the_pipeline_with_its_reason(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic)
    path = tmp_path / "pipeline.yaml"
    path.write_text(ROWS.format(topic=topic, address=broker.address, sink=AMBIGUOUS))
    with (
        Cluster(broker.address) as cluster,
        pytest.raises(PipelineFailed, match=r"'twice-topic' failed: .* is ambiguous"),
    ):
        run_once(read(path), spark, cluster)
