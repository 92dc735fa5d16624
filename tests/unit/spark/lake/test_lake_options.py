"""Options of the Delta sink: what is taken, and what is refused with which words."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidOption, UnknownOption
from millstream.spark.lake.options import LakeOptions


def test_options_are_read_whatever_their_case() -> None:
    options = LakeOptions.of(
        {
            "PATH": "lake/orders",
            "Mode": "UPSERT",
            "key": "id, region",
            "orderby": "at",
            "partitionBy": "day",
            "queryName": "orders",
            "mergeschema": "True",
            "targetFileSize": "16MB",
            "optimizeEvery": "0",
            "vacuumAfter": "24",
            "checkpointLocation": "somewhere",
        }
    )
    assert options == LakeOptions(
        path="lake/orders",
        mode="upsert",
        key=("id", "region"),
        order_by="at",
        partition_by=("day",),
        name="orders",
        merge_schema=True,
        target_file_bytes=16 << 20,
        optimize_every=0,
        vacuum_after_hours=24,
    )


def test_name_wins_over_the_name_of_the_query() -> None:
    assert LakeOptions.of({"path": "t", "name": "a", "queryName": "b"}).name == "a"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("path", ""),
        ("path", "s3://bucket/table"),
        ("mode", "merge"),
        ("mode", "upsert"),
        ("key", "id"),
        ("orderBy", "at"),
        ("mergeSchema", "yes"),
        ("targetFileSize", "large"),
        ("targetFileSize", "0"),
        ("optimizeEvery", "-1"),
        ("vacuumAfter", "a week"),
    ],
)
def test_wrong_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidOption):
        LakeOptions.of({"path": "t", name: text})


def test_misspelled_option_is_refused_with_the_right_name() -> None:
    with pytest.raises(UnknownOption, match="did you mean optimizeEvery"):
        LakeOptions.of({"path": "t", "optimiseEvery": "3"})
