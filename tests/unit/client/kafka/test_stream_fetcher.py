"""A range read from scripted brokers: every batch once, in order, whatever happens between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from millstream.client.kafka import Cluster, StreamFetcher
from millstream.client.kafka.connection import Connection
from millstream.client.kafka.fetch_messages import FetchRequest, FetchResponse
from millstream.client.kafka.reading import whole_batches
from millstream.errors import AnswerLost, MalformedMessage, OffsetOutOfRange, TimedOut
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from millstream.protocol.notation import Struct
from millstream.records.batch import parse_header
from tests.fakes.patience import HANG_S, IMPATIENT_S
from tests.fakes.sample_batches import idempotent_batch
from tests.fakes.scripted_kafka import FETCH, HANG_UP, NOT_LEADER, Fault, ScriptedKafka

PLACE = ("orders", 0)
OUT_OF_RANGE = 1
TOPIC_AUTHORIZATION_FAILED = 29
DESCRIBE_CONFIGS = 32


@pytest.fixture
def kafka() -> Iterator[ScriptedKafka]:
    with ScriptedKafka(brokers=2) as cluster:
        cluster.leaders = {"orders": [0]}
        for number in range(10):
            cluster.append(PLACE, bytes(idempotent_batch(number * 3, count=3)))
        yield cluster


@pytest.fixture
def cluster(kafka: ScriptedKafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap, timeout_s=HANG_S) as client:
        yield client


def base_offsets(fetcher: StreamFetcher) -> list[int]:
    found = []
    for got in fetcher:
        position = 0
        while position < len(got.records):
            header = parse_header(got.records, position)
            found.append(header.base_offset)
            position += 12 + header.batch_length
    return found


def policy(value: str, code: int = 0) -> Callable[[DescribeConfigsRequest], Struct]:
    """What a broker tells of the settings of a topic."""

    def answer(request: DescribeConfigsRequest) -> Struct:
        [resource] = request.resources
        told = DescribeConfigsResourceResult(
            name="cleanup.policy", value=value, read_only=False, is_sensitive=False, synonyms=[]
        )
        result = DescribeConfigsResult(
            error_code=code,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[] if code else [told],
        )
        return DescribeConfigsResponse(results=[result])

    return answer


def test_range_is_read_from_the_batch_that_holds_its_start_to_its_end(cluster: Cluster) -> None:
    fetcher = StreamFetcher(cluster, PLACE, start=4, end=20)
    assert base_offsets(fetcher) == [3, 6, 9, 12, 15, 18]
    assert fetcher.next_offset >= 20


def test_empty_range_asks_nobody(kafka: ScriptedKafka, cluster: Cluster) -> None:
    assert base_offsets(StreamFetcher(cluster, PLACE, start=7, end=7)) == []
    assert kafka.brokers[0].seen == []


def test_next_request_is_under_way_while_an_answer_is_used(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    answers = iter(StreamFetcher(cluster, PLACE, start=0, end=30))
    next(answers)
    kafka.brokers[0].wait_for(FETCH, count=2)
    wanted = [
        each.topics[0].partitions[0].fetch_offset for each in kafka.brokers[0].requests(FETCH)
    ]
    assert wanted == [0, 6]
    assert len(list(answers)) == 4


@pytest.mark.parametrize("fault", [HANG_UP, NOT_LEADER])
@pytest.mark.parametrize("position", [0, 2])
def test_fault_in_the_middle_neither_loses_nor_repeats_a_batch(
    kafka: ScriptedKafka, cluster: Cluster, fault: Fault, position: int
) -> None:
    answers: list[Fault] = [""] * position
    kafka.brokers[0].faults[FETCH].extend([*answers, fault])
    assert base_offsets(StreamFetcher(cluster, PLACE, start=0, end=30)) == list(range(0, 30, 3))


def test_connection_that_breaks_while_it_reads_ahead_loses_no_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Connection.begin
    begun = 0

    def break_sometimes(self: Connection, request: Struct, answer: type[Struct]) -> None:
        nonlocal begun
        begun += isinstance(request, FetchRequest)
        if begun in {2, 5}:
            begun += 1
            self.close()
            raise AnswerLost(operation="a request")
        begin(self, request, answer)

    monkeypatch.setattr(Connection, "begin", break_sometimes)
    assert base_offsets(StreamFetcher(cluster, PLACE, start=0, end=30)) == list(range(0, 30, 3))
    assert begun > 6


def test_partition_that_moves_is_followed(kafka: ScriptedKafka, cluster: Cluster) -> None:
    fetcher = StreamFetcher(cluster, PLACE, start=0, end=30)
    answers = iter(fetcher)
    next(answers)
    with kafka.lock:
        kafka.leaders["orders"] = [1]
    kafka.brokers[0].stop()
    for _ in answers:
        pass
    assert fetcher.next_offset == 30
    assert kafka.brokers[1].requests(FETCH)


def test_offset_that_is_gone_is_told_with_the_range_that_is_there(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    kafka.brokers[0].faults[FETCH].append(OUT_OF_RANGE)
    with pytest.raises(OffsetOutOfRange) as caught:
        base_offsets(StreamFetcher(cluster, PLACE, start=100, end=200))
    assert (caught.value.offset, caught.value.start_offset, caught.value.end_offset) == (100, 0, 30)


def test_end_that_the_log_has_not_reached_is_an_error_after_the_timeout(
    kafka: ScriptedKafka,
) -> None:
    with Cluster(kafka.bootstrap, timeout_s=IMPATIENT_S) as cluster:
        fetcher = StreamFetcher(cluster, PLACE, start=27, end=31)
        with pytest.raises(TimedOut, match="reading orders/0 from 30 to 31"):
            base_offsets(fetcher)


def test_end_that_compaction_took_is_no_reason_to_wait(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    kafka.scripts[DESCRIBE_CONFIGS] = policy("compact,delete")
    kafka.gap_at_end[PLACE] = 5
    fetcher = StreamFetcher(cluster, PLACE, start=24, end=35)
    assert base_offsets(fetcher) == [24, 27]
    assert fetcher.next_offset == 35


@pytest.mark.parametrize("code", [0, TOPIC_AUTHORIZATION_FAILED])
def test_empty_answer_proves_nothing_of_a_topic_that_may_not_be_compacted(
    kafka: ScriptedKafka, code: int
) -> None:
    kafka.scripts[DESCRIBE_CONFIGS] = policy("delete", code)
    kafka.gap_at_end[PLACE] = 5
    with (
        Cluster(kafka.bootstrap, timeout_s=IMPATIENT_S) as cluster,
        pytest.raises(TimedOut, match="reading orders/0 from 30 to 35"),
    ):
        base_offsets(StreamFetcher(cluster, PLACE, start=24, end=35))


def test_answer_of_a_broker_that_throttles_is_waited_out(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    fetch = kafka.brokers[0]._fetch
    throttled = [True, False, True]

    def throttle(request: FetchRequest) -> Struct:
        if throttled and throttled.pop():
            return FetchResponse(throttle_time_ms=10, responses=[])
        return fetch(request, 0)

    kafka.scripts[FETCH] = throttle
    assert base_offsets(StreamFetcher(cluster, PLACE, start=0, end=30)) == list(range(0, 30, 3))
    assert throttled == []


def test_batch_that_is_cut_short_is_left_out(kafka: ScriptedKafka) -> None:
    first, second = kafka.logs[PLACE][:2]
    assert whole_batches(memoryview(first + second), 0) == (len(first + second), 6)
    for cut in range(1, len(second)):
        assert whole_batches(memoryview(first + second[:-cut]), 0) == (len(first), 3)
    assert whole_batches(memoryview(b""), 7) == (0, 7)
    with pytest.raises(MalformedMessage, match="no whole batch"):
        whole_batches(memoryview(first[:-1]), 0)
