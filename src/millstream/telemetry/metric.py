"""How a metric is declared, and what was found of each at one look.

Invariant: a sample has one label value for each label name of its metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from millstream.telemetry.histogram import Histogram


class Kind(StrEnum):
    """What a metric's values do over time, in the words of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric. Its name ends in its unit; that of a counter in `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str


Labels = tuple[str, ...]
Number = int | float


class Reading:
    """All values at one look."""

    def __init__(self) -> None:
        self.values: dict[Metric, list[tuple[Labels, Number]]] = {}
        """Of counters and gauges."""
        self.histograms: dict[Metric, list[tuple[Labels, Histogram]]] = {}

    def add(self, metric: Metric, value: Number, *labels: str) -> None:
        self.of(metric).append((labels, value))

    def of(self, metric: Metric) -> list[tuple[Labels, Number]]:
        """Where the values of a metric go: for who has many of them."""
        return self.values.setdefault(metric, [])

    def add_histogram(self, metric: Metric, histogram: Histogram, *labels: str) -> None:
        self.histograms.setdefault(metric, []).append((labels, histogram))

    def value(self, metric: Metric, labels: Mapping[str, str] | None = None) -> Number:
        """The sum of all values whose labels are as given."""
        wanted = {(metric.labels.index(name), value) for name, value in (labels or {}).items()}
        return sum(
            value
            for found, value in self.values.get(metric, ())
            if all(found[at] == text for at, text in wanted)
        )
