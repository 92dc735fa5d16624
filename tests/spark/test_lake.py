"""Streams and batches of rows in Delta tables, read in full by engines that are not ours."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.spark.mortal_source import mortal_source
from tests.spark.streams import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.system

FORMAT = "millstream_delta"
NAMES = ["plain", "with space", "a/b=c%41", "grün", "'q\"{}#?", None]
ROWS = 600


def make_rows(spark: SparkSession, count: int = ROWS) -> DataFrame:
    """Of every kind, with names that are hard to put into a path."""
    names = ", ".join("null" if name is None else _literal(name) for name in NAMES)
    return spark.range(0, count, 1, 3).selectExpr(
        "id",
        f"element_at(array({names}), cast(id % {len(NAMES)} + 1 as int)) as name",
        "date_add(date'2024-02-28', cast(id % 3 as int)) as day",
        "timestamp_micros(1700000000123456 + id) as at",
        "cast(id % 5 as double) / 3 as ratio",
        "if(id % 7 = 0, null, encode(concat('v', id), 'utf-8')) as data",
        "array(id, id + 1) as pair",
        "named_struct('x', id, 'y', cast(id as string)) as point",
        "cast(id as decimal(12, 2)) as price",
    )


def write_stream(
    rows: DataFrame, table: Path, checkpoint: Path, *, format_name: str = FORMAT, **options: str
) -> None:
    run_to_end(
        rows.writeStream.format(format_name)
        .option("path", str(table))
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
    )


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path / "feed")


class Feed:
    """A folder whose files are a stream, a batch each."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        folder.mkdir()
        self._spark = spark
        self._folder = folder
        self._count = 0

    def add(self, **columns: list[Any]) -> None:
        pq.write_table(pa.table(columns), self._folder / f"{self._count:05}.parquet")
        self._count += 1

    def rows(self, schema: str, *, files_per_batch: int = 1) -> DataFrame:
        reader = self._spark.readStream.schema(schema)
        return reader.option("maxFilesPerTrigger", files_per_batch).parquet(str(self._folder))


def test_table_holds_the_same_rows_for_every_engine(spark: SparkSession, tmp_path: Path) -> None:
    table, rows = tmp_path / "table", make_rows(spark)
    writer = rows.write.format(FORMAT).option("partitionBy", "name,day")
    writer.mode("append").save(str(table))

    expected = sorted((_row(row.asDict(recursive=True)) for row in rows.collect()), key=_id)
    assert len(expected) == ROWS
    by_spark = spark.read.format(FORMAT).load(str(table)).collect()
    assert sorted((_row(row.asDict(recursive=True)) for row in by_spark), key=_id) == expected
    by_polars = pl.read_delta(str(table)).to_dicts()
    assert sorted(map(_row, by_polars), key=_id) == expected
    delta = DeltaTable(str(table))
    by_duckdb = duckdb.sql(
        "select * from read_parquet($files, hive_partitioning = true, hive_types_autocast = false)",
        params={"files": delta.file_uris()},
    )
    assert by_duckdb is not None
    names = [_row(row) for row in by_duckdb.to_arrow_table().to_pylist()]
    # DuckDB takes these from the paths, as text.
    for row in names:
        row["day"] = date.fromisoformat(row["day"])
    assert sorted(names, key=_id) == expected
    by_arrow = delta.to_pyarrow_table().to_pylist()
    assert sorted(map(_row, by_arrow), key=_id) == expected
    # What files say of themselves is true: those that cannot have a row are left out.
    found = delta.to_pyarrow_table(filters=[("id", "=", 17)]).to_pylist()
    assert [row["id"] for row in found] == [17]


def test_overwrite_replaces_all_rows_and_a_wrong_column_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    spark.range(10).write.format(FORMAT).mode("append").save(table)
    spark.range(100, 103).write.format(FORMAT).mode("overwrite").save(table)
    assert sorted(pl.read_delta(table)["id"]) == [100, 101, 102]
    with pytest.raises(Exception, match="column 'id' is long there and string in the rows: cast"):
        spark.range(3).selectExpr("cast(id as string) id").write.format(FORMAT).mode("append").save(
            table
        )
    with pytest.raises(Exception, match="there is no option 'partitionsby': did you mean"):
        spark.range(3).write.format(FORMAT).option("partitionsBy", "id").mode("append").save(table)
    with pytest.raises(Exception, match="there is no Delta table"):
        spark.read.format(FORMAT).load(str(tmp_path / "nothing"))
    assert sorted(pl.read_delta(table)["id"]) == [100, 101, 102]


