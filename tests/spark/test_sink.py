"""Rows of Spark into topics, by the format that Spark finds by itself."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from millstream.broker.partitioner import partition_of
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.spark.records import create_topic
from tests.spark.sink_driver import committed_values
from tests.spark.streams import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.system

PARTITIONS = 3
ROWS = 1_000


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_table_is_written_by_key_with_its_headers(
    spark: SparkSession, broker: BrokerProcess, topic: str, delivery: str
) -> None:
    create_topic(broker.address, topic, partitions=PARTITIONS)
    rows = spark.range(ROWS).selectExpr(
        "cast(id % 7 as string) as key",
        "cast(id as string) as value",
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers",
        "'left out' as other",
    )
    options = {"topic": topic, "delivery": delivery, "compression": "zstd"}
    _save(rows, broker, options)
    assert sorted(map(int, committed_values(broker.address, topic, PARTITIONS))) == list(
        range(ROWS)
    )
    message = _first(broker.address, topic, partition_of(b"3", PARTITIONS))
    assert partition_of(message.key() or b"", PARTITIONS) == partition_of(b"3", PARTITIONS)
    assert message.headers() == [("h", b"x")]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_topic_that_is_not_there_is_created_by_the_broker(
    spark: SparkSession, broker: BrokerProcess, topic: str, delivery: str
) -> None:
    _save(spark.range(5).selectExpr("cast(id as string) as value"), broker, {"topic": topic})
    rows = spark.range(5).selectExpr("cast(id as string) as value", f"'{topic}-2' as topic")
    _save(rows, broker, {"delivery": delivery})
    for name in (topic, f"{topic}-2"):
        assert sorted(map(int, committed_values(broker.address, name, 1))) == list(range(5))


def test_topic_that_no_broker_creates_is_named_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    strict = BrokerProcess(
        tmp_path / "strict", settings="[topics]\nauto.create.topics.enable = false\n"
    )
    strict.start()
    try:
        rows = spark.range(5).selectExpr("cast(id as string) as value")
        with pytest.raises(Exception, match="there is no topic 'nowhere' to write to") as refused:
            _save(rows, strict, {"topic": "nowhere"})
        command = f"millstream topic create nowhere --bootstrap {strict.address}"
        assert command in str(refused.value)
    finally:
        strict.stop()


def test_rows_go_where_their_columns_say(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    names = [f"{topic}-{number}" for number in range(2)]
    for name in names:
        create_topic(broker.address, name, partitions=2)
    rows = spark.range(100).selectExpr(
        "cast(cast(id as string) as binary) as key",
        "cast(id as string) as value",
        f"concat('{topic}-', id % 2) as topic",
        "1 as partition",
    )
    _save(rows, broker, {})
    for number, name in enumerate(names):
        assert committed_values(broker.address, name, 1) == []  # of partition 0
        found = sorted(map(int, committed_values(broker.address, name, 2)))
        assert found == list(range(number, 100, 2))


def test_task_that_fails_leaves_no_row_to_be_read(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.address, topic)
    rows = spark.range(ROWS).selectExpr(
        "if(id = 900, raise_error('no'), cast(id as string)) as value"
    )
    with pytest.raises(Exception, match="no"):
        _save(rows, broker, {"topic": topic})
    assert committed_values(broker.address, topic) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "set option topic"),
        ({"topic": "t", "delivery": "twice"}, "exactly-once or at-least-once"),
        ({"topic": "t", "topics": "t"}, "there is no option 'topics'"),
        ({"topic": "t", "batchId": "1"}, "the name of the query"),
    ],
)
def test_wrong_option_is_refused_with_what_to_do(
    spark: SparkSession, broker: BrokerProcess, options: Mapping[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        _save(spark.range(1).selectExpr("cast(id as string) as value"), broker, options)


def test_same_batch_number_is_written_once(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.address, topic)
    for batch in (0, 0, 1, 1):
        rows = spark.range(batch * 10, batch * 10 + 10).selectExpr("cast(id as string) as value")
        _save(rows, broker, {"topic": topic, "name": topic, "batchId": str(batch)})
    assert sorted(map(int, committed_values(broker.address, topic))) == list(range(20))


def test_stream_that_loses_its_checkpoint_writes_nothing_twice(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic)
    _add_numbers(tmp_path, 0)
    _add_numbers(tmp_path, 1)
    _stream(spark, broker, topic, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    # All files in one batch now, where there were two.
    _stream(spark, broker, topic, tmp_path, files=10)
    _add_numbers(tmp_path, 2)
    _stream(spark, broker, topic, tmp_path)
    assert sorted(map(int, committed_values(broker.address, topic))) == list(range(30))

    shutil.rmtree(tmp_path / "checkpoint")
    _add_numbers(tmp_path, 3)
    with pytest.raises(Exception, match="checkpoint is lost or an older one"):
        _stream(spark, broker, topic, tmp_path, files=10)
    assert sorted(map(int, committed_values(broker.address, topic))) == list(range(30))


def _stream(
    spark: SparkSession, broker: BrokerProcess, topic: str, home: Path, *, files: int = 1
) -> None:
    run_to_end(
        spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", str(files))
        .parquet(str(home / "numbers"))
        .selectExpr("cast(id as string) as value")
        .writeStream.format("millstream")
        .option("kafka.bootstrap.servers", broker.address)
        .option("topic", topic)
        .queryName(topic)
        .option("checkpointLocation", str(home / "checkpoint"))
    )


def _add_numbers(home: Path, number: int) -> None:
    (home / "numbers").mkdir(exist_ok=True)
    ids = pa.array(range(number * 10, number * 10 + 10), pa.int64())
    pq.write_table(pa.table({"id": ids}), home / "numbers" / f"{number}.parquet")


def _save(rows: DataFrame, broker: BrokerProcess, options: Mapping[str, str]) -> None:
    writer = rows.write.format("millstream").mode("append")
    writer.option("kafka.bootstrap.servers", broker.address).options(**options).save()


def _first(address: str, topic: str, partition: int) -> Message:
    """The first committed message of a partition."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": topic, "isolation.level": "read_committed"}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        message = consumer.poll(HANG_S)
        assert message is not None
        assert message.error() is None
        return message
    finally:
        consumer.close()
