"""Our blocking Kafka client: a partition written and read whole, as a Spark task does it.

Batches of nearly 1 MiB go out five at a time and wait for the disk; they come back from the page
cache. Nothing looks at a record: that is the measure `arrow`.
"""

from __future__ import annotations

from functools import partial

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.row import Bar, Row
from benchmarks.server_meter import ServerMeter, Usage
from benchmarks.workload import VALUE_BYTES, batch_of_value, value_of
from millstream.client.kafka import LATEST, Cluster, StreamFetcher

_PLACE = ("bench", 0)
_BATCH_RECORDS = 9_000


def measure(bench: Bench) -> list[Row]:
    batch = bytes(batch_of_value(value_of(VALUE_BYTES), records=_BATCH_RECORDS))
    count = max(bench.scale.produce_bytes // len(batch), 1)
    with (
        bench.place("kafka_client") as directory,
        BrokerProcess(directory) as broker,
        Cluster(f"{broker.address[0]}:{broker.address[1]}") as cluster,
    ):
        cluster.create_topic(_PLACE[0])
        write = _written(cluster, broker.pid, batch, count)
        end = cluster.offsets([_PLACE], LATEST)[_PLACE]
        read = bench.best(partial(_read, cluster, broker.pid, end))
    total_mb = count * len(batch) / 1e6
    return [
        _row("Kafka client, read a partition", read, total_mb, Bar(min_figure=300)),
        _row("Kafka client, write a partition, acks=all", write, total_mb, None),
    ]


def _row(measure: str, usage: Usage, total_mb: float, bar: Bar | None) -> Row:
    return Row(
        measure=measure,
        figure=total_mb / usage.wall_s,
        unit="MB/s",
        bar=bar,
        details={
            "client CPU s/GB": usage.client_cpu_s / total_mb * 1e3,
            "broker CPU s/GB": usage.server_cpu_s / total_mb * 1e3,
        },
    )


def _written(cluster: Cluster, pid: int, batch: bytes, count: int) -> Usage:
    with ServerMeter(pid) as meter:
        cluster.produce(_PLACE, (batch for _ in range(count)))
    return meter.usage


def _read(cluster: Cluster, pid: int, end: int) -> Usage:
    with ServerMeter(pid) as meter:
        for _ in StreamFetcher(cluster, _PLACE, start=0, end=end):
            pass
    return meter.usage
