"""From sending a message to having it at subscribers over WebSockets: at one, and at a hundred.

All clients are in one process, which shares the machine with the broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import uvloop

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.percentile import percentile
from benchmarks.row import Bar, Row
from benchmarks.server_process import Address
from benchmarks.websocket_reader import WebSocketReader

_TOPIC = "bench"
_SUBSCRIBERS = 100
_PER_S = 1000
_PAUSE_S = 0.01
_WAIT_S = 60.0
_PADDING = "x" * 80


def measure(bench: Bench) -> list[Row]:
    with (
        bench.place("websocket") as directory,
        BrokerProcess(directory, has_http=True) as broker,
    ):
        bench.prepares("one subscriber")
        idle_s = uvloop.run(_idle(broker.http, bench.scale.passes))
        bench.prepares(f"{_SUBSCRIBERS} subscribers")
        seconds = 2 if bench.scale.passes < 100 else 10
        spread_s = uvloop.run(_fan_out(broker.http, seconds))
    return [
        Row(
            measure="WebSocket, sent to delivered, p50",
            figure=percentile(idle_s, 50) * 1e3,
            unit="ms",
            bar=Bar(max_figure=50),
            details={"p99 ms": percentile(idle_s, 99) * 1e3},
        ),
        Row(
            measure=f"WebSocket, {_SUBSCRIBERS} subscribers, {_PER_S} msg/s, p99",
            figure=percentile(spread_s, 99) * 1e3,
            unit="ms",
            bar=Bar(max_figure=50),
            details={
                "p50 ms": percentile(spread_s, 50) * 1e3,
                "largest ms": max(spread_s) * 1e3,
            },
        ),
    ]


class _Arrivals:
    """How long messages took, of all subscribers."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self._wanted = 0
        self._are_there = asyncio.Event()

    def note(self, messages: Sequence[Any]) -> None:
        now_s = time.perf_counter()
        self.latencies_s += [now_s - float(each["value"].partition(" ")[0]) for each in messages]
        if len(self.latencies_s) >= self._wanted:
            self._are_there.set()

    async def reach(self, count: int) -> None:
        self._wanted = count
        self._are_there.clear()
        if len(self.latencies_s) < count:
            await asyncio.wait_for(self._are_there.wait(), _WAIT_S)


async def _idle(address: Address, passes: int) -> list[float]:
    arrivals = _Arrivals()
    subscriber = await _subscriber(address, arrivals)
    sender = await _open(address, lambda _: None)
    for number in range(passes):
        await asyncio.sleep(_PAUSE_S)
        sender.send(_message())
        await arrivals.reach(number + 1)
    subscriber.close()
    sender.close()
    return arrivals.latencies_s


async def _fan_out(address: Address, seconds: int) -> list[float]:
    arrivals = _Arrivals()
    subscribers = [await _subscriber(address, arrivals) for _ in range(_SUBSCRIBERS)]
    sender = await _open(address, lambda _: None)
    total = seconds * _PER_S
    begin_s = time.perf_counter()
    sent = 0
    while sent < total:
        due = min(int((time.perf_counter() - begin_s) * _PER_S) + 1, total)
        for _ in range(sent, due):
            sender.send(_message())
        sent = due
        await asyncio.sleep(1 / _PER_S)
    await arrivals.reach(total * _SUBSCRIBERS)
    for each in [*subscribers, sender]:
        each.close()
    return arrivals.latencies_s


async def _subscriber(address: Address, arrivals: _Arrivals) -> WebSocketReader:
    is_subscribed = asyncio.get_running_loop().create_future()

    def on_frame(frame: Any) -> None:
        if "messages" in frame:
            arrivals.note(frame["messages"])
        else:
            assert "result" in frame, frame
            is_subscribed.set_result(None)

    reader = await _open(address, on_frame)
    reader.send({"id": 1, "op": "subscribe", "topic": _TOPIC, "create": True})
    await asyncio.wait_for(is_subscribed, _WAIT_S)
    return reader


async def _open(address: Address, on_frame: Any) -> WebSocketReader:
    _, reader = await asyncio.get_running_loop().create_connection(
        lambda: WebSocketReader("/ws", on_frame), *address
    )
    await asyncio.wait_for(reader.opened, _WAIT_S)
    return reader


def _message() -> dict[str, Any]:
    """Tells when it was sent; the clock is one for all processes."""
    return {"op": "send", "topic": _TOPIC, "value": f"{time.perf_counter()} {_PADDING}"}
