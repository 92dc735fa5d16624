"""The HTTP door: one message per request beside a bare FastAPI route, and lines of JSON.

Both servers are up at once and take turns, so that a busy machine is busy for both.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.http_loop import http_loop, http_request
from benchmarks.row import Bar, Row
from benchmarks.server_process import Address, ServerProcess, connect, free_port

_PATH = "/topics/bench/messages"
_CONNECTIONS = 32
_LINE_CONNECTIONS = 2
_LINES = 1000
_VALUE = "x" * 100
_START_S = 60
_WARM_S = 0.5

_ONE = http_request(_PATH, f'{{"value":"{_VALUE}"}}'.encode(), "application/json")
_MANY = http_request(_PATH, f'{{"value":"{_VALUE}"}}\n'.encode() * _LINES, "application/x-ndjson")


def measure(bench: Bench) -> list[Row]:
    seconds = bench.scale.commit_s
    bare_address: Address = ("127.0.0.1", free_port())
    ours, bare, lines = [], [], []
    with (
        bench.place("http") as directory,
        BrokerProcess(directory, has_http=True) as broker,
        ServerProcess(
            [sys.executable, "-m", "benchmarks.bare_fastapi", str(bare_address[1])],
            log_path=os.path.join(directory, "bare.log"),
        ) as other,
    ):
        for server, address in ((broker, broker.http), (other, bare_address)):
            server.until(lambda address=address: connect(address).close(), within_s=_START_S)  # type: ignore[misc]
            _rate(address, _ONE, _CONNECTIONS, _WARM_S)
        for _ in bench.rounds(bench.scale.server_rounds):
            bare.append(_rate(bare_address, _ONE, _CONNECTIONS, seconds))
            ours.append(_rate(broker.http, _ONE, _CONNECTIONS, seconds))
            lines.append(_rate(broker.http, _MANY, _LINE_CONNECTIONS, seconds) * _LINES)
    return [
        Row(
            measure=f"HTTP, one message of 100 B per request, {_CONNECTIONS} connections",
            figure=max(ours),
            unit="requests/s",
            compared_with="a bare FastAPI route",
            comparison=max(bare),
            bar=Bar(min_ratio=0.6),
        ),
        Row(
            measure=f"HTTP, {_LINES} lines of JSON per request",
            figure=max(lines),
            unit="messages/s",
            bar=Bar(min_figure=50_000),
        ),
    ]


def _rate(address: Address, request: bytes, connections: int, seconds: float) -> float:
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for _ in range(connections)]
        return http_loop(sockets, request, seconds=seconds)
