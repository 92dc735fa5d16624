"""The same source reads from Apache Kafka: nothing in it relies on our broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from millstream.client.kafka import Cluster
from millstream.errors import DataLost
from millstream.spark.options import SourceOptions
from millstream.spark.stream_reader import StreamReader
from tests.clients.apache_kafka import PASSWORD, USER, ApacheKafka
from tests.fakes.patience import HANG_S
from tests.spark.records import create_topic, produce, produce_transaction
from tests.spark.streams import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as process:
        yield process


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_apache_kafka_is_a_table_and_a_stream(
    spark: SparkSession, kafka: ApacheKafka, topic: str, tmp_path: Path
) -> None:
    create_topic(kafka.address, topic, partitions=2)
    produce(kafka.address, topic, numbers(500), config={"compression.type": "lz4"})
    produce_transaction(kafka.address, topic, numbers(10), partition=1, commit=False)
    produce_transaction(kafka.address, topic, numbers(10, first=10), partition=1, commit=True)
    options = {
        "kafka.bootstrap.servers": kafka.secure_address,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": USER,
        "kafka.sasl.password": PASSWORD,
        "kafka.ssl.ca.location": str(kafka.certificate),
        "kafka.ssl.endpoint.identification.algorithm": "none",
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    frame = spark.read.format("millstream").options(**options, minPartitions="4").load()
    expected = [(0, value) for value in numbers(500)]
    expected += [(1, value) for value in numbers(10, first=10)]
    rows = frame.select("partition", "value").collect()
    assert [(row.partition, bytes(row.value)) for row in rows] == expected

    stream = spark.readStream.format("millstream").options(**options)
    stream = stream.option("maxOffsetsPerTrigger", "200").option("group.id", topic)
    writer = stream.load().writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_to_end(writer.option("path", str(tmp_path / "out")))
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("partition", "offset").collect()
    assert [(row.partition, bytes(row.value)) for row in rows] == expected
    with Cluster(kafka.address) as cluster:
        ends = cluster.offsets([(topic, 0), (topic, 1)], -1)
        assert cluster.committed(topic, list(ends)) == ends


def test_data_that_apache_kafka_deleted_is_an_error(kafka: ApacheKafka, topic: str) -> None:
    create_topic(kafka.address, topic)
    produce(kafka.address, topic, numbers(30))
    words = {"kafka.bootstrap.servers": kafka.address, "subscribe": topic}
    stream = StreamReader(SourceOptions.parse(words, streaming=True))
    start, end = {topic: {"0": 5}}, {topic: {"0": 30}}
    [task] = stream.partitions(start, end)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    for done in admin.delete_records([TopicPartition(topic, 0, 20)]).values():
        done.result(HANG_S)
    for read in (lambda: stream.partitions(start, end), lambda: list(stream.read(task))):
        with pytest.raises(DataLost, match=f"{topic}-0 from offset 5 to 19"):
            read()
    stream.stop()
