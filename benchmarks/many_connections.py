"""100 busy producers beside 5,000 connections that do nothing, against the 100 alone. No bar."""

from __future__ import annotations

import resource
from contextlib import ExitStack

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.closed_loop import closed_loop
from benchmarks.kafka_wire import check_produced, produce_answer_bytes, produce_request
from benchmarks.percentile import percentile
from benchmarks.resident_memory import resident_bytes
from benchmarks.row import Row
from benchmarks.server_process import connect
from benchmarks.start import first_produce
from benchmarks.workload import batch_of

_TOPIC = "bench"
_BUSY = 100
_SPARE_FILES = 200


def measure(bench: Bench) -> list[Row]:
    idle = _allowed(bench.scale.idle_connections)
    request = produce_request(_TOPIC, batch_of(), acks=1)
    answer_bytes = produce_answer_bytes(_TOPIC)
    seconds = bench.scale.loop_s
    with bench.place("connections") as directory, ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(directory))
        first_produce(broker, _TOPIC).close()
        busy = [stack.enter_context(connect(broker.address)) for _ in range(_BUSY)]
        bench.prepares("busy connections alone")
        alone = closed_loop(busy, request, answer_bytes=answer_bytes, seconds=seconds)
        before_bytes = resident_bytes(broker.pid)
        bench.prepares(f"{idle:,} idle connections")
        for _ in range(idle):
            connection = stack.enter_context(connect(broker.address))
            # Each has been used once, as that of a client that has fallen silent.
            connection.sendall(request)
            check_produced(connection.recv(answer_bytes), _TOPIC)
        together = closed_loop(busy, request, answer_bytes=answer_bytes, seconds=seconds)
        check_produced(alone.answers + together.answers, _TOPIC)
        growth_bytes = resident_bytes(broker.pid) - before_bytes
    return [
        Row(
            measure=f"{_BUSY} busy connections beside {idle:,} idle ones, p50",
            figure=percentile(together.latencies_s, 50) * 1e3,
            unit="ms",
            compared_with="busy alone",
            comparison=percentile(alone.latencies_s, 50) * 1e3,
            details={
                "p99 ms": percentile(together.latencies_s, 99) * 1e3,
                "alone p99 ms": percentile(alone.latencies_s, 99) * 1e3,
                "requests/s": together.requests_per_s,
                "memory per idle connection KB": growth_bytes / idle / 1e3,
                "broker memory MB": (before_bytes + growth_bytes) / 1e6,
            },
        )
    ]


def _allowed(connections: int) -> int:
    """As many as this process may open, after asking for more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(connections, hard - _BUSY - _SPARE_FILES)
