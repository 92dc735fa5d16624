"""Consuming with confluent-kafka what is in the page cache: what the broker spends on a GB."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.confluent_clients import (
    batching_consumer,
    batching_producer,
    consume_all,
    create_topics,
    produce_all,
)
from benchmarks.row import Bar, Row
from benchmarks.server_meter import ServerMeter, Usage
from benchmarks.server_process import Address
from benchmarks.workload import value_of

_TOPIC = "bench"
_MESSAGE_BYTES = 1024
_BAR = Bar(max_figure=0.5)


def measure(bench: Bench) -> list[Row]:
    load = bench.load
    message_bytes = load.message_bytes or _MESSAGE_BYTES
    messages = load.messages or max(bench.scale.produce_bytes // message_bytes, 1)
    with bench.place("consume") as directory, BrokerProcess(directory) as broker:
        bench.prepares("writing")
        create_topics(broker.address, [_TOPIC])
        with batching_producer(broker.address, acks="1", batch_bytes=load.batch_bytes) as producer:
            produce_all(producer, _TOPIC, value_of(message_bytes), messages)
        usage = bench.best(lambda: _consumed(broker.address, broker.pid, messages))
    total_gb = messages * message_bytes / 1e9
    return [
        Row(
            measure=f"consume {message_bytes:,} B",
            figure=usage.server_cpu_s / total_gb,
            unit="CPU s/GB",
            bar=_BAR if load.is_usual else None,
            details={
                "messages/s": messages / usage.wall_s,
                "MB/s": total_gb * 1e3 / usage.wall_s,
                "broker share of a core %": usage.server_cpu_s / usage.wall_s * 100,
                "client CPU s/GB": usage.client_cpu_s / total_gb,
            },
        )
    ]


def _consumed(address: Address, pid: int, messages: int) -> Usage:
    # Connecting is part of it: a consumer begins to fetch as soon as it is there.
    with ServerMeter(pid) as meter:
        consumer = batching_consumer(address, _TOPIC)
        consume_all(consumer, messages)
    consumer.close()
    return meter.usage
