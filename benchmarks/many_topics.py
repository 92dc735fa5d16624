"""A broker with 1,000 topics of 4 partitions, a record in each: its start after a clean stop."""

from __future__ import annotations

import time
from functools import partial
from statistics import median

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.confluent_clients import create_topics
from benchmarks.resident_memory import resident_bytes
from benchmarks.row import Bar, Row
from benchmarks.start import first_produce
from benchmarks.stopwatch import Stopwatch
from benchmarks.workload import batch_of

_PARTITIONS = 4
_TOPICS_PER_REQUEST = 100
_RESTARTS = 3
_FILL_S = 30


def measure(bench: Bench) -> list[Row]:
    topics = [f"topic-{number:04d}" for number in range(bench.scale.topics)]
    with bench.place("topics") as directory:
        bench.prepares("creating topics")
        with BrokerProcess(directory) as broker:
            with Stopwatch() as creation:
                for first in range(0, len(topics), _TOPICS_PER_REQUEST):
                    some = topics[first : first + _TOPICS_PER_REQUEST]
                    create_topics(broker.address, some, partitions=_PARTITIONS)
            _fill(broker, topics)
            with Stopwatch() as stop:
                broker.stop()
        bench.prepares("restarting")
        starts = [_restart(directory, topics[-1]) for _ in range(_RESTARTS)]
    return [
        Row(
            measure=f"start with {len(topics):,} topics of {_PARTITIONS} partitions",
            figure=min(start_s for start_s, _ in starts),
            unit="s",
            bar=Bar(max_figure=3),
            details={
                "median s": median(start_s for start_s, _ in starts),
                "create s": creation.wall_s,
                "stop s": stop.wall_s,
            },
        ),
        Row(
            measure="the same, memory",
            figure=max(used_bytes for _, used_bytes in starts) / 1e6,
            unit="MB",
            bar=Bar(max_figure=200),
        ),
    ]


def _fill(broker: BrokerProcess, topics: list[str]) -> None:
    connection = broker.connect()
    for topic in topics:
        for partition in range(_PARTITIONS):
            broker.until(
                partial(connection.produce, topic, batch_of(), partition=partition),
                within_s=_FILL_S,
            )
    connection.close()


def _restart(directory: str, topic: str) -> tuple[float, int]:
    """Until the first produce is accepted, and the memory then."""
    begin_s = time.perf_counter()
    broker = BrokerProcess(directory)
    try:
        connection = first_produce(broker, topic)
        start_s = time.perf_counter() - begin_s
        used_bytes = resident_bytes(broker.pid)
        connection.close()
    finally:
        broker.stop()
    return start_s, used_bytes