def test_lost_checkpoint_neither_repeats_nor_loses_rows(feed: Feed, tmp_path: Path) -> None:
    table = tmp_path / "table"
    for start in (0, 10, 20):
        feed.add(id=list(range(start, start + 10)))
    write_stream(feed.rows("id long"), table, tmp_path / "first", name="numbers")
    assert _ids(table) == list(range(30))
    feed.add(id=list(range(30, 40)))
    write_stream(feed.rows("id long"), table, tmp_path / "first", name="numbers")
    assert _ids(table) == list(range(40))
    # The same batches: those that the table has are left out, and the new one is written.
    feed.add(id=list(range(40, 50)))
    write_stream(feed.rows("id long"), table, tmp_path / "second", name="numbers")
    assert _ids(table) == list(range(50))
    # Other batches with their numbers: nobody can tell what the table has of them.
    with pytest.raises(Exception, match=r"table .* has batches up to 4 of query 'numbers'"):
        write_stream(
            feed.rows("id long", files_per_batch=2), table, tmp_path / "third", name="numbers"
        )
    assert _ids(table) == list(range(50))
    assert len(list(table.glob("*.parquet"))) == len(DeltaTable(str(table)).file_uris())


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_batch_whose_commit_spark_does_not_know_of_is_not_repeated(
    spark: SparkSession, feed: Feed, tmp_path: Path, mode: str
) -> None:
    def fail() -> None:
        raise OSError("the driver is gone")

    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    options = {"mode": mode, "name": "q", "optimizeEvery": "2"}
    if mode == "upsert":
        options["key"] = "id"
    # The first commit creates the table; the second is followed by compaction.
    for batch in range(2):
        feed.add(id=list(range(batch * 10, batch * 10 + 10)))
        name = f"mortal_{mode}_{batch}"
        spark.dataSource.register(mortal_source(name, "after", batch, fail))
        with pytest.raises(Exception, match="the driver is gone"):
            write_stream(feed.rows("id long"), table, checkpoint, format_name=name, **options)
        assert _ids(table) == list(range(batch * 10 + 10))
    feed.add(id=list(range(20, 30)))
    write_stream(feed.rows("id long"), table, checkpoint, **options)
    assert _ids(table) == list(range(30))
    assert DeltaTable(str(table)).transaction_version("q") == 2


def test_upsert_keeps_the_newest_row_of_each_key(feed: Feed, tmp_path: Path) -> None:
    table = tmp_path / "table"
    schema = "k string, n long, v string"
    options = {"mode": "upsert", "key": "k", "orderBy": "n", "name": "latest"}
    feed.add(k=["a", "b", "a", "c"], n=[1, 1, 3, 1], v=["a1", "b1", "a3", "c1"])
    # An older row comes late, a newer one replaces, and one is new.
    feed.add(k=["a", "b", "d"], n=[2, 2, 2], v=["a2", "b2", "d2"])
    feed.add(k=["c"], n=[1], v=["again"])
    write_stream(feed.rows(schema), table, tmp_path / "checkpoint", **options)
    rows = pl.read_delta(str(table)).sort("k").rows()
    assert rows == [("a", 3, "a3"), ("b", 2, "b2"), ("c", 1, "again"), ("d", 2, "d2")]
    assert DeltaTable(str(table)).transaction_version("latest") == 2
    assert list((table / "_millstream").rglob("*.parquet")) == []
    feed.add(k=["a", None], n=[9, 9], v=["a9", "lost"])
    with pytest.raises(Exception, match="key column 'k' is null in 1 rows"):
        write_stream(feed.rows(schema), table, tmp_path / "checkpoint", **options)
    assert pl.read_delta(str(table)).sort("k").rows() == rows


def test_new_column_is_added_where_the_option_allows_it(feed: Feed, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    feed.add(id=[1], p=["x"])
    write_stream(feed.rows("id long, p string"), table, checkpoint, name="q", partitionBy="p")
    feed.add(id=[2], p=["x"], word=["two"])
    wider = "id long, p string, word string"
    with pytest.raises(Exception, match="column 'word' is new: set option 'mergeSchema'"):
        write_stream(feed.rows(wider), table, checkpoint, name="q", partitionBy="p")
    write_stream(feed.rows(wider), table, checkpoint, name="q", partitionBy="p", mergeSchema="true")
    # A query that knows less than the table is fine.
    feed.add(id=[3], p=["y"])
    write_stream(feed.rows("id long, p string"), table, checkpoint, name="q", partitionBy="p")
    expected = [(1, "x", None), (2, "x", "two"), (3, "y", None)]
    assert pl.read_delta(str(table)).sort("id").rows() == expected


def test_files_stay_few_and_what_nobody_needs_goes(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    for number in range(7):
        feed.add(id=list(range(number * 10, number * 10 + 10)))
    table.mkdir()
    orphan, young = table / "part-orphan.parquet", table / "part-young.parquet"
    for file in (orphan, young):
        file.write_bytes(b"left by a task that died")
    os.utime(orphan, (0, 0))
    write_stream(
        feed.rows("id long"), table, tmp_path / "c", name="q", optimizeEvery="3", vacuumAfter="24"
    )
    assert _ids(table) == list(range(70))
    # Six batches in one file, and the last.
    assert len(DeltaTable(str(table)).file_uris()) == 2
    assert not orphan.exists()
    assert young.exists()
    assert spark.read.format(FORMAT).load(str(table)).count() == 70


def test_files_end_at_the_size_that_was_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    rows = spark.range(0, 200_000, 1, 1).selectExpr("id", "uuid() as word")
    rows.write.format(FORMAT).option("targetFileSize", "1m").mode("append").save(table)
    sizes = pa.table(DeltaTable(table).get_add_actions()).column("size_bytes").to_pylist()
    assert len(sizes) > 3
    assert max(sizes) < 2 << 20
    assert sorted(pl.read_delta(table)["id"]) == list(range(200_000))


def _ids(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().column("id").to_pylist())


def _id(row: dict[str, Any]) -> int:
    return int(row["id"])


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Values that compare, whichever engine they come from."""
    at = row["at"]
    row["at"] = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    assert isinstance(row["at"], datetime)
    row["data"] = None if row["data"] is None else bytes(row["data"])
    return row


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
