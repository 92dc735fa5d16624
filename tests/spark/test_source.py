"""Topics as Spark tables and streams, from a real broker through a real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from millstream.client.kafka import Cluster
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import wait_until
from tests.fakes.ports import fixed_port
from tests.spark.records import create_topic, produce, produce_transaction
from tests.spark.streams import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.system

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
AT_MS = 1_700_000_000_000


def table(spark: SparkSession, broker: BrokerProcess, **options: str) -> DataFrame:
    reader = spark.read.format("millstream").option("kafka.bootstrap.servers", broker.address)
    return reader.options(**options).load()


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in frame.select("value").collect()]


@pytest.fixture(scope="module")
def timed_topic(broker: BrokerProcess) -> str:
    """Two partitions of 100 records, a second apart."""
    topic = "timed"
    create_topic(broker.address, topic, partitions=2, config={"retention.ms": "-1"})
    for partition in range(2):
        values = [b"%d-%d" % (partition, number) for number in range(100)]
        produce(broker.address, topic, values, partition=partition, timestamp=AT_MS, every_ms=1000)
    return topic


def test_topic_is_a_table(spark: SparkSession, broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.address, topic, config={"retention.ms": "-1"})
    headers = [("a", b"\x00\xff"), ("b", None)]
    produce(broker.address, topic, [b"v"], key=b"k", headers=headers, timestamp=AT_MS)
    produce(broker.address, topic, [None], timestamp=AT_MS + 1)
    frame = table(spark, broker, subscribe=topic, includeHeaders="true")
    first, second = frame.collect()
    assert frame.columns[:4] == ["key", "value", "topic", "partition"]
    assert frame.columns[4:] == ["offset", "timestamp", "timestampType", "headers"]
    assert (first.key, first.value, first.topic) == (b"k", b"v", topic)
    assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
    assert first.timestamp.astimezone(UTC) == datetime.fromtimestamp(AT_MS / 1000, UTC)
    assert [(each.key, each.value) for each in first.headers] == headers
    assert (second.key, second.value, second.offset) == (None, None, 1)
    assert not second.headers


def test_columns_are_chosen_by_option_schema_and_sql(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.address, topic)
    produce(broker.address, topic, numbers(3))
    assert table(spark, broker, subscribe=topic, columns="offset,value").columns == [
        "offset",
        "value",
    ]
    reader = spark.read.format("millstream").schema("value binary")
    frame = reader.option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)
    assert [tuple(row) for row in frame.load().collect()] == [(v,) for v in numbers(3)]
    spark.sql(
        f"""CREATE TEMPORARY VIEW numbers USING millstream
        OPTIONS (`kafka.bootstrap.servers` '{broker.address}', subscribe '{topic}')"""
    )
    total = spark.sql("SELECT sum(cast(cast(value AS string) AS int)) AS total FROM numbers")
    assert total.collect()[0].total == 3
    spark.catalog.dropTempView("numbers")


def test_ranges_are_bounded_by_offsets_and_times(
    spark: SparkSession, broker: BrokerProcess, timed_topic: str
) -> None:
    by_offset = table(
        spark,
        broker,
        subscribe=timed_topic,
        startingOffsets=f'{{"{timed_topic}": {{"0": 98, "1": -2}}}}',
        endingOffsets=f'{{"{timed_topic}": {{"0": -1, "1": 2}}}}',
    )
    assert values(by_offset) == [b"0-98", b"0-99", b"1-0", b"1-1"]
    by_time = table(
        spark,
        broker,
        assign=f'{{"{timed_topic}": [1]}}',
        startingTimestamp=str(AT_MS + 50_500),
        endingTimestamp=str(AT_MS + 53_000),
    )
    assert values(by_time) == [b"1-51", b"1-52"]


def test_filters_spare_the_reading_when_asked(
    spark: SparkSession, broker: BrokerProcess, timed_topic: str
) -> None:
    def frame() -> DataFrame:
        return table(spark, broker, subscribe=timed_topic, pushFilters="true", minPartitions="4")

    narrow = frame().where("partition = 1 AND offset >= 20 AND offset < 22")
    assert narrow.rdd.getNumPartitions() == 2
    assert values(narrow) == [b"1-20", b"1-21"]
    assert "Filter (" not in narrow._jdf.queryExecution().executedPlan().toString()
    late = frame().where(f"timestamp > timestamp_millis({AT_MS + 97_000})")
    assert sorted(values(late)) == [b"0-98", b"0-99", b"1-98", b"1-99"]
    assert values(frame().where("partition = 7")) == []
    spark.conf.set(PUSHDOWN, "false")
    try:
        with pytest.raises(PySparkException, match=PUSHDOWN):
            frame().collect()
    finally:
        spark.conf.set(PUSHDOWN, "true")


def test_table_that_is_filtered_in_several_ways_loses_nothing(
    spark: SparkSession, broker: BrokerProcess, timed_topic: str
) -> None:
    frame = table(spark, broker, subscribe=timed_topic)
    first, second = frame.where("partition = 0"), frame.where("partition = 1 AND offset < 5")
    assert values(frame.where("partition = 7")) == []
    assert frame.count() == 200
    assert first.union(second).count() == 105


def test_aborted_records_are_read_only_when_asked_for(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.address, topic)
    produce_transaction(broker.address, topic, numbers(10), commit=True)
    produce_transaction(broker.address, topic, numbers(10, first=10), commit=False)
    produce_transaction(broker.address, topic, numbers(10, first=20), commit=True)
    # Several tasks meet the same transactions.
    committed = table(spark, broker, subscribe=topic, minPartitions="3")
    assert values(committed) == [*numbers(10), *numbers(10, first=20)]
    everything = table(spark, broker, subscribe=topic, isolation="read_uncommitted")
    assert values(everything) == numbers(30)


def test_wrong_names_are_errors_that_say_so(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    with pytest.raises(PySparkException, match=f"no topic.*{topic}"):
        table(spark, broker, subscribe=topic).collect()
    with pytest.raises(PySparkException, match="did you mean subscribe"):
        table(spark, broker, subscribes=topic).collect()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the test may kill."""
    with BrokerProcess(tmp_path / "own", port=fixed_port()) as broker:
        yield broker


