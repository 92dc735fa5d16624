"""A pipeline on a Spark cluster of several processes, one of which dies in the middle."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from millstream.client.kafka import LATEST, Cluster, StreamFetcher
from millstream.records.arrow import ColumnReader
from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ChildProcess
from tests.fakes.patience import wait_until
from tests.spark.records import create_topic, produce
from tests.spark.standalone_cluster import StandaloneCluster

PARTITIONS = 4
ROWS = 24_000
PIPELINE = """
name: numbers
kafka:
  bootstrap.servers: {address}
sources:
  - name: records
    topic: {topic}
    options:
      maxOffsetsPerTrigger: 1000
steps:
  - name: numbers
    sql: SELECT CAST(CAST(value AS string) AS bigint) AS n FROM records
sinks:
  - name: table
    from: numbers
    delta: table
  - name: copy
    from: numbers
    topic: {topic}.copy
trigger:
  interval: 100 ms
spark:
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
  spark.driver.memory: 512m
  spark.executor.memory: 512m
  spark.sql.shuffle.partitions: 2
"""


@pytest.mark.torture
def test_worker_killed_in_the_middle_leaves_every_row_once(
    java: None, tmp_path: Path, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.address, topic, partitions=PARTITIONS)
    for number in range(PARTITIONS):
        values = (b"%d" % n for n in range(number, ROWS, PARTITIONS))
        produce(broker.address, topic, values, partition=number)
    file = tmp_path / "numbers.yaml"
    file.write_text(PIPELINE.format(address=broker.address, topic=topic))
    with (
        StandaloneCluster(tmp_path / "cluster", workers=2) as spark,
        Cluster(broker.address) as kafka,
        (tmp_path / "pipeline.log").open("wb") as log,
    ):
        command = ["pipeline", "run", str(file), "--master", spark.url]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        words = [sys.executable, "-m", "millstream", *command]
        with ChildProcess(*words, env=environment, stdout=log, stderr=log) as driver:

            def has_read(query: str, rows: int) -> bool:
                assert driver.is_running, Path(log.name).read_text()
                return _read_by(kafka, topic, query) >= rows

            wait_until(lambda: has_read("table", ROWS // 4), "a quarter of the rows")
            assert not has_read("table", ROWS), "it is too late to kill anything"
            assert all(spark.executors(number) for number in range(2)), "both have work to do"
            spark.kill_worker(0)
            for query in ("table", "copy"):
                wait_until(partial(has_read, query, ROWS), f"all rows in {query}")
            driver.signal(signal.SIGTERM)
            assert driver.finish().returncode == 0, Path(log.name).read_text()
        written = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["n"].to_pylist()
        assert sorted(written) == list(range(ROWS))
        assert sorted(_numbers(kafka, f"{topic}.copy")) == list(range(ROWS))


def _read_by(kafka: Cluster, topic: str, query: str) -> int:
    places = [(topic, number) for number in range(PARTITIONS)]
    return sum(offset or 0 for offset in kafka.committed(f"numbers.{query}", places).values())


def _numbers(kafka: Cluster, topic: str) -> list[int]:
    """Of all committed records."""
    found = []
    for number in kafka.partitions([topic])[topic]:
        place = (topic, number)
        end = kafka.offsets([place], LATEST, committed=True)[place]
        reader = ColumnReader(topic, number, columns=["value"], start=0, end=end, committed=True)
        for got in StreamFetcher(kafka, place, start=0, end=end, committed=True):
            for batch in reader.feed(got.records, got.aborted):
                found += batch["value"].to_pylist()
        for batch in reader.rest():
            found += batch["value"].to_pylist()
    return [int(value.rpartition(b":")[2].strip(b"}")) for value in found]
