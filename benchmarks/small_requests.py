"""One record of 100 bytes per produce request, pipelined on a raw socket, acks=1.

What a broker spends on a request that is hardly more than its own overhead.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.kafka_wire import KafkaConnection, ProduceAnswers, produce_request
from benchmarks.pipeline import pipelined, up_to
from benchmarks.row import Bar, Row
from benchmarks.server_meter import ServerMeter, Usage
from benchmarks.workload import batch_of

_TOPIC = "bench"
_CHUNK_REQUESTS = 100
_WINDOW_BYTES = 512 << 10
_WARM_REQUESTS = 2_000


def measure(bench: Bench) -> list[Row]:
    chunks = -(-(bench.load.messages or bench.scale.small_requests) // _CHUNK_REQUESTS)
    requests = chunks * _CHUNK_REQUESTS
    with bench.place("small") as directory, BrokerProcess(directory) as broker:
        connection = broker.connect()
        broker.until(lambda: connection.create_topic(_TOPIC), within_s=30)
        _send(connection, _WARM_REQUESTS)
        usage = bench.best(lambda: _sent(connection, broker.pid, requests))
        connection.close()
    return [
        Row(
            measure="one record per request, pipelined",
            figure=usage.server_cpu_s / requests * 1e6,
            unit="us CPU",
            bar=Bar(max_figure=7),
            details={
                "requests/s": requests / usage.wall_s,
                "client us CPU": usage.client_cpu_s / requests * 1e6,
            },
        )
    ]


def _sent(connection: KafkaConnection, pid: int, requests: int) -> Usage:
    with ServerMeter(pid) as meter:
        _send(connection, requests)
    return meter.usage


def _send(connection: KafkaConnection, requests: int) -> None:
    chunk = produce_request(_TOPIC, batch_of(), acks=1) * _CHUNK_REQUESTS
    answers = ProduceAnswers(_TOPIC)
    pipelined(
        connection.socket,
        chunk,
        chunk_messages=_CHUNK_REQUESTS,
        window=max(_WINDOW_BYTES // len(chunk), 1),
        more=up_to(requests),
        answered=answers.count,
    )
    answers.check()
