"""All figures that the broker can tell of itself: who has them, and how they are gathered.

Whoever works counts in plain integers of its own. A look goes through all of them, a piece at a
time, so that a broker with thousands of topics serves its clients meanwhile: what counters tell is
exact, but two values of one look may be some milliseconds apart.
After a crash: all counters begin at zero, but for those of what is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from millstream.clock import ticks_ns
from millstream.telemetry.histogram import BOUNDS_NS, Histogram
from millstream.telemetry.latencies import Latencies
from millstream.telemetry.metric import Reading

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

PRODUCE, FETCH = 0, 1

_SLICE_NS = 3_000_000
_PROBE_S = 0.1

Source = Callable[[Reading], Iterator[None]]
"""Adds what it knows to a reading, and yields after each bit of work."""
SlowSource = Callable[[Reading], Awaitable[None]]
"""The same for what has to be waited for."""


class Metrics:
    """What all parts of the broker tell of themselves. Lives on the event loop."""

    def __init__(self) -> None:
        self.requests = Latencies()
        self.loop_delay = Histogram()
        self._sources: list[Source] = []
        self._slow_sources: list[SlowSource] = []
        self._broker: Broker | None = None

    def watch(self, broker: Broker) -> None:
        """From now on `overview` can be asked."""
        self._broker = broker

    def add(self, source: Source) -> None:
        """From now on a part of the broker is asked as well."""
        self._sources.append(source)

    def add_slow(self, source: SlowSource) -> None:
        self._slow_sources.append(source)

    async def collect(self) -> Reading:
        """All values, now."""
        reading = Reading()
        for slow in self._slow_sources:
            await slow(reading)
        for source in self._sources:
            await at_ease(source(reading))
        return reading

    def overview(self) -> dict[str, Any]:
        """The totals since the start that people look at first; cheap, whatever topics there are.

        A rate is what came between two of these, and a quantile that of the difference of two
        `counts`: see `histogram.quantile_ns`.
        """
        assert self._broker is not None, "it is told when the broker stands"
        traffic = self._broker.topics.traffic
        return {
            "messages_in": traffic.messages_in,
            "bytes_in": traffic.bytes_in,
            "messages_out": traffic.messages_out,
            "bytes_out": traffic.bytes_out,
            "requests": self.requests.requests,
            "bounds_ns": BOUNDS_NS,
            "produce": _shown(self.requests.kafka[PRODUCE]),
            "fetch": _shown(self.requests.kafka[FETCH]),
            "fsync": _shown(self._broker.flusher.latency),
            "loop_delay": _shown(self.loop_delay),
        }

    async def run(self) -> None:
        """Ask the event loop ten times a second how late it is, until cancelled."""
        while True:
            due_ns = ticks_ns() + round(_PROBE_S * 1e9)
            await asyncio.sleep(_PROBE_S)
            # Timers of the loop are good to a millisecond, and may be early by one.
            self.loop_delay.observe(max(ticks_ns() - due_ns, 0))


async def at_ease(steps: Iterable[object]) -> None:
    """Take all steps, and let others have their turn between."""
    began_ns = ticks_ns()
    for _ in steps:
        if ticks_ns() - began_ns > _SLICE_NS:
            await asyncio.sleep(0)
            began_ns = ticks_ns()


def _shown(histogram: Histogram) -> dict[str, Any]:
    return {"counts": list(histogram.counts), "sum_ns": histogram.sum_ns}
