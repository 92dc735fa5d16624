"""A produce request of one record that waits for its answer, acks=1, on a raw blocking socket.

Against a bare echo server on uvloop with messages of the same sizes, used by the same client in the
same run: what is more than the echo is what the broker adds.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.kafka_wire import check_produced, produce_answer_bytes, produce_request
from benchmarks.percentile import percentile
from benchmarks.row import Bar, Row
from benchmarks.server_process import ServerProcess, connect, free_port
from benchmarks.workload import batch_of

_TOPIC = "bench"
_START_S = 30


def measure(bench: Bench) -> list[Row]:
    request = produce_request(_TOPIC, batch_of(), acks=1)
    answer_bytes = produce_answer_bytes(_TOPIC)
    count = bench.scale.round_trips
    ours: list[float] = []
    echo: list[float] = []
    answers = bytearray()
    with bench.place("round_trip") as directory, BrokerProcess(directory) as broker:
        connection = broker.connect()
        broker.until(lambda: connection.create_topic(_TOPIC), within_s=_START_S)
        with _echo_server(directory, len(request), answer_bytes) as other:
            for number in bench.rounds(bench.scale.server_rounds):
                sides = [(connection.socket, ours, answers), (other, echo, bytearray())]
                for side, latencies, kept in sides if number % 2 == 0 else reversed(sides):
                    latencies.extend(_round_trips(side, request, answer_bytes, count, kept))
        connection.close()
    check_produced(answers, _TOPIC)
    echo_p50_us = percentile(echo, 50) * 1e6
    return [
        Row(
            measure="produce and wait, p50",
            figure=percentile(ours, 50) * 1e6,
            unit="us",
            compared_with="uvloop echo",
            comparison=echo_p50_us,
            bar=Bar(max_figure=round(1.5 * echo_p50_us + 100, 1)),
            details={
                "p99 us": percentile(ours, 99) * 1e6,
                "echo p99 us": percentile(echo, 99) * 1e6,
            },
        )
    ]


def _round_trips(
    connection: socket.socket, request: bytes, answer_bytes: int, count: int, kept: bytearray
) -> list[float]:
    """How long each took; the answers are kept, to be checked when nobody looks at the clock."""
    latencies_s = []
    for _ in range(count):
        begin_s = time.perf_counter()
        connection.sendall(request)
        left = answer_bytes
        while left:
            received = connection.recv(left)
            assert received, "the server closed the connection"
            left -= len(received)
            kept += received
        latencies_s.append(time.perf_counter() - begin_s)
    return latencies_s


@contextmanager
def _echo_server(directory: str, request_bytes: int, answer_bytes: int) -> Iterator[socket.socket]:
    """A connection to the echo server."""
    address = ("127.0.0.1", free_port())
    sizes = map(str, (address[1], request_bytes, answer_bytes))
    with ServerProcess(
        [sys.executable, "-m", "benchmarks.echo_server", *sizes],
        log_path=os.path.join(directory, "echo.log"),
    ) as server:
        connection = server.until(lambda: connect(address), within_s=_START_S)
        with connection:
            yield connection
