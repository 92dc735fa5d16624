"""Topics as Spark tables and streams, beside the least that Spark itself needs for the same.

Each figure is compared with a toy in the same session: sources and sinks of Arrow batches that do
nothing (`spark_toys`), the same Delta writer fed from Parquet files, and Spark's own Kafka
connector where `make peers` could bring its jars. Contenders take turns; each one's best counts.
"""

from __future__ import annotations

import glob
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.row import Bar, Row
from benchmarks.spark_session import CORES, spark_session
from benchmarks.workload import VALUE_BYTES, value_of
from millstream.client.kafka import Cluster
from millstream.records import Record, build

_READ, _SMALL, _WRITTEN, _ECHO = "bench", "small", "written", "echo"
_BATCH_RECORDS = 8_000
_MICRO_ROWS = 100
_WARM_BATCHES = 3
_KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_CONNECTOR = "Spark's Kafka connector"

Run = Callable[[], object]


def measure(bench: Bench) -> list[Row]:
    jars = sorted(glob.glob(os.path.join(os.environ.get("SPARK_KAFKA", ".peers/spark-kafka"), "*")))
    with (
        bench.place("spark") as directory,
        BrokerProcess(directory) as broker,
    ):
        address = f"{broker.address[0]}:{broker.address[1]}"
        bench.prepares("writing")
        with Cluster(address) as cluster:
            _fill(cluster, _READ, bench.scale.spark_rows, partitions=CORES)
            _fill(cluster, _SMALL, _MICRO_ROWS * bench.scale.spark_batches, partitions=1)
            for topic in (_WRITTEN, _ECHO):
                cluster.create_topic(topic, CORES)
        bench.prepares("starting Spark")
        with spark_session(directory, ",".join(os.path.abspath(jar) for jar in jars)) as spark:
            stage = _Stage(bench, spark, address, directory)
            return [
                *stage.read(has_connector=bool(jars)),
                stage.to_delta(),
                stage.sink(),
                *stage.micro_batches(),
            ]


