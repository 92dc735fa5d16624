"""What kind of broker a test wants, as a value that can be handed to another process.

The defaults differ from those of `millstream serve` where a test would wait for nothing: groups
form at once, retention is looked after often, and no connection is closed for being idle
when the clock is moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.settings import loader
from millstream.settings.domain import LONG_MAX
from millstream.settings.loader import Settings

_FOR_TESTS: Mapping[str, object] = {
    "connections.max.idle.ms": LONG_MAX,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.check.interval.ms": 500,
    "pylogstreams.listener": "off",
}
# A thread more is a thread to start and to end, and memory needs no syncing.
_IN_MEMORY: Mapping[str, object] = {
    "data.dir": "/memory",
    "millstream.flush.threads": 1,
    "millstream.closing.threads": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where the broker listens, where its data lies, and its settings by Kafka's names."""

    kafka: str
    http: str
    directory: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    moved_ms: int = 0
    """What its clock was moved by before."""

    def loaded(self) -> Settings:
        """Raises InvalidSetting."""
        flags = {**_FOR_TESTS, "listeners": self.kafka, "http.listener": self.http}
        flags |= _IN_MEMORY if self.directory is None else {"data.dir": self.directory}
        assignments = [f"{name}={value}" for name, value in self.settings.items()]
        return loader.load(flags=flags, assignments=assignments)
