"""How a stream is planned batch by batch against a real broker, with no Spark in between."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from millstream.client.kafka import Cluster
from millstream.errors import DataLost
from millstream.spark.options import SourceOptions
from millstream.spark.stream_reader import StreamReader
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.spark.records import add_partitions, create_topic, delete_topic, produce

ALL = ReadAllAvailable()


def reader(broker: BrokerProcess, **words: str) -> StreamReader:
    options = {"kafka.bootstrap.servers": broker.address, "startingOffsets": "earliest", **words}
    return StreamReader(SourceOptions.parse(options, streaming=True))


def rows(stream: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    return [
        value.as_py()
        for task in stream.partitions(start, end)
        for batch in stream.read(task)
        for value in batch.column("value")
    ]


def delete_records(broker: BrokerProcess, topic: str, before: int) -> None:
    """As retention does, but now."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        done.result(HANG_S)


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_stream_is_read_up_to_what_there_is(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.address, topic, partitions=2)
    produce(broker.address, topic, numbers(50), partition=0)
    stream = reader(broker, subscribe=topic)
    start = stream.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}}
    end = stream.latestOffset(start, ALL)
    assert end == {topic: {"0": 50, "1": 0}}
    assert stream.reportLatestOffset() == end
    assert rows(stream, start, end) == numbers(50)
    assert stream.latestOffset(end, ALL) == end
    assert stream.partitions(end, end) == []
    stream.stop()


def test_limits_of_rows_and_bytes_bound_a_batch(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.address, topic)
    config = {"batch.num.messages": 10}
    produce(broker.address, topic, [b"x" * 1000] * 500, config=config)
    stream = reader(broker, subscribe=topic, maxOffsetsPerTrigger="120")
    assert stream.getDefaultReadLimit() == ReadMaxRows(120)
    assert stream.latestOffset({topic: {"0": 100}}, ReadMaxRows(120)) == {topic: {"0": 220}}
    # The trigger wants all: limits do not count.
    assert stream.latestOffset({topic: {"0": 100}}, ALL) == {topic: {"0": 500}}
    stream.stop()
    stream = reader(broker, subscribe=topic, maxBytesPerTrigger="100000")
    assert stream.getDefaultReadLimit() == ReadMaxBytes(100_000)
    end = stream.latestOffset({topic: {"0": 0}}, ReadMaxBytes(100_000))
    assert 80 <= end[topic]["0"] <= 100
    stream.stop()


def test_available_now_ends_where_the_query_began(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.address, topic)
    produce(broker.address, topic, numbers(10))
    stream = reader(broker, subscribe=topic)
    stream.prepareForTriggerAvailableNow()
    produce(broker.address, topic, numbers(10))
    add_partitions(broker.address, topic, total=2)
    produce(broker.address, topic, numbers(10), partition=1)
    end = stream.latestOffset({topic: {"0": 0}}, ALL)
    assert end == {topic: {"0": 10}}
    # A restart whose checkpoint is further than the target has nothing to do.
    assert stream.latestOffset({topic: {"0": 15}}, ALL) == {topic: {"0": 15}}
    stream.stop()


def test_new_partitions_and_topics_are_picked_up(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.address, f"{topic}-one")
    stream = reader(broker, subscribePattern=f"{topic}-.*", startingOffsets="latest")
    start = stream.initialOffset()
    assert start == {f"{topic}-one": {"0": 0}}
    add_partitions(broker.address, f"{topic}-one", total=2)
    create_topic(broker.address, f"{topic}-two")
    produce(broker.address, f"{topic}-one", numbers(3), partition=1)
    produce(broker.address, f"{topic}-two", numbers(4))
    end = stream.latestOffset(start, ReadMaxRows(100))
    assert end == {f"{topic}-one": {"0": 0, "1": 3}, f"{topic}-two": {"0": 4}}
    # Whole from their first record on, though the query itself began at the end.
    assert rows(stream, start, end) == [*numbers(3), *numbers(4)]
    stream.stop()