def test_files_of_a_dead_broker_are_scanned(
    spark: SparkSession, own_broker: BrokerProcess, topic: str
) -> None:
    create_topic(own_broker.address, topic, partitions=2, config={"segment.bytes": "2048"})
    config = {"batch.num.messages": 20}
    produce(own_broker.address, topic, numbers(1000), partition=0, config=config)
    produce_transaction(own_broker.address, topic, numbers(500), partition=1, commit=False)
    produce_transaction(own_broker.address, topic, numbers(500), partition=1, commit=True)
    own_broker.kill()
    segments = own_broker.segments(topic)
    assert len(segments) > 2
    with segments[-1].open("r+b") as torn:
        # As a crash leaves it: the beginning of a batch that was never acknowledged.
        size = torn.seek(0, 2)
        torn.seek(_end_of_batches(segments[-1].read_bytes()))
        torn.write((1000).to_bytes(8, "big") + (5000).to_bytes(4, "big") + b"\x00\x00\x00\x00\x02")
        torn.truncate(max(size, torn.tell()))
    frame = spark.read.format("millstream").option("subscribe", topic).load(str(own_broker.data))
    # A task for each segment, and some more for the other partition.
    assert frame.rdd.getNumPartitions() > len(segments)
    assert values(frame.where("partition = 0")) == numbers(1000)
    assert values(frame.where("partition = 1")) == numbers(500)
    reader = spark.read.format("millstream").option("subscribe", topic)
    tail = reader.option("pushFilters", "true").load(str(own_broker.data))
    tail = tail.where("partition = 0 AND offset >= 990")
    assert tail.rdd.getNumPartitions() == 1
    assert values(tail) == numbers(10, first=990)


def _end_of_batches(log: bytes) -> int:
    position = 0
    while length := int.from_bytes(log[position + 8 : position + 12], "big"):
        position += length + 12
    return position


def test_query_goes_on_while_the_broker_is_killed_and_restarted(
    spark: SparkSession, own_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(own_broker.address, topic, partitions=2)
    for partition in range(2):
        produce(own_broker.address, topic, numbers(400), partition=partition)
    stream = (
        spark.readStream.format("millstream")
        .option("kafka.bootstrap.servers", own_broker.address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "400")
        .option("group.id", topic)
        .load()
    )

    offsets = tmp_path / "checkpoint" / "offsets"

    def kill_in_the_next_batch(done: int) -> None:
        wait_until(lambda: _batches(offsets) > done, "the next batch")
        own_broker.kill_and_restart()

    def run() -> None:
        writer = stream.select("partition", "offset", "value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(kill_in_the_next_batch, _batches(offsets))
            run_to_end(writer.option("path", str(tmp_path / "out")))
            killing.result()

    run()
    produce(own_broker.address, topic, numbers(100, first=400))
    # From its checkpoint on.
    run()
    got = spark.read.parquet(str(tmp_path / "out")).orderBy("partition", "offset")
    assert values(got) == [*numbers(500), *numbers(400)]
    with Cluster(own_broker.address) as cluster:
        places = [(topic, 0), (topic, 1)]
        assert cluster.committed(topic, places) == {(topic, 0): 500, (topic, 1): 400}


def _batches(offsets: Path) -> int:
    """How many batches Spark has planned."""
    return len(list(offsets.glob("[0-9]*")))
