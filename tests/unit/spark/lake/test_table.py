"""A table as the driver commits to it, without Spark: batches once, whatever fails in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import DayTimeIntervalType, LongType, StructField, StructType

from millstream.clock import SystemClock
from millstream.errors import CheckpointLost, InvalidRequest, TableConflict
from millstream.spark.fingerprint import Fingerprint
from millstream.spark.lake import upkeep
from millstream.spark.lake.options import LakeOptions
from millstream.spark.lake.staging import Stage, StagedFile
from millstream.spark.lake.table import Batch, LakeTable, staging_folder
from millstream.spark.lake.table_files import open_files
from millstream.spark.lake.writers import BatchWriter, delta_schema_json

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def table_at(path: str, schema: pa.Schema = SCHEMA, **options: object) -> LakeTable:
    chosen = LakeOptions(path=path, **{"name": "query", **options})  # type: ignore[arg-type]
    return LakeTable(chosen, deltalake.Schema.from_arrow(schema))


def stage(
    path: str,
    number: int,
    ids: list[int],
    *,
    query_id: str = "first",
    partition_by: tuple[str, ...] = (),
    folder: str = "",
) -> Batch:
    """What two tasks leave to the driver."""
    files: list[StagedFile] = []
    fingerprints = []
    for task, part in enumerate((ids[::2], ids[1::2])):
        rows = pa.record_batch(
            [pa.array(part, pa.int64()), pa.array([f"n{i % 2}" for i in part])], schema=SCHEMA
        )
        staged = Stage(
            open_files(path),
            folder=folder,
            stem=f"part-{task}",
            partition_by=partition_by,
            target_file_bytes=1 << 20,
            clock=SystemClock(),
        )
        staged.add(rows)
        fingerprint = Fingerprint()
        fingerprint.add(rows)
        files += staged.finish()
        fingerprints.append(fingerprint)
    return Batch(
        number=number,
        query_id=query_id,
        files=files,
        fingerprint=Fingerprint.total(fingerprints),
    )


def ids_of(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table().column("id").to_pylist())


def parquet_files(path: str) -> int:
    return len(list(Path(path).rglob("*.parquet")))


def test_batch_that_is_repeated_is_in_the_table_once(path: str) -> None:
    table = table_at(path, partition_by=("name",))
    for number in range(3):
        for _ in range(2):
            first = number * 10
            table.commit(
                stage(path, number, list(range(first, first + 10)), partition_by=("name",))
            )
    assert ids_of(path) == list(range(30))
    # What was staged in vain is gone.
    assert parquet_files(path) == len(DeltaTable(path).file_uris())


def test_abort_after_a_commit_that_took_effect_deletes_nothing(path: str) -> None:
    table = table_at(path, partition_by=("name",))
    batch = stage(path, 0, [1, 2, 3], partition_by=("name",))
    table.commit(batch)
    table.abort(batch)
    assert ids_of(path) == [1, 2, 3]
    other = stage(path, 1, [4, 5], partition_by=("name",))
    table.abort(other)
    assert parquet_files(path) == len(DeltaTable(path).file_uris())


def test_abort_after_commit_and_compaction_keeps_what_older_versions_need(path: str) -> None:
    table = table_at(path)
    batch = stage(path, 0, [1, 2, 3, 4])
    table.commit(batch)
    upkeep.compact(DeltaTable(path), LakeOptions(path=path))
    table.abort(batch)
    assert sorted(DeltaTable(path, version=0).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4]


def test_new_checkpoint_with_the_same_batches_repeats_nothing(path: str) -> None:
    table = table_at(path)
    table.commit(stage(path, 0, [1, 2, 3]))
    table.commit(stage(path, 1, [4, 5]))
    # In another order, and divided among tasks in another way.
    table.commit(stage(path, 0, [3, 2, 1], query_id="second"))
    table.commit(stage(path, 1, [5, 4], query_id="second"))
    table.commit(stage(path, 2, [6], query_id="second"))
    assert ids_of(path) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("ids", [[1, 2], [1, 2, 4], [1, 2, 3, 3], []])
def test_new_checkpoint_with_other_batches_is_refused(path: str, ids: list[int]) -> None:
    table = table_at(path)
    table.commit(stage(path, 0, [1, 2, 3]))
    with pytest.raises(CheckpointLost, match="give it a new name"):
        table.commit(stage(path, 0, ids, query_id="second"))
    assert ids_of(path) == [1, 2, 3]


def test_query_without_a_name_is_known_by_its_checkpoint(path: str) -> None:
    table = table_at(path, name=None)
    table.commit(stage(path, 0, [1]))
    table.commit(stage(path, 0, [1]))
    assert ids_of(path) == [1]
    table.commit(stage(path, 0, [1], query_id="second"))
    assert ids_of(path) == [1, 1]


def test_two_queries_write_to_one_table(path: str) -> None:
    one, two = table_at(path, name="one"), table_at(path, name="two")
    one.commit(stage(path, 0, [1]))
    two.commit(stage(path, 0, [2], query_id="other"))
    one.commit(stage(path, 1, [3]))
    assert ids_of(path) == [1, 2, 3]


class RacedTable(LakeTable):
    """A table that another writer changes after each look at it, while there are changes left."""

    def __init__(self, path: str, changes: list[Callable[[], None]], *, name: str) -> None:
        super().__init__(LakeOptions(path=path, name=name), deltalake.Schema.from_arrow(SCHEMA))
        self.changes = changes

    def open(self) -> DeltaTable | None:
        found = super().open()
        if self.changes:
            self.changes.pop(0)()
        return found


def test_table_that_appears_meanwhile_is_written_to(path: str) -> None:
    other = table_at(path, name="two")
    table = RacedTable(
        path, [lambda: other.commit(stage(path, 0, [2], query_id="other"))], name="one"
    )
    table.commit(stage(path, 0, [1]))
    assert table.changes == []
    assert ids_of(path) == [1, 2]


def test_batch_that_its_double_commits_first_is_left_out(path: str) -> None:
    """A driver that was thought dead still runs."""
    double = table_at(path)
    double.commit(stage(path, 0, [1]))
    table = RacedTable(path, [lambda: double.commit(stage(path, 1, [2]))], name="query")
    table.commit(stage(path, 1, [2]))
    assert table.changes == []
    assert ids_of(path) == [1, 2]


def test_commit_that_always_conflicts_says_why(path: str) -> None:
    table_at(path).commit(stage(path, 0, [1]))

    def change() -> None:
        DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})

    table = RacedTable(path, [change] * 20, name="query")
    with pytest.raises(CommitFailedError, match=r"[Mm]etadata"):
        table.commit(stage(path, 1, [2]))
    assert ids_of(path) == [1]


def test_upsert_crash_before_the_commit_leaves_nothing_that_counts(path: str) -> None:
    options = LakeOptions(path=path, mode="upsert", key=("id",), name="query")
    table = LakeTable(options, deltalake.Schema.from_arrow(SCHEMA))
    stage(path, 0, [1, 2], folder=staging_folder(options, "first", 0))
    table.commit(stage(path, 0, [1, 2], folder=staging_folder(options, "first", 0)))
    assert ids_of(path) == [1, 2]
    table.commit(stage(path, 1, [2, 3], folder=staging_folder(options, "first", 1)))
    assert ids_of(path) == [1, 2, 3]
    assert list((Path(path) / "_millstream").rglob("*.parquet")) == []


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        ([("id", pa.string())], {}, "column 'id' is long there and string in the rows"),
        ([("ID", pa.int64())], {}, "column 'ID' is spelled 'id' there"),
        ([("id", pa.int64()), ("new", pa.int64())], {}, "set option 'mergeSchema'"),
        ([("id", pa.int64()), ("name", pa.string())], {"partition_by": ("name",)}, "partitioned"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    path: str, schema: list[tuple[str, pa.DataType]], options: dict[str, object], words: str
) -> None:
    table_at(path).commit(stage(path, 0, [1]))
    with pytest.raises(TableConflict, match=words):
        table_at(path, pa.schema(schema), **options).check_table()


@pytest.mark.parametrize(
    "options",
    [
        {"partition_by": ("nothing",)},
        {"partition_by": ("id", "name")},
        {"mode": "upsert", "key": ("nothing",)},
        {"mode": "upsert", "key": ("id",), "order_by": "nothing"},
    ],
)
def test_columns_that_rows_do_not_have_are_refused(path: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        table_at(path, **options).check_columns()


def test_job_that_would_overwrite_and_upsert_is_refused(path: str) -> None:
    options = LakeOptions(path=path, mode="upsert", key=("id",))
    with pytest.raises(
        InvalidRequest, match=r"use mode\('append'\) to upsert, or leave the option"
    ):
        BatchWriter(options, StructType().add("id", LongType()), overwrite=True)


def test_commit_says_what_it_is(path: str) -> None:
    table_at(path).commit(stage(path, 0, [1, 2, 3]))
    info = DeltaTable(path).history(1)[0]["millstream"]
    info = json.loads(info) if isinstance(info, str) else info
    assert (info["name"], info["query"], info["batch"], info["rows"]) == ("query", "first", 0, 3)


def test_interval_is_refused_by_the_name_of_its_column(path: str) -> None:
    told = StructType([StructField("took", DayTimeIntervalType()), StructField("n", LongType())])
    schema = deltalake.Schema.from_json(delta_schema_json(told))
    with pytest.raises(InvalidRequest, match="'took'"):
        LakeTable(LakeOptions(path=path), schema).check_columns()
