"""Partition columns: how rows are parted by them, and how a value is written down.

In the log a value is a string, or null. In a path it is `column=value`, percent-encoded: some
readers take the value from there. An empty string is a null, as with every writer of Delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidRequest

Values = tuple[str | None, ...]

_NULL = "__HIVE_DEFAULT_PARTITION__"


def check_columns(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raises InvalidRequest for columns that rows cannot be parted by."""
    for name in columns:
        if name not in schema.names:
            raise InvalidRequest(
                f"option 'partitionBy' names column {name!r}: the rows have "
                f"{', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if not _is_plain(kind):
            raise InvalidRequest(
                f"option 'partitionBy' names column {name!r} of type {kind}: part by a string, "
                f"a whole number, a boolean or a date; make a date of a timestamp with to_date()"
            )
    if columns and len(columns) == len(schema.names):
        raise InvalidRequest("option 'partitionBy' names every column: leave one for the files")


def split(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Rows by their values, in the order that they have; the columns themselves are left out."""
    rest = batch.drop_columns(list(columns)) if columns else batch
    if not columns or not batch.num_rows:
        if batch.num_rows:
            yield (), rest
        return
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    vocabularies = []
    for name in columns:
        coded = batch.column(name).dictionary_encode(null_encoding="encode")
        vocabularies.append(_vocabulary(name, coded.dictionary))
        codes = codes * max(1, len(vocabularies[-1])) + coded.indices.to_numpy()
    # Stable, so that rows with one key stay in their order.
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, end in pairwise(starts):
        rows = rest if end - start == len(codes) else rest.take(pa.array(order[start:end]))
        yield _values(int(codes[start]), vocabularies), rows


def folder(columns: Sequence[str], values: Values) -> str:
    """As it is on the disk."""
    return "".join(
        f"{quote(name, safe='')}={_NULL if value is None else quote(value, safe='')}/"
        for name, value in zip(columns, values, strict=True)
    )


def log_path(path: str) -> str:
    """A path on the disk as the log names it."""
    return quote(path, safe="/=")


def parse(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value that the log names."""
    if text is None or text == "":
        return pa.scalar(None, kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(text == "true", kind)
    if pa.types.is_string(kind):
        return pa.scalar(text, kind)
    return pa.scalar(text).cast(kind)


def _vocabulary(name: str, distinct: pa.Array) -> list[object]:
    """Raises InvalidRequest for a date that the log has no text for."""
    try:
        values: list[object] = distinct.to_pylist()
    except (OverflowError, ValueError):
        raise InvalidRequest(
            f"partition column {name!r} has a date outside of the years 1 to 9999, of which no "
            f"folder can be made: filter such rows out, or put another date in its place"
        ) from None
    return values


def _values(code: int, vocabularies: list[list[object]]) -> Values:
    values: list[str | None] = []
    for vocabulary in reversed(vocabularies):
        code, place = divmod(code, max(1, len(vocabulary)))
        values.append(_text(vocabulary[place]))
    return tuple(reversed(values))


def _text(value: object) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
    )
