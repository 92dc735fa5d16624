"""When the requests of one connection came, and how long they took to answer.

One look at the clock for all requests that came together, and one for all that are answered
together. Cost: benchmarks/metrics_cost.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from millstream.clock import ticks_ns
from millstream.protocol.apis import APIS
from millstream.telemetry.histogram import BOUNDS_NS
from millstream.telemetry.latencies import Latencies


class RequestTimes:
    """The clock of one connection."""

    __slots__ = ("_latencies", "_who", "began_ns")

    def __init__(self, latencies: Latencies, who: Callable[[], tuple[str, str]]) -> None:
        """`who` tells the client's address, and what it calls itself."""
        self._latencies = latencies
        self._who = who
        self.began_ns = 0
        """When the requests came that are being worked off now."""

    def begin(self) -> None:
        """Requests have come."""
        self.began_ns = ticks_ns()

    def answered(self, api_key: int, began_ns: int, count: int = 1) -> None:
        """So many requests of one kind were answered, that came then. Hot."""
        elapsed_ns = ticks_ns() - began_ns
        latencies = self._latencies
        # As `observe` does, without a call.
        times = latencies.kafka[api_key]
        times.counts[bisect_left(BOUNDS_NS, elapsed_ns)] += count
        times.sum_ns += elapsed_ns * count
        if elapsed_ns > latencies.slow_ns:
            latencies.on_slow(APIS[api_key].name, elapsed_ns, *self._who())

    def answered_after_wait(self, api_key: int, began_ns: int) -> None:
        """A request was answered that waited for as long as its client asked: it is not slow."""
        self._latencies.kafka[api_key].observe(ticks_ns() - began_ns)
