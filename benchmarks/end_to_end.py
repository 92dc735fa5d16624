"""From producing a message to having it in a consumer's hands, on an otherwise idle broker, acks=1.

Both clients are confluent-kafka as it comes, except that the producer does not linger.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.confluent_clients import create_topics, servers
from benchmarks.percentile import percentile
from benchmarks.row import Bar, Row
from benchmarks.workload import value_of

_TOPIC = "bench"
_WAIT_S = 30.0
# Between two messages everything comes to rest: the consumer's fetch waits at the broker again.
_PAUSE_S = 0.01


def measure(bench: Bench) -> list[Row]:
    with bench.place("end_to_end") as directory, BrokerProcess(directory) as broker:
        create_topics(broker.address, [_TOPIC])
        with (
            Producer({**servers(broker.address), "acks": "1", "linger.ms": 0}) as producer,
            Consumer({**servers(broker.address), "group.id": "bench"}) as consumer,
        ):
            consumer.assign([TopicPartition(_TOPIC, 0, 0)])
            # The first message waits for connections to be made.
            _pass(producer, consumer)
            latencies_s = [
                _pass(producer, consumer)
                for _ in bench.rounds(bench.scale.server_rounds)
                for _ in range(bench.scale.passes)
            ]
    return [
        Row(
            measure="produce to consume, p50",
            figure=percentile(latencies_s, 50) * 1e3,
            unit="ms",
            bar=Bar(max_figure=3),
            details={
                "p99 ms": percentile(latencies_s, 99) * 1e3,
            },
        )
    ]


def _pass(producer: Producer, consumer: Consumer) -> float:
    time.sleep(_PAUSE_S)
    begin_s = time.perf_counter()
    producer.produce(_TOPIC, value_of(100), partition=0)
    message = consumer.poll(_WAIT_S)
    latency_s = time.perf_counter() - begin_s
    assert message is not None
    assert message.error() is None, message.error()
    producer.poll(0)
    return latency_s
