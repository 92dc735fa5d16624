"""Files that tasks stage: parted as asked, described truthfully, whatever the rows."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import ManualClock
from millstream.errors import InvalidRequest
from millstream.spark.fingerprint import Fingerprint
from millstream.spark.lake import partition_values
from millstream.spark.lake.file_statistics import statistics
from millstream.spark.lake.staging import Stage
from millstream.spark.lake.table_files import open_files
from tests.fakes.examples import examples

VALUES = {
    "s": (pa.string(), st.none() | st.text(max_size=3)),
    "n": (pa.int32(), st.none() | st.integers(-3, 3)),
    "b": (pa.bool_(), st.none() | st.booleans()),
    "d": (pa.date32(), st.none() | st.dates(date(1990, 1, 1), date(1990, 1, 4))),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    count = draw(st.integers(0, 30))
    columns = {"row": pa.array(range(count), pa.int64())}
    for name, (kind, values) in VALUES.items():
        columns[name] = pa.array(draw(st.lists(values, min_size=count, max_size=count)), kind)
    return pa.RecordBatch.from_pydict(columns)


@settings(max_examples=examples(20))
@given(batches(), st.sets(st.sampled_from(sorted(VALUES))))
def test_rows_are_parted_by_their_values_and_come_back(
    batch: pa.RecordBatch, chosen: set[str]
) -> None:
    columns = sorted(chosen)
    found = {}
    for values, part in partition_values.split(batch, columns):
        assert not set(part.schema.names) & chosen
        numbers = part.column("row").to_pylist()
        assert numbers == sorted(numbers)
        for row in part.to_pylist():
            parsed = {
                name: partition_values.parse(value, VALUES[name][0]).as_py()
                for name, value in zip(columns, values, strict=True)
            }
            found[row["row"]] = {**row, **parsed}
    # An empty string is a null in a partition column.
    expected = [
        {name: None if name in chosen and value == "" else value for name, value in row.items()}
        for row in batch.to_pylist()
    ]
    assert [found[number] for number in sorted(found)] == expected


@settings(max_examples=examples(20))
@given(batches(), st.randoms(use_true_random=False), st.integers(0, 30))
def test_fingerprint_is_one_for_all_orders_and_divisions(
    batch: pa.RecordBatch, random: object, cut: int
) -> None:
    order = list(range(batch.num_rows))
    random.shuffle(order)  # type: ignore[attr-defined]
    mixed = batch.take(pa.array(order, pa.int64()))
    whole = Fingerprint()
    whole.add(batch)
    parts = []
    for piece in (mixed.slice(0, cut), mixed.slice(cut)):
        part = Fingerprint()
        part.add(piece)
        parts.append(part)
    assert Fingerprint.total(parts).text() == whole.text()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, 4]),
        pa.array([1, 2, None]),
        pa.array([1.0, 2.0, 3.5]),
        pa.array(["a", "b", "d"]),
        pa.array([b"a", b"b", None]),
        pa.array([[1], [2], [3, 4]]),
        pa.array([{"x": 1}, {"x": 2}, {"x": 9}]),
        pa.array([True, False, False]),
        pa.array([[("k", 1)], [("k", 2)], [("l", 3)]], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda column: str(column.type),
)
def test_fingerprint_tells_another_value(column: pa.Array) -> None:
    def text(rows: pa.Array) -> str:
        mark = Fingerprint()
        mark.add(pa.record_batch([rows], names=["c"]))
        return mark.text()

    assert text(column) == text(column.take(pa.array([2, 0, 1])))
    assert text(column) != text(column.take(pa.array([0, 0, 1])))
    assert text(column.slice(1)) != text(column.slice(0, 2))


def test_statistics_are_exact_or_missing(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "number": pa.array([3, None, 1]),
            "word": ["b", "a", "c"],
            "long": ["x" * 100, "y", "z"],
            "ratio": [float("nan"), 1.0, 2.0],
            "at": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
            "empty": pa.array([None, None, None], pa.int64()),
            "list": [[1], [2], [3]],
        }
    )
    pq.write_table(rows, tmp_path / "f", row_group_size=1)
    told = json.loads(statistics(pq.read_metadata(tmp_path / "f")))
    assert told["numRecords"] == 3
    assert told["minValues"] == {"number": 1, "word": "a", "at": "1970-01-01T00:00:00.000001Z"}
    assert told["maxValues"] == {"number": 3, "word": "c", "at": "1970-01-01T00:00:00.000003Z"}
    assert told["nullCount"]["number"] == 1
    assert told["nullCount"]["empty"] == 3


def test_time_that_python_does_not_know_has_no_bounds(tmp_path: Path) -> None:
    times = [253_402_300_800_000_000, -62_135_596_800_000_001, 2**63 - 1]
    rows = pa.table(
        {
            "number": [1, 2, 3],
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "day": pa.array([3_000_000, 0, -800_000], pa.int32()).cast(pa.date32()),
        }
    )
    pq.write_table(rows, tmp_path / "f")
    told = json.loads(statistics(pq.read_metadata(tmp_path / "f")))
    assert told["minValues"] == {"number": 1}
    assert told["maxValues"] == {"number": 3}
    assert told["nullCount"] == {"number": 0, "at": 0, "day": 0}


def test_partition_of_a_day_that_python_does_not_know_is_refused_by_its_name() -> None:
    days = pa.array([0, 3_000_000], pa.int32()).cast(pa.date32())
    batch = pa.RecordBatch.from_pydict({"row": pa.array([1, 2]), "day": days})
    with pytest.raises(InvalidRequest, match="'day'"):
        list(partition_values.split(batch, ["day"]))


def test_many_partitions_are_staged_with_few_open_files(tmp_path: Path) -> None:
    stage = make_stage(tmp_path, partition_by=("p",), target_file_bytes=1)
    for start in (0, 300):
        ids = pa.array(range(start, start + 300), pa.int64())
        stage.add(pa.record_batch([ids, pa.array([i % 150 for i in ids.to_pylist()])], ["id", "p"]))
    staged = stage.finish()
    assert {file.values for file in staged} == {(str(number),) for number in range(150)}
    assert sum(file.rows for file in staged) == 600
    for file in staged:
        assert (tmp_path / file.path).stat().st_size == file.size


def test_discarded_stage_leaves_no_file(tmp_path: Path) -> None:
    stage = make_stage(tmp_path, partition_by=("p",), target_file_bytes=1)
    stage.add(pa.record_batch([pa.array([1, 2]), pa.array(["x", "y"])], ["id", "p"]))
    stage.discard()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_partition_by_a_timestamp_is_refused() -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    with pytest.raises(InvalidRequest, match=r"to_date\(\)"):
        partition_values.check_columns(schema, ["at"])


def make_stage(
    path: Path, *, partition_by: tuple[str, ...] = (), target_file_bytes: int = 1 << 20
) -> Stage:
    return Stage(
        open_files(str(path)),
        folder="",
        stem="part",
        partition_by=partition_by,
        target_file_bytes=target_file_bytes,
        clock=ManualClock(),
    )
