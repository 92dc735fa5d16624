"""Producers that wait for the disk: one record per request, acks=all, on 1, 16 and 64 connections.

With group commit one sync serves every request that waits for it, so the rate grows with the
connections while the disk does hardly more. No bar: the storage engine's own measure has it.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.closed_loop import LoopOutcome, closed_loop
from benchmarks.kafka_wire import check_produced, produce_answer_bytes, produce_request
from benchmarks.percentile import percentile
from benchmarks.row import Row
from benchmarks.server_process import Address, connect
from benchmarks.start import first_produce
from benchmarks.workload import batch_of

_TOPIC = "bench"
_CONNECTIONS = (1, 16, 64)


def measure(bench: Bench) -> list[Row]:
    with bench.place("durable") as directory, BrokerProcess(directory) as broker:
        first_produce(broker, _TOPIC).close()
        best: dict[int, LoopOutcome] = {}
        for _ in bench.rounds(bench.scale.server_rounds):
            for connections in _CONNECTIONS:
                outcome = _loop(broker.address, connections, bench.scale.commit_s)
                best[connections] = max(outcome, best.get(connections, outcome))
    alone = best[1].requests_per_s
    return [
        Row(
            measure=f"acks=all and wait, {connections} connection{'s'[: connections > 1]}",
            figure=outcome.requests_per_s,
            unit="requests/s",
            compared_with="" if connections == 1 else "one",
            comparison=None if connections == 1 else alone,
            details={
                "p50 ms": percentile(outcome.latencies_s, 50) * 1e3,
                "p99 ms": percentile(outcome.latencies_s, 99) * 1e3,
            },
        )
        for connections, outcome in best.items()
    ]


def _loop(address: Address, connections: int, seconds: float) -> LoopOutcome:
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for _ in range(connections)]
        outcome = closed_loop(
            sockets,
            produce_request(_TOPIC, batch_of(), acks=-1),
            answer_bytes=produce_answer_bytes(_TOPIC),
            seconds=seconds,
        )
    check_produced(outcome.answers, _TOPIC)
    return outcome
