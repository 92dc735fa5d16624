"""All measures, by the name that `--only` takes, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks import (
    append,
    arrow,
    cleaning,
    command_line,
    comparison,
    consume,
    disk_sync,
    durable_requests,
    end_to_end,
    group_commit,
    http,
    kafka_client,
    lookup,
    many_connections,
    many_logs,
    many_topics,
    metrics_cost,
    produce,
    pylogstreams,
    python_client,
    read,
    recovery,
    reopen,
    round_trip,
    small_requests,
    start,
    transactions,
    validation,
    websocket,
)
from benchmarks.bench import Bench
from benchmarks.row import Row


def spark_measure(bench: Bench) -> list[Row]:
    """Imported when it is run: Spark's own modules are many."""
    from benchmarks import spark

    return spark.measure(bench)


SUITE: Mapping[str, Callable[[Bench], list[Row]]] = {
    "append": append.measure,
    "group_commit": group_commit.measure,
    "read": read.measure,
    "lookup": lookup.measure,
    "reopen": reopen.measure,
    "recovery": recovery.measure,
    "compaction": cleaning.measure,
    "validation": validation.measure,
    "arrow": arrow.measure,
    "disk_sync": disk_sync.measure,
    "many_logs": many_logs.measure,
    "produce": produce.measure,
    "consume": consume.measure,
    "small_requests": small_requests.measure,
    "metrics_cost": metrics_cost.measure,
    "round_trip": round_trip.measure,
    "end_to_end": end_to_end.measure,
    "durable_requests": durable_requests.measure,
    "transactions": transactions.measure,
    "http": http.measure,
    "websocket": websocket.measure,
    "pylogstreams": pylogstreams.measure,
    "python_client": python_client.measure,
    "command_line": command_line.measure,
    "kafka_client": kafka_client.measure,
    "start": start.measure,
    "many_topics": many_topics.measure,
    "many_connections": many_connections.measure,
    "spark": spark_measure,
    "peers": comparison.measure,
}
