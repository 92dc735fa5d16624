"""Batches on their way to scripted brokers: each is stored once and in order, or it is an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.client.kafka import Cluster
from millstream.client.kafka.producer import MOST_UNANSWERED
from millstream.errors import (
    RefusedByBroker,
    TransactionLost,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from millstream.records.batch import parse_header
from tests.fakes.patience import HANG_S, IMPATIENT_S
from tests.fakes.sample_batches import idempotent_batch
from tests.fakes.scripted_kafka import (
    HANG_UP,
    HANG_UP_AFTER,
    NOT_LEADER,
    PRODUCE,
    SILENCE,
    Fault,
    ScriptedKafka,
)

PLACE = ("orders", 0)
OTHER = ("orders", 1)
FENCED = 90


@pytest.fixture
def kafka() -> Iterator[ScriptedKafka]:
    with ScriptedKafka(brokers=2) as cluster:
        cluster.leaders = {"orders": [0, 1]}
        yield cluster


@pytest.fixture
def cluster(kafka: ScriptedKafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap, timeout_s=HANG_S) as client:
        yield client


def batches(count: int, *, records: int = 2) -> list[bytes]:
    return [bytes(idempotent_batch(n * records, count=records)) for n in range(count)]


def sequences(kafka: ScriptedKafka, place: tuple[str, int] = PLACE) -> list[int]:
    return [parse_header(each).base_sequence for each in kafka.logs[place]]


def test_batches_are_stored_in_order_and_their_offsets_told(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    assert cluster.produce(PLACE, batches(20)) == list(range(0, 40, 2))
    assert sequences(kafka) == list(range(0, 40, 2))


@pytest.mark.parametrize("fault", [HANG_UP, HANG_UP_AFTER, NOT_LEADER])
@pytest.mark.parametrize("position", [0, 3, MOST_UNANSWERED, 19])
def test_fault_in_the_middle_neither_loses_nor_repeats_a_batch(
    kafka: ScriptedKafka, cluster: Cluster, fault: Fault, position: int
) -> None:
    answers: list[Fault] = [""] * position
    kafka.brokers[0].faults[PRODUCE].extend([*answers, fault])
    assert cluster.produce(PLACE, batches(20)) == list(range(0, 40, 2))
    assert sequences(kafka) == list(range(0, 40, 2))


def test_partition_that_moves_is_followed(kafka: ScriptedKafka, cluster: Cluster) -> None:
    with cluster.producer() as producer:
        for number, batch in enumerate(batches(20)):
            if number in {7, 13}:
                with kafka.lock:
                    kafka.leaders["orders"][0] ^= 1
            producer.send(PLACE, batch)
        assert producer.flush() == list(range(0, 40, 2))
    assert sequences(kafka) == list(range(0, 40, 2))


def test_broker_that_is_gone_costs_only_its_own_partitions_a_wait(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    with cluster.producer() as producer:
        for number, batch in enumerate(batches(10)):
            producer.send(PLACE, batch)
            producer.send(OTHER, batch)
            if number == 5:
                with kafka.lock:
                    kafka.leaders["orders"] = [1, 1]
                kafka.brokers[0].stop()
        producer.flush()
    assert sequences(kafka, PLACE) == sequences(kafka, OTHER) == list(range(0, 20, 2))


def test_no_more_batches_are_unanswered_than_a_broker_can_tell_apart(
    kafka: ScriptedKafka,
) -> None:
    first, *others = batches(MOST_UNANSWERED + 2)
    with Cluster(kafka.bootstrap, timeout_s=IMPATIENT_S) as impatient:
        producer = impatient.producer()
        producer.send(PLACE, first)
        producer.flush()
        kafka.brokers[0].faults[PRODUCE].extend([SILENCE] * 100)
        *taken, one_too_many = others
        for batch in taken:
            producer.send(PLACE, batch)
        with pytest.raises(Unavailable):
            producer.send(PLACE, one_too_many)
        producer.close()
    assert asked_for(kafka) == {0, 2, 4, 6, 8, 10}


def test_one_batch_is_unanswered_at_a_partition_that_has_taken_none(kafka: ScriptedKafka) -> None:
    kafka.brokers[0].faults[PRODUCE].extend([SILENCE] * 100)
    with Cluster(kafka.bootstrap, timeout_s=IMPATIENT_S) as impatient, pytest.raises(Unavailable):
        impatient.produce(PLACE, batches(2))
    assert asked_for(kafka) == {0}


def asked_for(kafka: ScriptedKafka) -> set[int]:
    """The sequences that came to the broker, whatever it answered."""
    requests = kafka.brokers[0].requests(PRODUCE)
    sent = [parse_header(each.topic_data[0].partition_data[0].records) for each in requests]
    return {each.base_sequence for each in sent}


def test_fenced_transaction_is_lost_and_its_producer_sends_no_more(
    kafka: ScriptedKafka, cluster: Cluster
) -> None:
    producer = cluster.producer(transactional_id="tx")
    kafka.brokers[0].faults[PRODUCE].append(FENCED)
    producer.send(PLACE, batches(1)[0])
    with pytest.raises(
        TransactionLost, match=r"'tx' .producer 7, epoch 0. cannot write to orders/0"
    ):
        producer.flush()
    with pytest.raises(TransactionLost):
        producer.send(PLACE, batches(2)[1])
    producer.close()
    assert sequences(kafka) == []


def test_gap_in_the_sequence_is_refused(kafka: ScriptedKafka, cluster: Cluster) -> None:
    with pytest.raises(RefusedByBroker, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        cluster.produce(PLACE, [batches(1)[0], batches(3)[2]])


def test_unknown_topic_and_partition_are_told_at_once(cluster: Cluster) -> None:
    with pytest.raises(UnknownTopic, match="nothing"):
        cluster.produce(("nothing", 0), batches(1))
    with pytest.raises(UnknownPartition, match="no partition 7"):
        cluster.produce(("orders", 7), batches(1))


def test_broker_that_stays_away_is_an_error_after_the_timeout(kafka: ScriptedKafka) -> None:
    kafka.brokers[0].faults[PRODUCE].extend([HANG_UP] * 1000)
    with Cluster(kafka.bootstrap, timeout_s=IMPATIENT_S) as cluster, pytest.raises(Unavailable):
        cluster.produce(PLACE, batches(1))
    assert len(kafka.brokers[0].requests(PRODUCE)) > 1


def test_acks_of_nobody_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="acks=2"):
        cluster.produce(PLACE, batches(1), acks=2)
