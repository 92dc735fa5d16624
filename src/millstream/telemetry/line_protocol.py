"""A reading as lines of InfluxDB's line protocol.

The measure is the name of the metric, its labels are tags, and its value is the field `value`. A
histogram has the fields `count` and `sum`, and one named by each bound, in seconds, with how many
took no longer. A label without a value is left out: the format knows no empty tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from millstream.settings.domain import LONG_MAX
from millstream.telemetry.histogram import BOUNDS_NS, Histogram
from millstream.telemetry.metric import Kind, Labels, Metric, Number, Reading

CONTENT_TYPE = "text/plain; charset=utf-8"

_PIECE = 500
_LIMITS = tuple(f"{bound / 1e9:g}" for bound in BOUNDS_NS)
_ESCAPES = str.maketrans({",": r"\,", "=": r"\=", **dict.fromkeys(" \n\r\t", r"\ ")})


def line_protocol(
    reading: Reading, catalogue: Iterable[Metric], *, timestamp_ms: int
) -> Iterator[str]:
    """All metrics of a catalogue that have values, in its order, piece by piece."""
    end = f" {timestamp_ms * 1_000_000}\n"
    known: dict[tuple[Labels, Labels], str] = {}
    for metric in catalogue:
        if metric.kind is Kind.HISTOGRAM:
            found = reading.histograms.get(metric, ())
            yield from (_histogram(metric, labels, each) + end for labels, each in found)
        else:
            values = reading.values.get(metric, [])
            for start in range(0, len(values), _PIECE):
                yield _lines(metric, values[start : start + _PIECE], known, end)


def _lines(
    metric: Metric,
    values: Iterable[tuple[Labels, Number]],
    known: dict[tuple[Labels, Labels], str],
    end: str,
) -> str:
    lines = []
    for labels, value in values:
        tags = known.get((metric.labels, labels))
        if tags is None:
            tags = known[metric.labels, labels] = _tags(metric.labels, labels)
        lines.append(f"{metric.name}{tags} value={_number(value)}{end}")
    return "".join(lines)


def _histogram(metric: Metric, labels: Labels, histogram: Histogram) -> str:
    sums = list(accumulate(histogram.counts))
    limits = [f"{limit}={below}i" for limit, below in zip(_LIMITS, sums[:-1], strict=True)]
    fields = [f"count={sums[-1]}i", f"sum={histogram.sum_ns / 1e9}", *limits]
    return f"{metric.name}{_tags(metric.labels, labels)} {','.join(fields)}"


def _tags(names: Labels, labels: Labels) -> str:
    # A backslash before the comma that ends a tag would be taken for an escape.
    pairs = [
        (name, text.translate(_ESCAPES).rstrip(chr(92)))
        for name, text in zip(names, labels, strict=True)
    ]
    return "".join(f",{name}={text}" for name, text in pairs if text)


def _number(value: Number) -> str:
    """As an integer, if it is one that the format has room for."""
    return f"{value}i" if isinstance(value, int) and abs(value) <= LONG_MAX else f"{value}"
