"""Spark in the quick tests: one stream from topic to topic, and one pipeline, each row by row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake

from millstream.client.kafka import Cluster
from millstream.clock import SystemClock
from millstream.spark.pipeline.declaration import read
from millstream.spark.pipeline.registry import Registry
from tests.clients.broker_process import BrokerProcess
from tests.spark.pipelines import contents, run_once
from tests.spark.records import create_topic, produce
from tests.spark.streams import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2
HEADERS = [("trace", b"\x00\xff"), ("empty", None)]


def test_stream_copies_each_record_once_and_a_batch_reads_the_copies(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    copy = f"{topic}-copy"
    for name in (topic, copy):
        create_topic(broker.address, name, partitions=PARTITIONS)
    servers = {"kafka.bootstrap.servers": broker.address, "includeHeaders": "true"}

    def send(first: int, count: int) -> None:
        for partition in range(PARTITIONS):
            values = [_value(partition, number) for number in range(first, first + count)]
            key = b"k%d" % partition
            produce(broker.address, topic, values, partition=partition, key=key, headers=HEADERS)

    def run() -> None:
        records = (
            spark.readStream.format("millstream")
            .options(**servers, subscribe=topic, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "60")
            .load()
        )
        run_to_end(
            records.select("key", "value", "headers", "partition")
            .writeStream.format("millstream")
            .option("kafka.bootstrap.servers", broker.address)
            .option("topic", copy)
            .queryName(copy)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )

    send(0, 50)
    run()
    # From the checkpoint on.
    send(50, 10)
    run()
    frame = spark.read.format("millstream").options(**servers, subscribe=copy).load()
    rows = frame.orderBy("partition", "offset").collect()
    assert [
        (row.partition, row.key, row.value, [(each.key, each.value) for each in row.headers])
        for row in rows
    ] == [
        (partition, b"k%d" % partition, _value(partition, number), HEADERS)
        for partition in range(PARTITIONS)
        for number in range(60)
    ]


def _value(partition: int, number: int) -> bytes | None:
    return None if number % 10 == 9 else b"%d-%d" % (partition, number)


PIPELINE = """\
name: {topic}
kafka: {{bootstrap.servers: "{address}"}}
sources:
  - name: orders
    topic: {topic}
    format: json
    schema: {{id: bigint not null, category: string, price: double}}
steps:
  - name: priced
    sql: SELECT id, category, price * 2 AS total FROM orders WHERE category <> 'free'
sinks:
  - from: priced
    topic: {topic}.priced
    key: category
  - from: priced
    delta: table
    partition_by: category
trigger: once
"""


def test_pipeline_writes_each_row_once_and_bad_rows_to_the_dead_letters(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic)
    produce(broker.address, topic, [_order(number) for number in range(40)])
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(topic=topic, address=broker.address))
    with Cluster(broker.address) as cluster:
        last = run_once(read(path), spark, cluster)[-1]
        published = Registry(cluster, SystemClock()).get(topic)

    assert (last["state"], last["bad_rows"], last["lag"]) == ("finished", 4, 0)
    assert published == last
    expected = [
        {"id": number, "category": category, "total": number * 3.0}
        for number in range(40)
        if (category := _category(number)) != "free" and not _is_bad(number)
    ]
    records = contents(broker.address, f"{topic}.priced")
    assert [json.loads(each.value()) for each in records] == expected
    assert [each.key().decode() for each in records] == [row["category"] for row in expected]
    assert _rows_of(tmp_path / "table") == expected
    letters = contents(broker.address, f"{topic}.dead-letters")
    assert [(each.value(), dict(each.headers())) for each in letters] == [
        (
            _order(offset),
            {
                "millstream-reason": b"the value is no JSON object",
                "millstream-source-topic": topic.encode(),
                "millstream-source-partition": b"0",
                "millstream-source-offset": b"%d" % offset,
                "millstream-pipeline": topic.encode(),
            },
        )
        for offset in range(40)
        if _is_bad(offset)
    ]


def _order(number: int) -> bytes:
    if _is_bad(number):
        return b"order %d" % number
    order = {"id": number, "category": _category(number), "price": number * 1.5}
    return json.dumps(order).encode()


def _is_bad(number: int) -> bool:
    return number % 10 == 3


def _category(number: int) -> str:
    return ("books", "toys", "free")[number % 3]


def _rows_of(table: Path) -> list[dict[str, Any]]:
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["id", "category", "total"])
    return sorted(rows.to_pylist(), key=lambda row: int(row["id"]))
