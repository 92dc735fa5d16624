"""All measures, by the name that `--only` takes, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks import (
    append,
    cleaning,
    comparison,
    consume,
    disk_sync,
    durable_requests,
    end_to_end,
    group_commit,
    http,
    lookup,
    many_connections,
    many_logs,
    many_topics,
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

SUITE: Mapping[str, Callable[[Bench], list[Row]]] = {
    "append": append.measure,
    "group_commit": group_commit.measure,
    "read": read.measure,
    "lookup": lookup.measure,
    "reopen": reopen.measure,
    "recovery": recovery.measure,
    "compaction": cleaning.measure,
    "validation": validation.measure,
    "disk_sync": disk_sync.measure,
    "many_logs": many_logs.measure,
    "produce": produce.measure,
    "consume": consume.measure,
    "small_requests": small_requests.measure,
    "round_trip": round_trip.measure,
    "end_to_end": end_to_end.measure,
    "durable_requests": durable_requests.measure,
    "transactions": transactions.measure,
    "http": http.measure,
    "websocket": websocket.measure,
    "pylogstreams": pylogstreams.measure,
    "python_client": python_client.measure,
    "start": start.measure,
    "many_topics": many_topics.measure,
    "many_connections": many_connections.measure,
    "peers": comparison.measure,
}
