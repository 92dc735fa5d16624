"""What filters spare a read, and that they never spare too much."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from millstream.spark.filters import Pruning

PARTITION, OFFSET, TOPIC, TIME = ("partition",), ("offset",), ("topic",), ("timestamp",)


def taken(*filters: Filter) -> tuple[Pruning, list[Filter]]:
    pruning = Pruning()
    return pruning, pruning.take(filters)


def test_partitions_are_chosen_by_any_comparison() -> None:
    pruning, rest = taken(
        GreaterThan(PARTITION, 1),
        Not(EqualTo(PARTITION, 3)),
        In(TOPIC, ("a", "b")),
        IsNotNull(TOPIC),
    )
    assert rest == []
    places = [("a", 2), ("a", 3), ("b", 4), ("c", 2), ("a", 1)]
    assert [place for place in places if pruning.takes(place)] == [("a", 2), ("b", 4)]


def test_offsets_narrow_from_both_sides() -> None:
    pruning, rest = taken(
        GreaterThanOrEqual(OFFSET, 10),
        GreaterThan(OFFSET, 4),
        LessThan(OFFSET, 90),
        LessThanOrEqual(OFFSET, 95),
    )
    assert rest == []
    assert (pruning.min_offset, pruning.end_offset) == (10, 90)


def test_scattered_offsets_are_left_to_spark_within_their_bounds() -> None:
    wanted = In(OFFSET, (7, 3, 5))
    pruning, rest = taken(wanted)
    assert rest == [wanted]
    assert (pruning.min_offset, pruning.end_offset) == (3, 8)


def test_null_among_values_is_left_to_spark() -> None:
    wanted = In(PARTITION, (1, None))
    pruning, rest = taken(wanted)
    assert rest == [wanted]
    assert pruning.takes(("a", 2))


def test_earliest_time_moves_the_start_and_stays_with_spark() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    wanted = GreaterThan(TIME, at)
    pruning, rest = taken(wanted)
    assert rest == [wanted]
    assert pruning.min_timestamp_ms is not None
    assert 0 <= at.timestamp() * 1000 - pruning.min_timestamp_ms <= 1


def test_time_before_1970_spares_nothing() -> None:
    pruning, _ = taken(GreaterThan(TIME, datetime(1960, 1, 1, tzinfo=UTC)))
    assert pruning.min_timestamp_ms is None


def test_latest_time_and_other_columns_spare_nothing() -> None:
    filters: list[Filter] = [
        LessThan(TIME, datetime(2026, 1, 1, tzinfo=UTC)),
        EqualTo(("value",), b"x"),
        Not(EqualTo(OFFSET, 5)),
    ]
    pruning, rest = taken(*filters)
    assert rest == filters
    assert pruning == Pruning()
