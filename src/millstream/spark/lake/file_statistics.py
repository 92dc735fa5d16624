"""What the log says of a file, so that readers can leave it alone: rows, and bounds of columns.

Invariant: a bound is exact or missing. Long strings, fractions (whose NaN has no place among the
bounds), nested columns and times outside of the years 1 to 9999 have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeAlias

import orjson
import pyarrow.parquet as pq

# As many as Delta looks at.
_MOST_COLUMNS = 32
_LONGEST_TEXT = 64

_Bound: TypeAlias = int | str | None


def statistics(metadata: pq.FileMetaData) -> str:
    """In the JSON of Delta's log."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for place in range(min(metadata.num_columns, _MOST_COLUMNS)):
        name = metadata.schema.column(place).path
        if "." in name or metadata.schema.column(place).max_repetition_level:
            continue
        groups = [
            metadata.row_group(group).column(place).statistics
            for group in range(metadata.num_row_groups)
        ]
        if any(each is None for each in groups):
            continue
        if all(each.has_null_count for each in groups):
            nulls[name] = sum(each.null_count for each in groups)
        filled = [each for each in groups if each.has_min_max]
        if len(filled) == len([each for each in groups if each.num_values]) and filled:
            low, high = _range(filled)
            if low is not None and high is not None:
                lowest[name], highest[name] = low, high
    return orjson.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": lowest,
            "maxValues": highest,
            "nullCount": nulls,
        }
    ).decode()


def _range(filled: Sequence[pq.Statistics]) -> tuple[_Bound, _Bound]:
    try:
        return _bound(min(each.min for each in filled)), _bound(max(each.max for each in filled))
    except (OverflowError, ValueError):
        # Python has no such time, and producers give records whatever time they like.
        return None, None


def _bound(value: object) -> _Bound:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
    if isinstance(value, datetime):
        return _timestamp(value)
    if isinstance(value, date):
        return value.isoformat()
    return None


def _timestamp(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
