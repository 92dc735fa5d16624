"""What applications see of each fault, through the clients that they use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import RequestTimedOutError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millstream.client.kafka.error_codes import NONE
from millstream.errors import InvalidSetting, NotFound, TimedOut
from millstream.testing import Broker
from tests.fakes.patience import HANG_S


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    yield shared
    shared.reset()


def sent(broker: Broker, *values: str, topic: str = "orders", **options: Any) -> list[int]:
    """The error codes that a confluent producer reports for messages, in order."""
    reports: list[int] = []

    def report(error: KafkaError | None, _: object) -> None:
        reports.append(error.code() if error else NONE)

    options = {"message.timeout.ms": 5000, "retry.backoff.ms": 10, **options}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **options})
    for value in values:
        producer.produce(topic, value, on_delivery=report)
    assert producer.flush(HANG_S) == 0
    return reports


def values(broker: Broker, topic: str = "orders") -> list[bytes | None]:
    return [message.value for message in broker.messages(topic)]


def test_refused_produce_is_retried_by_the_client(broker: Broker) -> None:
    broker.create_topic("orders")
    fault = broker.faults.refuse("Produce", error="NOT_LEADER_OR_FOLLOWER", topic="orders", times=2)
    assert sent(broker, "one") == [NONE]
    assert fault.hits == 2
    assert values(broker) == [b"one"]


def test_refusal_for_good_reaches_the_application(broker: Broker) -> None:
    broker.create_topic("orders")
    with broker.faults.refuse("Produce", error="TOPIC_AUTHORIZATION_FAILED") as fault:
        assert sent(broker, "one") == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert fault.hits == 1
    assert sent(broker, "two") == [NONE]
    assert values(broker) == [b"two"]


def test_refusal_of_one_topic_leaves_the_others_alone(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.create_topic("payments")
    with broker.faults.refuse("Produce", error="MESSAGE_TOO_LARGE", topic="orders"):
        assert sent(broker, "one", topic="payments") == [NONE]
        assert sent(broker, "one") == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_delayed_request_is_carried_out_when_its_time_has_come(broker: Broker) -> None:
    broker.create_topic("orders")
    reports: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    fault = broker.faults.delay("Produce", topic="orders", seconds=3600, times=1)
    producer.produce("orders", "one", on_delivery=lambda error, _: reports.append(error))
    while not fault.hits:
        producer.poll(0.01)
    producer.poll(0.1)
    assert not reports
    assert values(broker) == []
    broker.clock.advance(seconds=3600)
    assert producer.flush(HANG_S) == 0
    assert reports == [None]
    assert values(broker) == [b"one"]


@pytest.mark.parametrize(
    ("after_work", "is_idempotent", "stored"),
    [(False, False, 1), (True, False, 2), (True, True, 1)],
)
def test_unanswered_produce_is_sent_again(
    broker: Broker, after_work: bool, is_idempotent: bool, stored: int
) -> None:
    broker.create_topic("orders")
    fault = broker.faults.drop("Produce", times=1, after_work=after_work)
    options: dict[str, Any] = {"socket.timeout.ms": 300, "enable.idempotence": is_idempotent}
    options["message.timeout.ms"] = 10_000
    assert sent(broker, "one", **options) == [NONE]
    assert fault.hits == 1
    assert values(broker) == [b"one"] * stored


def test_application_that_waits_for_a_silent_broker_times_out(broker: Broker) -> None:
    broker.create_topic("orders")

    async def main() -> None:
        servers = broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=300) as producer:
            with broker.faults.drop("Produce") as fault:
                with pytest.raises(RequestTimedOutError):
                    await producer.send_and_wait("orders", b"one")
                assert fault.hits
            # It has hung up on the silent connection, and is served on another.
            await producer.send_and_wait("orders", b"two")

    asyncio.run(main())
    assert values(broker) == [b"two"]


@pytest.mark.parametrize(("is_idempotent", "stored"), [(False, 2), (True, 1)])
def test_lost_acknowledgement_makes_a_duplicate_unless_the_producer_is_idempotent(
    broker: Broker, is_idempotent: bool, stored: int
) -> None:
    broker.create_topic("orders")

    async def main() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, enable_idempotence=is_idempotent
        ) as producer:
            fault = broker.faults.disconnect("Produce", after_work=True, times=1)
            await producer.send_and_wait("orders", b"one")
            assert fault.hits == 1

    asyncio.run(main())
    assert values(broker) == [b"one"] * stored


def test_disconnect_before_the_work_stores_nothing_twice(broker: Broker) -> None:
    broker.create_topic("orders")
    with broker.faults.disconnect("Produce", times=1) as fault:
        assert sent(broker, "one") == [NONE]
        assert fault.hits == 1
    assert values(broker) == [b"one"]


def consumed(consumer: Consumer, wanted: int, timeout_s: float = HANG_S) -> list[bytes]:
    found = consumer.consume(wanted, timeout_s)
    assert all(message.error() is None for message in found), [m.error() for m in found]
    return sorted(message.value() or b"" for message in found)


def reader(broker: Broker, *partitions: int, topic: str = "orders", **options: Any) -> Consumer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 100, **options})
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    return consumer


def test_stalled_partition_holds_up_no_other(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    broker.produce("orders", "stuck", partition=0)
    broker.produce("orders", "flows", partition=1)
    stall = broker.faults.stall("orders", 0)
    with closing(reader(broker, 0, 1)) as consumer:
        assert consumed(consumer, 1) == [b"flows"]
        assert consumed(consumer, 1, 0.3) == []
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("orders", "waits", partition=0)
        assert producer.flush(0.3) == 1
        assert broker.end_offsets("orders") == {0: 1, 1: 1}
        stall.release()
        assert producer.flush(HANG_S) == 0
        assert consumed(consumer, 2) == [b"stuck", b"waits"]


def test_fetch_is_refused_for_the_partition_that_has_the_fault(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    for number in (0, 1):
        broker.produce("orders", f"p{number}", partition=number)
    refusing = broker.faults.refuse(
        "Fetch", error="NOT_LEADER_OR_FOLLOWER", topic="orders", partition=0
    )
    with closing(reader(broker, 0, 1)) as consumer:
        assert consumed(consumer, 1) == [b"p1"]
        refusing.wait(2, timeout_s=HANG_S)
        assert consumed(consumer, 1, 0.2) == []
        refusing.remove()
        assert consumed(consumer, 1) == [b"p0"]


def test_commit_is_refused_for_one_topic_and_done_for_the_other(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.create_topic("payments")
    offsets = [TopicPartition("orders", 0, 3), TopicPartition("payments", 0, 5)]
    with (
        closing(reader(broker, 0)) as consumer,
        broker.faults.refuse("OffsetCommit", error="TOPIC_AUTHORIZATION_FAILED", topic="orders"),
        pytest.raises(KafkaException) as caught,
    ):
        consumer.commit(offsets=offsets, asynchronous=False)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert broker.committed("readers") == {("payments", 0): 5}


def test_metadata_tell_of_a_topic_without_a_leader(broker: Broker) -> None:
    for topic in ("orders", "payments"):
        broker.create_topic(topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with broker.faults.refuse("Metadata", error="LEADER_NOT_AVAILABLE", topic="orders"):
        told = admin.list_topics(timeout=HANG_S).topics
        assert told["orders"].error == KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        assert told["payments"].error is None
        told = admin.list_topics("orders", timeout=HANG_S).topics
        assert told["orders"].error == KafkaError(KafkaError.LEADER_NOT_AVAILABLE)


def test_consumer_joins_once_the_coordinator_is_there(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", "one")
    fault = broker.faults.refuse(
        ("FindCoordinator", "JoinGroup"), error="COORDINATOR_NOT_AVAILABLE", times=3
    )

    async def main() -> None:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="readers",
            auto_offset_reset="earliest",
            retry_backoff_ms=10,
        )
        async with consumer:
            assert (await consumer.getone()).value == b"one"

    asyncio.run(main())
    assert fault.hits == 3


def test_fault_that_is_cleared_lets_go(broker: Broker) -> None:
    broker.create_topic("orders")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    fault = broker.faults.delay("Produce", seconds=3600)
    producer.produce("orders", "one")
    fault.wait(timeout_s=HANG_S)
    broker.faults.clear()
    assert producer.flush(HANG_S) == 0
    assert fault.hits == 1


def test_fault_that_nothing_meets_is_told(broker: Broker) -> None:
    with pytest.raises(TimedOut, match="1 requests to meet a fault, which 0 did"):
        broker.faults.drop("EndTxn").wait(timeout_s=0.01)


def test_fault_that_cannot_be_is_refused(broker: Broker) -> None:
    with pytest.raises(InvalidSetting, match="did you mean Produce"):
        broker.faults.drop("Prodcue")
    with pytest.raises(InvalidSetting, match="did you mean NOT_LEADER_OR_FOLLOWER"):
        broker.faults.refuse("Produce", error="NOT_LEADER")
    with pytest.raises(InvalidSetting, match="a topic with it"):
        broker.faults.drop("Produce", partition=1)


def test_broker_stops_while_requests_are_held_and_clients_are_ignored() -> None:
    threads = set(threading.enumerate())
    producers: list[Producer] = []
    with Broker() as broker:
        for topic in ("dropped", "stalled", "delayed"):
            broker.create_topic(topic)
        faults = [
            broker.faults.drop("Produce", topic="dropped"),
            broker.faults.stall("stalled"),
            broker.faults.delay("Produce", topic="delayed", seconds=3600),
        ]
        for topic, fault in zip(("dropped", "stalled", "delayed"), faults, strict=True):
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            producer.produce(topic, "one")
            producers.append(producer)
            fault.wait(timeout_s=HANG_S)
    assert set(threading.enumerate()) == threads
    for producer in producers:
        producer.purge()


def test_fault_ends_with_a_restart_of_its_broker(tmp_path: Path) -> None:
    with Broker(directory=tmp_path, isolated=True) as broker:
        broker.create_topic("orders")
        with broker.faults.stall("orders") as before:
            broker.restart()
            after = broker.faults.refuse("Produce", error="INVALID_RECORD")
        # The end of the one is not that of the other.
        assert sent(broker, "a") == [KafkaError.INVALID_RECORD]
        assert after.hits == 1
        with pytest.raises(NotFound, match="a restart of the broker ends all faults"):
            _ = before.hits
        with after:
            broker.kill()


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_delay_of_no_time_at_all_is_refused(broker: Broker, seconds: float) -> None:
    with pytest.raises(InvalidSetting, match="seconds"):
        broker.faults.delay("Produce", seconds=seconds)
    with pytest.raises(InvalidSetting, match="times = 0: expected 1 or more"):
        broker.faults.drop("Produce", times=0)
