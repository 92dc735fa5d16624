"""A stream without a name is told that its checkpoint is all that it is known by."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, LongType, StructType

from millstream.errors import QueryUnnamed, Unreachable
from millstream.spark.lake.options import LakeOptions
from millstream.spark.lake.writers import StreamWriter
from millstream.spark.sink import factory

SCHEMA = StructType().add("value", BinaryType())
# Nobody answers there: whoever gets as far as asking the broker has a name that will do.
OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "kafka.default.api.timeout.ms": "50",
    "topic": "t",
}


def test_stream_that_is_known_by_its_checkpoint_is_warned(tmp_path: Path) -> None:
    options = {**OPTIONS, "checkpointLocation": str(tmp_path)}
    with (
        pytest.warns(UserWarning, match=f"has no name, and is known by.*{tmp_path}.*queryName"),
        pytest.raises(Unreachable),
    ):
        factory.stream_writer(options, SCHEMA, overwrite=False)


def test_stream_with_a_name_is_not_warned() -> None:
    # A warning would be an error here.
    with pytest.raises(Unreachable):
        factory.stream_writer({**OPTIONS, "name": "shop"}, SCHEMA, overwrite=False)


def test_stream_that_nothing_is_known_of_is_refused() -> None:
    with pytest.raises(QueryUnnamed):
        factory.stream_writer(OPTIONS, SCHEMA, overwrite=False)


@pytest.mark.parametrize(("name", "warned"), [(None, 1), ("shop", 0)])
def test_stream_to_a_table_is_warned_with_its_first_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str | None, warned: int
) -> None:
    options = LakeOptions(path=str(tmp_path / "table"), name=name)
    writer = StreamWriter(options, StructType().add("id", LongType()))
    with caplog.at_level(logging.WARNING):
        for batch in range(2):
            writer.commit([], batch)
    assert [str(tmp_path) in each.getMessage() for each in caplog.records] == [True] * warned
