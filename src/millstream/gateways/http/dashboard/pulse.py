"""The broker's pulse: what it does right now, in numbers that cost next to nothing to read."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from millstream.broker.broker import Broker
from millstream.telemetry.histogram import quantile_ns

_RATES = ("messages_in", "bytes_in", "messages_out", "bytes_out", "requests")
_LATENCIES = ("produce", "fetch", "fsync", "loop_delay")
_SHORTEST_S = 0.2
_LONGEST_S = 5.0
"""Nobody looked for a while: what happened meanwhile is not what happens now."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Pulse:
    """Compares what is counted now with what was counted the last time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._before: dict[str, Any] | None = None
        self._before_s = 0.0
        self._before_cpu_s = 0.0

    def beat(self) -> dict[str, Any]:
        """Rates in a second, and latencies in milliseconds: half and 99 of 100 were no slower."""
        now_s, cpu_s = self._loop.time(), _cpu_s()
        now = self._broker.metrics.overview()
        before, since_s = self._before, now_s - self._before_s
        told: dict[str, Any] = {"at": self._broker.clock.now_ms(), "memory_bytes": _memory_bytes()}
        if before is not None and _SHORTEST_S <= since_s <= _LONGEST_S:
            told |= {name: round((now[name] - before[name]) / since_s) for name in _RATES}
            told |= {name: _quantiles(now[name], before[name]) for name in _LATENCIES}
            told["cpu"] = round((cpu_s - self._before_cpu_s) / since_s, 3)
        self._before, self._before_s, self._before_cpu_s = now, now_s, cpu_s
        return told


def _quantiles(now: dict[str, Any], before: dict[str, Any]) -> list[float] | None:
    """None where nothing happened."""
    counts = [late - early for late, early in zip(now["counts"], before["counts"], strict=True)]
    half, most = quantile_ns(counts, 0.5), quantile_ns(counts, 0.99)
    return None if half is None or most is None else [round(half / 1e6, 2), round(most / 1e6, 2)]


def _cpu_s() -> float:
    spent = os.times()
    return spent.user + spent.system


def _memory_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:  # Not every system has it.
        return 0
