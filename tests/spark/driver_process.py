"""A driver with two queries, to a topic and to a Delta table, that dies when it is told to.

    python -m tests.spark.driver_process <home> <address> <topic> <append|upsert> <moment> <batch>

Both queries read the same files of numbers, one file per batch. At the given batch of the table's
query, the driver and its JVM are killed. For the moments see mortal_source; there is `never` too.
The process leads a process group, to which its JVM belongs.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millstream.spark.environment import prepare_spark
from tests.spark.conftest import SESSION
from tests.spark.mortal_source import mortal_source

TABLE_QUERY = "mortal"


def main() -> None:
    home, address, topic, mode, moment, batch = sys.argv[1:]
    os.setpgid(0, 0)
    spark = _small_session()
    group = os.getpgrp()

    def die() -> None:
        # The driver and its JVM are of this group, and this process is not.
        os.killpg(group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    spark.dataSource.register(mortal_source("mortal_delta", moment, int(batch), die))
    queries = [
        _write_topic(spark, Path(home), address, topic),
        _write_table(spark, Path(home), mode),
    ]
    for query in queries:
        query.awaitTermination()
    spark.stop()


def _small_session() -> SparkSession:
    """As the session of the tests, but smaller."""
    prepare_spark()
    builder = SparkSession.builder.master("local[2]")
    small = {"spark.driver.memory": "512m", "spark.ui.showConsoleProgress": "false"}
    for name, value in {**SESSION, **small}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _write_topic(spark: SparkSession, home: Path, address: str, topic: str) -> StreamingQuery:
    return (
        spark.readStream.schema("id long, word string")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(home / "numbers"))
        .repartition(2)
        .selectExpr("cast(id as string) as key", "cast(id as string) as value")
        .writeStream.format("millstream")
        .option("kafka.bootstrap.servers", address)
        .option("topic", topic)
        .option("name", topic)
        .option("checkpointLocation", str(home / "topic-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def _write_table(spark: SparkSession, home: Path, mode: str) -> StreamingQuery:
    options = {"mode": mode, "name": TABLE_QUERY, "optimizeEvery": "3", "targetFileSize": "64k"}
    if mode == "upsert":
        options["key"] = "id"
    return (
        spark.readStream.schema("id long, word string")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(home / "numbers"))
        .repartition(2)
        .writeStream.format("mortal_delta")
        .options(**options)
        .option("path", str(home / "table"))
        .option("checkpointLocation", str(home / "table-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    main()