def test_progress_is_told_to_the_group(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.address, topic)
    produce(broker.address, topic, numbers(10))
    stream = reader(broker, subscribe=topic, **{"group.id": topic})
    with Cluster(broker.address) as cluster:

        def committed() -> int | None:
            return cluster.committed(topic, [(topic, 0)])[topic, 0]

        assert committed() is None
        stream.latestOffset({topic: {"0": 0}}, ALL)
        assert committed() == 0
        # Spark asks for more: what came before is done.
        stream.latestOffset({topic: {"0": 4}}, ALL)
        assert committed() == 4
        stream.commit({topic: {"0": 10}})
        assert committed() == 10
    stream.stop()


def test_group_that_a_consumer_has_joined_does_not_end_the_query(
    broker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(broker.address, topic)
    produce(broker.address, topic, numbers(10))
    stream = reader(broker, subscribe=topic, **{"group.id": topic})
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": topic})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    for at in (4, 7):
        assert stream.latestOffset({topic: {"0": at}}, ALL) == {topic: {"0": 10}}
    [warning] = [each.message for each in caplog.records if topic in each.message]
    assert warning.startswith(f"group {topic} is not told of progress: ")
    assert "UNKNOWN_MEMBER_ID" in warning
    consumer.close()
    stream.commit({topic: {"0": 10}})
    with Cluster(broker.address) as cluster:
        assert cluster.committed(topic, [(topic, 0)]) == {(topic, 0): 10}
    stream.stop()


def test_data_that_retention_took_is_an_error_or_a_warning(
    broker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(broker.address, topic)
    produce(broker.address, topic, numbers(30))
    strict = reader(broker, subscribe=topic)
    lenient = reader(broker, subscribe=topic, failOnDataLoss="false", maxBytesPerTrigger="1000000")
    start, end = {topic: {"0": 5}}, {topic: {"0": 30}}
    tasks = strict.partitions(start, end)
    delete_records(broker, topic, 20)
    with pytest.raises(DataLost, match=f"{topic}-0 from offset 5 to 19 .*failOnDataLoss=false"):
        strict.partitions(start, end)
    # A task that was planned before.
    with pytest.raises(DataLost, match=f"{topic}-0 from offset 5 to 19"):
        list(strict.read(tasks[0]))
    assert lenient.latestOffset(start, ReadMaxBytes(1_000_000)) == end
    with caplog.at_level(logging.WARNING, "millstream.spark"):
        assert rows(lenient, start, end) == numbers(10, first=20)
        values = [v.as_py() for batch in lenient.read(tasks[0]) for v in batch.column("value")]
    assert values == numbers(10, first=20)
    assert caplog.text.count(f"{topic}-0 from offset 5 to 19") == 2
    for stream in (strict, lenient):
        stream.stop()


def test_topic_that_is_deleted_and_made_anew_is_read_anew(
    broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.address, topic)
    produce(broker.address, topic, numbers(30))
    strict = reader(broker, subscribe=topic)
    lenient = reader(broker, subscribe=topic, failOnDataLoss="false", **{"group.id": topic})
    start = {topic: {"0": 30}}
    tasks = strict.partitions({topic: {"0": 0}}, start)
    delete_topic(broker.address, topic)
    with pytest.raises(DataLost, match=f"{topic}-0 from offset 30 on"):
        strict.latestOffset(start, ALL)
    with pytest.raises(DataLost, match="the partition is gone"):
        list(strict.read(tasks[0]))
    assert lenient.latestOffset(start, ALL) == {}
    assert list(lenient.read(tasks[0])) == []
    create_topic(broker.address, topic)
    produce(broker.address, topic, numbers(7))
    with pytest.raises(DataLost, match="made anew"):
        strict.latestOffset(start, ALL)
    assert lenient.latestOffset(start, ALL) == {topic: {"0": 7}}
    assert rows(lenient, start, {topic: {"0": 7}}) == numbers(7)
    for stream in (strict, lenient):
        stream.stop()


def test_large_ranges_are_split_when_asked(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.address, topic)
    produce(broker.address, topic, numbers(1000))
    stream = reader(broker, subscribe=topic, minPartitions="4")
    start, end = {topic: {"0": 0}}, {topic: {"0": 1000}}
    assert len(stream.partitions(start, end)) == 4
    assert rows(stream, start, end) == numbers(1000)
    stream.stop()
