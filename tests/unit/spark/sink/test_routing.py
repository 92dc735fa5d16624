"""Where rows go: as Kafka's own clients would send them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker import partitioner
from millstream.errors import InvalidRequest, UnknownPartition
from millstream.spark.sink.routing import Router, murmur2


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.integers(0, 5))
def test_keys_are_hashed_as_the_broker_hashes_them(keys: list[bytes], skipped: int) -> None:
    column = pa.array(keys, pa.binary())[skipped:]
    assert murmur2(column).tolist() == [partitioner.murmur2(key) for key in keys[skipped:]]


def test_rows_go_by_partition_then_by_key_then_by_turn() -> None:
    batch = pa.record_batch(
        {
            "value": pa.array([b"0", b"1", b"2", b"3", b"4"]),
            "key": pa.array([b"a", b"a", None, None, b"a"]),
            "partition": pa.array([None, 2, 1, None, None], pa.int32()),
        }
    )
    by_key = partitioner.partition_of(b"a", 4)
    found = _routed(Router("t", lambda _: 4, first_turn=2), batch)
    expected: dict[tuple[str, int], list[int]] = {}
    for row, partition in enumerate([by_key, 2, 1, 3, by_key]):
        expected.setdefault(("t", partition), []).append(row)
    assert found == expected


def test_rows_without_key_take_turns_by_whole_batches() -> None:
    router = Router("t", lambda _: 2, first_turn=0)
    batch = pa.record_batch({"value": pa.array([b"0", b"1"])})
    assert [list(router.route(batch)) for _ in range(3)] == [
        [(("t", 1), None)],
        [(("t", 0), None)],
        [(("t", 1), None)],
    ]


def test_rows_go_to_the_topics_that_they_name() -> None:
    batch = pa.record_batch({"value": pa.array([b"0", b"1", b"2"]), "topic": ["x", "y", "x"]})
    router = Router("", lambda _: 1, first_turn=0)
    assert _routed(router, batch) == {("x", 0): [0, 2], ("y", 0): [1]}


def test_row_without_topic_is_refused() -> None:
    batch = pa.record_batch({"value": pa.array([b"0"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(InvalidRequest, match="1 rows have no topic"):
        list(Router("", lambda _: 1, first_turn=0).route(batch))


@pytest.mark.parametrize("partition", [-1, 3])
def test_partition_that_is_not_there_is_refused(partition: int) -> None:
    batch = pa.record_batch(
        {"value": pa.array([b"0"]), "partition": pa.array([partition], pa.int32())}
    )
    with pytest.raises(UnknownPartition):
        list(Router("t", lambda _: 3, first_turn=0).route(batch))


def _routed(router: Router, batch: pa.RecordBatch) -> dict[tuple[str, int], list[int]]:
    return {
        place: list(range(batch.num_rows)) if rows is None else rows.to_pylist()
        for place, rows in router.route(batch)
    }
