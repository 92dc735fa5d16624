"""A topic to a Delta table by a stream, and back by the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tests.clients.broker_process import BrokerProcess
from tests.spark.records import create_topic, produce
from tests.spark.streams import run_to_end
from tests.spark.test_replay import read, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


def test_topic_goes_to_a_table_and_back(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, partitions=2)
    for partition in range(2):
        values = [b"%d-%d" % (partition, number) for number in range(300)]
        produce(broker.address, topic, values, partition=partition, key=b"k")
    source = {"kafka.bootstrap.servers": broker.address, "startingOffsets": "earliest"}
    table = str(tmp_path / "table")
    for _ in range(2):
        run_to_end(
            spark.readStream.format("millstream")
            .options(**source, subscribe=topic, maxOffsetsPerTrigger="200", includeHeaders="true")
            .load()
            .writeStream.format("millstream_delta")
            .option("path", table)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .queryName(topic)
        )
    rows = DeltaTable(table).to_pyarrow_table(columns=["partition", "offset", "value"]).to_pylist()
    expected = [(p, n, b"%d-%d" % (p, n)) for p in range(2) for n in range(300)]
    assert sorted((r["partition"], r["offset"], r["value"]) for r in rows) == expected

    done = run(broker, table, f"{topic}-again", "--partitions", "2", "--keep-partitions")
    assert (done.returncode, done.stderr) == (0, "")
    back = read(broker, f"{topic}-again", 2, 600)
    found = sorted((r.partition(), r.offset(), r.value()) for r in back)
    # Committed transactions take an offset at the end of each partition, and none before.
    assert found == expected
