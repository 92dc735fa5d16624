"""Looks at a broker's metrics with the eyes of Prometheus, and counts what it asks by HTTP."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.patience import HANG_S

Sample = tuple[str, tuple[tuple[str, str], ...]]
"""A name, and its labels in the order of their names."""


def sample(name: str, **labels: str) -> Sample:
    return name, tuple(sorted(labels.items()))


def parsed(text: str) -> dict[Sample, float]:
    """What Prometheus itself makes of it. No sample may come twice."""
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            key = sample(each.name, **each.labels)
            assert key not in found, key
            found[key] = each.value
    return found


class Web:
    """An HTTP client that knows what it has asked."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=HANG_S)
        self.asked: Counter[tuple[str, int]] = Counter()
        """By group of routes and status code."""

    def ask(self, method: str, path: str, group: str, code: int = 200, **more: Any) -> Any:
        answer = self.client.request(method, path, **more)
        assert answer.status_code == code, answer.text
        self.asked[group, code] += 1
        return answer

    def scrape(self) -> dict[Sample, float]:
        """What the look itself adds is not in it."""
        answer = self.client.get("/metrics")
        assert answer.status_code == 200, answer.text
        self.seen = self.asked.copy()
        self.asked["metrics", 200] += 1
        return parsed(answer.text)

    def close(self) -> None:
        self.client.close()


def histograms(found: dict[Sample, float]) -> dict[Sample, int]:
    """How many were observed by each histogram, once all it says holds together."""
    buckets: dict[Sample, list[float]] = defaultdict(list)
    for (name, labels), value in found.items():
        if name.endswith("_bucket"):
            own = tuple(pair for pair in labels if pair[0] != "le")
            buckets[name.removesuffix("_bucket"), own].append(value)
    counts = {}
    for (name, labels), values in buckets.items():
        assert values == sorted(values), name
        assert values[-1] == found[f"{name}_count", labels], name
        assert (found[f"{name}_sum", labels] > 0) == (values[-1] > 0), name
        counts[name, labels] = int(values[-1])
    return counts
