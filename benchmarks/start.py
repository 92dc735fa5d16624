"""Starting on an empty directory: until the first produce is accepted, and the memory at rest."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.kafka_wire import KafkaConnection
from benchmarks.resident_memory import resident_bytes
from benchmarks.row import Bar, Row
from benchmarks.workload import batch_of

_TOPIC = "bench"
_START_S = 60


def measure(bench: Bench) -> list[Row]:
    starts = [_start(bench) for _ in bench.rounds(bench.scale.server_rounds)]
    return [
        Row(
            measure="start to first accepted produce",
            figure=min(start_s for start_s, _, _ in starts),
            unit="s",
            bar=Bar(max_figure=0.5),
            details={"median s": median(start_s for start_s, _, _ in starts)},
        ),
        Row(
            measure="idle memory",
            figure=median(idle_bytes for _, idle_bytes, _ in starts) / 1e6,
            unit="MB",
            bar=Bar(max_figure=60),
            details={"after a produce MB": median(used for _, _, used in starts) / 1e6},
        ),
    ]


def first_produce(broker: BrokerProcess, topic: str) -> KafkaConnection:
    """Connect as soon as the broker listens, make the topic and produce, until that is accepted."""
    connection = broker.connect()
    broker.until(lambda: connection.create_topic(topic), within_s=_START_S)
    broker.until(lambda: connection.produce(topic, batch_of()), within_s=_START_S)
    return connection


def _start(bench: Bench) -> tuple[float, int, int]:
    """How long it took, then the memory before and after the first produce, of different runs."""
    with bench.place("start") as directory:
        begin_s = time.perf_counter()
        broker = BrokerProcess(directory, has_http=True, has_pylogstreams=True)
        try:
            first_produce(broker, _TOPIC).close()
            start_s = time.perf_counter() - begin_s
            used_bytes = resident_bytes(broker.pid)
        finally:
            broker.stop()
    with (
        bench.place("idle") as directory,
        BrokerProcess(directory, has_http=True, has_pylogstreams=True) as broker,
    ):
        idle_bytes = resident_bytes(broker.pid)
    return start_s, idle_bytes, used_bytes
