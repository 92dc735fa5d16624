"""A reading as text in the format of Prometheus, version 0.0.4.

In pieces, so that who sends it can let others have their turn between two of them. Written here and
not by Prometheus's own client, which takes ten times as long for the values of a thousand topics.
Cost: benchmarks/metrics_cost.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from millstream.telemetry.histogram import BOUNDS_NS, Histogram
from millstream.telemetry.metric import Kind, Labels, Metric, Number, Reading

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PIECE = 500
_LIMITS = (*(f'le="{bound / 1e9:g}"' for bound in BOUNDS_NS), 'le="+Inf"')


def exposition(reading: Reading, catalogue: Iterable[Metric]) -> Iterator[str]:
    """All metrics of a catalogue that have values, in its order, piece by piece."""
    known: dict[tuple[Labels, Labels], str] = {}
    for metric in catalogue:
        if metric.kind is Kind.HISTOGRAM:
            if found := reading.histograms.get(metric):
                yield _head(metric)
                yield from (_histogram(metric, labels, each) for labels, each in found)
        elif values := reading.values.get(metric):
            yield _head(metric)
            for start in range(0, len(values), _PIECE):
                yield _lines(metric, values[start : start + _PIECE], known)


def _head(metric: Metric) -> str:
    doc = metric.doc.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.name} {doc}\n# TYPE {metric.name} {metric.kind}\n"


def _lines(
    metric: Metric,
    values: Iterable[tuple[Labels, Number]],
    known: dict[tuple[Labels, Labels], str],
) -> str:
    """Hot: thousands of values. Most labels come again with another metric."""
    name, names = metric.name, metric.labels
    lines = []
    for labels, value in values:
        text = known.get((names, labels))
        if text is None:
            text = known[names, labels] = _braced(_pairs(names, labels))
        lines.append(f"{name}{text} {value}\n")
    return "".join(lines)


def _histogram(metric: Metric, labels: Labels, histogram: Histogram) -> str:
    name, pairs = metric.name, _pairs(metric.labels, labels)
    sums = list(accumulate(histogram.counts))
    lines = [
        f"{name}_bucket{_braced([*pairs, limit])} {below}\n"
        for limit, below in zip(_LIMITS, sums, strict=True)
    ]
    text = _braced(pairs)
    return "".join(
        [*lines, f"{name}_sum{text} {histogram.sum_ns / 1e9}\n", f"{name}_count{text} {sums[-1]}\n"]
    )


def _pairs(names: Labels, labels: Labels) -> list[str]:
    return [f'{name}="{_escaped(text)}"' for name, text in zip(names, labels, strict=True)]


def _braced(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
