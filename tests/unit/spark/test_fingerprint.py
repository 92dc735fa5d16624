"""Fingerprints of rows: the same for the same rows in any order, and for no others."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.fingerprint import Fingerprint

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("text", pa.string()),
        ("number", pa.int64()),
        ("small", pa.int16()),
        ("yes", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("amount", pa.decimal128(20, 2)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("name", pa.string())])),
        ("labels", pa.map_(pa.string(), pa.int32())),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=5),
        "text": st.none() | st.text(max_size=5),
        "number": st.none() | st.integers(-3, 3),
        "small": st.none() | st.integers(-3, 3),
        "yes": st.none() | st.booleans(),
        "at": st.none() | st.integers(0, 3).map(lambda n: dt.datetime.fromtimestamp(n, dt.UTC)),
        "amount": st.none() | st.integers(-3, 3).map(decimal.Decimal),
        "tags": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=3),
        "place": st.none()
        | st.fixed_dictionaries(
            {"x": st.none() | st.sampled_from([0.0, 1.5]), "name": st.none() | st.text(max_size=2)}
        ),
        "labels": st.none()
        | st.dictionaries(st.text(max_size=2), st.integers(0, 3), max_size=2).map(
            lambda found: sorted(found.items())
        ),
    }
)


def fingerprint(*rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> str:
    made = Fingerprint()
    made.add(pa.RecordBatch.from_pylist(list(rows), schema=schema))
    return made.text()


def of_values(values: list[Any], kind: pa.DataType) -> str:
    return fingerprint(*({"a": each} for each in values), schema=pa.schema([("a", kind)]))


@given(st.lists(ROWS, max_size=6), st.randoms(), st.data())
def test_order_and_division_make_no_difference(
    rows: list[dict[str, Any]], random: Any, data: st.DataObject
) -> None:
    whole = fingerprint(*rows)
    shuffled = list(rows)
    random.shuffle(shuffled)
    batch = pa.RecordBatch.from_pylist(shuffled, schema=SCHEMA)
    cut = data.draw(st.integers(0, len(rows)))
    parts = [Fingerprint(), Fingerprint()]
    # Parts of one array, which do not begin at its beginning.
    parts[0].add(batch.slice(0, cut))
    parts[1].add(batch.slice(cut))
    assert Fingerprint.total(parts).text() == whole


@given(st.lists(ROWS, min_size=1, max_size=4), ROWS, st.data())
def test_other_rows_have_another(
    rows: list[dict[str, Any]], other: dict[str, Any], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    changed = [*rows[:at], other, *rows[at + 1 :]]
    assert (fingerprint(*changed) == fingerprint(*rows)) == (rows[at] == other)


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ([1, 4], [2, 3], pa.int64()),
        ([None], [0], pa.int64()),
        ([b""], [None], pa.binary()),
        ([b"ab", b"c"], [b"a", b"bc"], pa.binary()),
        ([[1], [2, 3]], [[1, 2], [3]], pa.list_(pa.int32())),
        ([[1, 2]], [[2, 1]], pa.list_(pa.int32())),
        ([[]], [None], pa.list_(pa.int32())),
        ([[None]], [[]], pa.list_(pa.int32())),
        ([True, False], [False, False], pa.bool_()),
    ],
)
def test_rows_that_are_alike_are_told_apart(
    one: list[Any], other: list[Any], kind: pa.DataType
) -> None:
    assert of_values(one, kind) != of_values(other, kind)


def test_values_that_change_places_between_rows_or_columns_are_told_apart() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    straight = fingerprint({"a": 1, "b": 2}, {"a": 3, "b": 4}, schema=schema)
    assert straight != fingerprint({"a": 1, "b": 4}, {"a": 3, "b": 2}, schema=schema)
    assert straight != fingerprint({"a": 2, "b": 1}, {"a": 4, "b": 3}, schema=schema)


def test_same_row_twice_is_not_the_same_row_once() -> None:
    assert of_values([7, 7], pa.int64()) != of_values([7], pa.int64())
