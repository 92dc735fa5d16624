"""Producing with confluent-kafka in batches of 1 MB: what the broker spends on a GB of messages.

The client is the limit, so what counts is the CPU time of the broker. A GB is 10^9 bytes of
values, without what the format adds. acks=1 is answered from the page cache, acks=all after a sync.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.confluent_clients import batching_producer, create_topics, produce_all
from benchmarks.row import Bar, Row
from benchmarks.server_meter import ServerMeter, Usage
from benchmarks.workload import value_of

_TOPIC = "bench"
# What comes first is not measured: connecting, and the growth of buffers on both sides.
_WARM_SHARE = 20


class _Case(NamedTuple):
    message_bytes: int
    acks: str
    bar: Bar | None


_CASES = (
    _Case(100, "1", Bar(max_figure=0.9)),
    _Case(1024, "1", Bar(max_figure=0.9)),
    _Case(1024, "all", Bar(max_figure=1.2)),
)


def measure(bench: Bench) -> list[Row]:
    load = bench.load
    if load.is_usual:
        return [_row(bench, case) for case in _CASES]
    return [_row(bench, _Case(load.message_bytes or 100, load.acks or "1", None))]


def _row(bench: Bench, case: _Case) -> Row:
    messages = bench.load.messages or max(bench.scale.produce_bytes // case.message_bytes, 1)
    usage = bench.best(lambda: _produced(bench, case, messages))
    total_gb = messages * case.message_bytes / 1e9
    return Row(
        measure=f"produce {case.message_bytes:,} B, acks={case.acks}",
        figure=usage.server_cpu_s / total_gb,
        unit="CPU s/GB",
        bar=case.bar,
        details={
            "messages/s": messages / usage.wall_s,
            "MB/s": total_gb * 1e3 / usage.wall_s,
            "broker share of a core %": usage.server_cpu_s / usage.wall_s * 100,
            "client CPU s/GB": usage.client_cpu_s / total_gb,
        },
    )


def _produced(bench: Bench, case: _Case, messages: int) -> Usage:
    value = value_of(case.message_bytes)
    with bench.place("produce") as directory, BrokerProcess(directory) as broker:
        create_topics(broker.address, [_TOPIC])
        with batching_producer(
            broker.address, acks=case.acks, batch_bytes=bench.load.batch_bytes
        ) as producer:
            produce_all(producer, _TOPIC, value, max(messages // _WARM_SHARE, 1))
            with ServerMeter(broker.pid) as meter:
                produce_all(producer, _TOPIC, value, messages)
    return meter.usage
