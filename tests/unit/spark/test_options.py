"""The options of a read: what they mean, and what is refused."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidOption, InvalidRequest, UnknownOption
from millstream.spark.offsets import EARLIEST, LATEST
from millstream.spark.options import Selection, SourceOptions


def batch(**words: str) -> SourceOptions:
    return SourceOptions.parse({"subscribe": "t"} | words, streaming=False)


def stream(**words: str) -> SourceOptions:
    return SourceOptions.parse({"subscribe": "t"} | words, streaming=True)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    assert batch().starting.everywhere == EARLIEST
    assert batch().ending.everywhere == LATEST
    assert stream().starting.everywhere == LATEST
    assert batch().fail_on_data_loss
    assert batch().columns == (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    )


def test_committed_records_are_read_from_the_local_broker_by_default() -> None:
    assert batch().committed
    assert batch().cluster.bootstrap == "127.0.0.1:9092"


def test_names_are_found_in_any_case() -> None:
    options = SourceOptions.parse(
        {"SUBSCRIBE": "a, b", "MaxOffsetsPerTrigger": "7", "KAFKA.bootstrap.servers": "h:1"},
        streaming=True,
    )
    assert options.selection.topics == ("a", "b")
    assert options.max_offsets_per_trigger == 7
    assert options.cluster.bootstrap == "h:1"


def test_group_and_isolation_have_names_of_kafka_too() -> None:
    options = stream(**{"kafka.group.id": "g", "kafka.isolation.level": "read_uncommitted"})
    assert options.group == "g"
    assert not options.committed


def test_time_comes_before_offsets() -> None:
    bound = batch(startingTimestamp="5", startingOffsets="latest").starting
    assert (bound.kind, bound.everywhere) == ("time", 5)


def test_slip_in_a_name_is_an_error_that_says_the_right_one() -> None:
    with pytest.raises(UnknownOption, match="startingOffsets"):
        batch(startingOffset="earliest")
    with pytest.raises(UnknownOption, match=r"kafka\.bootstrap\.servers"):
        batch(**{"kafka.bootstrap.server": "h:1"})


@pytest.mark.parametrize(
    "words",
    [
        {"startingOffsets": "first"},
        {"startingOffsets": '{"t": {"0": "a"}}'},
        {"startingOffsets": '{"t": {"0": -3}}'},
        {"startingOffsetsByTimestamp": '{"t": {"0": -2}}'},
        {"subscribe": ","},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"t": {"0": -2}}'},
        {"startingTimestamp": "yesterday"},
        {"startingOffsetsByTimestampStrategy": "guess"},
        {"minPartitions": "0"},
        {"failOnDataLoss": "maybe"},
        {"columns": "value,price"},
        {"columns": "value,value"},
        {"isolation": "serializable"},
        {"subscribePattern": "a"},
        {"kafka.security.protocol": "MAGIC"},
        {"group.id": "g"},
        {"maxOffsetsPerTrigger": "5"},
    ],
)
def test_value_that_cannot_be_is_refused(words: dict[str, str]) -> None:
    with pytest.raises(InvalidOption) as refused:
        batch(**words)
    assert refused.value.name.lower() in {*(name.lower() for name in words), "subscribe"}


def test_stream_has_no_end_and_reads_no_files() -> None:
    for words in ({"endingOffsets": "latest"}, {"path": "data"}, {"pushFilters": "true"}):
        with pytest.raises(InvalidOption):
            stream(**words)


def test_topics_must_be_named_in_one_way() -> None:
    for words in ({}, {"subscribePattern": "("}):
        with pytest.raises(InvalidRequest):
            SourceOptions.parse(words, streaming=False)


def test_pattern_takes_whole_names() -> None:
    selection = Selection(pattern="orders-.*")
    assert selection.takes(("orders-eu", 3))
    assert not selection.takes(("old-orders-eu", 3))