class _Stage:
    """A session and a broker, with topics in it."""

    def __init__(self, bench: Bench, spark: SparkSession, address: str, directory: str) -> None:
        self._bench = bench
        self._spark = spark
        self._address = address
        self._directory = directory
        self._number = 0

    # Measures

    def read(self, *, has_connector: bool) -> list[Row]:
        rows = self._bench.scale.spark_rows
        ours = self._spark.read.format("millstream").options(**self._source(_READ)).load()
        tasks = max(CORES, -(-rows // 1_000_000))
        toy = self._spark.read.format("toy_source").options(rows=rows, tasks=tasks).load()
        runs: list[Run] = [partial(_to_noop, ours), partial(_to_noop, toy)]
        if has_connector:
            options = {**self._source(_READ), "endingOffsets": "latest"}
            theirs = self._spark.read.format(_KAFKA).options(**options).load()
            runs.append(partial(_to_noop, theirs))
        our_s, toy_s, *their_s = self._race(*runs)
        what = f"Spark reads a topic, {VALUE_BYTES} B"
        return [
            _rate(what, rows, our_s, "a toy source", toy_s, Bar(min_ratio=0.6)),
            _rate(what, rows, our_s, _CONNECTOR, their_s[0], Bar(min_ratio=1.5))
            if their_s
            else Row(
                measure=what,
                figure=rows / our_s,
                unit="rows/s",
                compared_with=_CONNECTOR,
                absent="no jars: make peers",
            ),
        ]

    def to_delta(self) -> Row:
        files = os.path.join(self._directory, "parquet")
        table = self._spark.read.format("millstream").options(**self._source(_READ)).load()
        table.write.parquet(files)
        topic = self._stream(self._source(_READ))
        parquet = self._spark.readStream.format("parquet").schema(table.schema).load(files)
        our_s, their_s = self._race(
            partial(self._write_delta, topic), partial(self._write_delta, parquet)
        )
        rows = self._bench.scale.spark_rows
        name = "the same from Parquet files"
        return _rate("topic to Delta, AvailableNow", rows, our_s, name, their_s, Bar(min_ratio=0.7))

    def sink(self) -> Row:
        rows = self._bench.scale.spark_sink_rows
        padded = f"cast(lpad(cast(id AS string), {VALUE_BYTES}, '0') AS binary) AS value"
        table = self._spark.range(0, rows, 1, CORES).selectExpr(padded)
        our_s, toy_s = self._race(
            partial(self._write_topic, table),
            lambda: table.write.format("toy_sink").mode("append").save(),
        )
        what, name = "Spark writes a topic, exactly once", "a toy sink"
        return _rate(what, rows, our_s, name, toy_s, Bar(min_ratio=0.5))

    def micro_batches(self) -> list[Row]:
        rows = _MICRO_ROWS * self._bench.scale.spark_batches
        toys = self._spark.readStream.format("toy_source")
        toy = toys.options(rows=rows, batchRows=_MICRO_ROWS).load()
        limits = {"maxOffsetsPerTrigger": str(_MICRO_ROWS)}
        topic = self._stream({**self._source(_SMALL), **limits})
        idle_ms, read_ms, both_ms = (
            min(times)
            for times in self._in_turns(
                lambda: self._batch_ms(toy, {"format": "noop"}),
                lambda: self._batch_ms(topic, {"format": "noop"}),
                lambda: self._batch_ms(topic.select("value"), self._sink(_ECHO)),
            )
        )
        details = {"toy to noop ms": idle_ms}
        bar = Bar(max_figure=150)
        return [
            Row(
                measure=f"micro-batch, {what}, over toy to noop",
                figure=max(took_ms - idle_ms, 0.0),
                unit="ms",
                bar=bar,
                details={**details, "whole ms": took_ms},
            )
            for what, took_ms in (
                ("topic to noop", read_ms),
                ("topic to topic, exactly once", both_ms),
            )
        ]

    # What they run

    def _write_delta(self, stream: DataFrame) -> None:
        place = self._fresh("delta")
        options = {"path": f"{place}/table", "checkpointLocation": f"{place}/checkpoint"}
        name = os.path.basename(place)
        writer = stream.writeStream.format("millstream_delta").queryName(name)
        _finished(writer.options(**options).trigger(availableNow=True).start())

    def _write_topic(self, table: DataFrame) -> None:
        table.write.format("millstream").options(**self._sink(_WRITTEN)).mode("append").save()

    def _batch_ms(self, stream: DataFrame, options: dict[str, str]) -> float:
        """What one batch takes, once the first ones are done."""
        place = self._fresh("micro")
        settings = {name: value for name, value in options.items() if name != "format"}
        writer = stream.writeStream.format(options.get("format", "millstream")).options(**settings)
        query = (
            writer.option("checkpointLocation", place).trigger(processingTime="0 seconds").start()
        )
        try:
            query.processAllAvailable()
            told = [each for each in query.recentProgress if each["numInputRows"]]
        finally:
            query.stop()
        times = [each["durationMs"]["triggerExecution"] for each in told]
        return float(statistics.median(times[_WARM_BATCHES:] or times))

    def _stream(self, options: dict[str, str]) -> DataFrame:
        return self._spark.readStream.format("millstream").options(**options).load()

    def _source(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._address,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }

    def _sink(self, topic: str) -> dict[str, str]:
        self._number += 1
        name = f"bench-{self._number}"
        return {"kafka.bootstrap.servers": self._address, "topic": topic, "name": name}

    def _fresh(self, kind: str) -> str:
        self._number += 1
        return os.path.join(self._directory, f"{kind}-{self._number}")

    def _race(self, *runs: Run) -> list[float]:
        """The least time that each took."""

        def timed(run: Run) -> float:
            begun_s = time.perf_counter()
            run()
            return time.perf_counter() - begun_s

        return [min(times) for times in self._in_turns(*(partial(timed, run) for run in runs))]

    def _in_turns(self, *runs: Callable[[], float]) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in runs]
        for number in self._bench.rounds(self._bench.scale.spark_rounds):
            order = range(len(runs)) if number % 2 == 0 else reversed(range(len(runs)))
            for place in order:
                found[place].append(runs[place]())
        return found


def _rate(what: str, rows: int, our_s: float, name: str, their_s: float, bar: Bar) -> Row:
    return Row(
        measure=what,
        figure=rows / our_s,
        unit="rows/s",
        compared_with=name,
        comparison=rows / their_s,
        bar=bar,
    )


def _to_noop(table: DataFrame) -> None:
    table.write.format("noop").mode("overwrite").save()


def _finished(query: StreamingQuery) -> None:
    query.awaitTermination()
    assert query.exception() is None


def _fill(cluster: Cluster, topic: str, rows: int, *, partitions: int) -> None:
    """Send the same batch again and again, as fast as it goes."""
    cluster.create_topic(topic, partitions)
    now_ms = time.time_ns() // 1_000_000
    value = value_of(VALUE_BYTES)
    left = [rows // partitions + (number < rows % partitions) for number in range(partitions)]
    with cluster.producer(acks=1) as producer:
        while any(left):
            for number, count in enumerate(left):
                size = min(count, _BATCH_RECORDS)
                if size:
                    records = [Record(n, now_ms, None, value) for n in range(size)]
                    producer.send((topic, number), bytes(build(records)))
                    left[number] -= size
        producer.flush()
