"""What the filters of a batch read spare it from reading.

Filters on topic, partition and offset are decided here and nowhere else. A filter on the earliest
timestamp moves the start, because all before the first record as late as that is earlier; Spark
still applies it, because later records may be earlier too. For the same reason a latest timestamp
spares nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from millstream.spark.offsets import Place

_COMPARISONS: Mapping[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
}
_NULLS: Mapping[type[Filter], bool] = {IsNull: False, IsNotNull: True}
_LARGEST = 2**63 - 1


@dataclass(slots=True)
class Pruning:
    """What is left to read after the filters that were taken."""

    places: list[Filter] = field(default_factory=list)
    min_offset: int = 0
    end_offset: int = _LARGEST
    min_timestamp_ms: int | None = None

    def takes(self, place: Place) -> bool:
        return all(_holds(each, place) for each in self.places)

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take in what can be; returns the filters that Spark must still apply."""
        return [each for each in filters if not self._take(each)]

    def _take(self, wanted: Filter) -> bool:
        column = _column_of(wanted)
        if column in ("topic", "partition") and _is_decidable(wanted):
            self.places.append(wanted)
            return True
        if column == "offset":
            return self._take_offset(wanted)
        if column == "timestamp":
            self._take_timestamp(wanted)
        return False

    def _take_offset(self, wanted: Filter) -> bool:
        """Whether the filter is now part of the bounds."""
        match wanted:
            case IsNotNull():
                return True
            case EqualTo(value=int(value)) | EqualNullSafe(value=int(value)):
                self._narrow(value, value + 1)
            case GreaterThan(value=int(value)):
                self._narrow(value + 1, _LARGEST)
            case GreaterThanOrEqual(value=int(value)):
                self._narrow(value, _LARGEST)
            case LessThan(value=int(value)):
                self._narrow(0, value)
            case LessThanOrEqual(value=int(value)):
                self._narrow(0, value + 1)
            case In(value=values) if values and all(type(each) is int for each in values):
                # Only the outermost of them; Spark picks out those between.
                self._narrow(min(values), max(values) + 1)
                return False
            case _:
                return False
        return True

    def _narrow(self, start: int, end: int) -> None:
        self.min_offset = max(self.min_offset, start)
        self.end_offset = min(self.end_offset, end)

    def _take_timestamp(self, wanted: Filter) -> None:
        match wanted:
            case (
                GreaterThan(value=datetime() as value)
                | GreaterThanOrEqual(value=datetime() as value)
                | EqualTo(value=datetime() as value)
                | EqualNullSafe(value=datetime() as value)
            ):
                zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
                # Rounded down: records have no finer time.
                at_ms = int(zoned.timestamp() * 1000) - 1
                # An earlier one cannot be asked for: to a broker, numbers below 0 are no times.
                if at_ms >= 0:
                    self.min_timestamp_ms = max(self.min_timestamp_ms or 0, at_ms)


def _column_of(wanted: Filter) -> str:
    inner = wanted.child if isinstance(wanted, Not) else wanted
    path: Sequence[str] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _is_decidable(wanted: Filter) -> bool:
    inner = wanted.child if isinstance(wanted, Not) else wanted
    if type(inner) in _NULLS:
        return True
    values = getattr(inner, "value", None)
    if isinstance(inner, In):
        # A null among them makes the answer neither true nor false.
        return None not in inner.value
    return type(inner) in _COMPARISONS and values is not None


def _holds(wanted: Filter, place: Place) -> bool:
    if isinstance(wanted, Not):
        return not _holds(wanted.child, place)
    if type(wanted) in _NULLS:
        return _NULLS[type(wanted)]
    value = place[0] if _column_of(wanted) == "topic" else place[1]
    return _COMPARISONS[type(wanted)](value, wanted.value)  # type: ignore[attr-defined]
