"""How long requests took, of all doors, by what they asked for.

A door tells of requests when they are answered; several that were answered together are told of at
once. What waits for as long as its client asked for, such as a fetch at the end of a log, counts
with its wait, and is never slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from millstream.telemetry.histogram import Histogram

_NEVER_NS = 1 << 62


def _ignore(_name: str, _elapsed_ns: int, _peer: str, _client: str) -> None:
    """Nobody wants to hear of slow requests."""


class Latencies:
    """The latencies of all requests since the start. Lives on the event loop."""

    def __init__(self) -> None:
        self.kafka: defaultdict[int, Histogram] = defaultdict(Histogram)
        """By API key."""
        self.http: defaultdict[str, Histogram] = defaultdict(Histogram)
        """By group of routes."""
        self.http_codes: defaultdict[tuple[str, int], int] = defaultdict(int)
        """By group of routes and status code, how many."""
        self.slow_ns = _NEVER_NS
        """What takes longer is told to `on_slow`."""
        self.on_slow: Callable[[str, int, str, str], None] = _ignore
        """Gets what was asked for, how long it took, the client's address and its name."""

    def observe_http(self, group: str, code: int, elapsed_ns: int) -> None:
        self.http[group].observe(elapsed_ns)
        self.http_codes[group, code] += 1

    @property
    def requests(self) -> int:
        """How many requests were answered."""
        return sum(each.count for each in (*self.kafka.values(), *self.http.values()))
