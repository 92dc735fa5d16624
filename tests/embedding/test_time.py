"""What a clock that is moved brings about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from millstream.errors import InvalidSetting
from millstream.testing import Broker
from tests.fakes.patient_client import connect

PATIENCE_S = 20.0
HOUR_S = 3600.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_messages_past_their_retention_are_gone(broker: Broker, name: str) -> None:
    broker.create_topic(name, config={"retention.ms": 1000 * int(HOUR_S)})
    broker.produce(name, "old")
    broker.clock.advance(seconds=HOUR_S / 2)
    assert [message.value for message in broker.messages(name)] == [b"old"]
    broker.clock.advance(seconds=HOUR_S)
    assert broker.messages(name) == []
    assert broker.end_offsets(name) == {0: 1}


def test_member_that_has_died_is_replaced_after_its_session(broker: Broker, name: str) -> None:
    broker.create_topic(name)
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": name,
        "session.timeout.ms": 45_000,
        "auto.offset.reset": "earliest",
    }
    first = Consumer(settings)
    first.subscribe([name])
    broker.produce(name, "one")
    assert first.consume(1, PATIENCE_S)
    with broker.faults.disconnect("LeaveGroup"):
        # Nobody hears of its end.
        first.close()
    with closing(Consumer(settings)) as second:
        second.subscribe([name])
        assert second.consume(1, 0.5) == []
        broker.clock.advance(seconds=46)
        broker.produce(name, "two")
        assert second.consume(1, PATIENCE_S)[0].value() == b"two"


def test_transaction_that_takes_too_long_is_aborted(broker: Broker, name: str) -> None:
    broker.create_topic(name)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(name, "half of a transfer")
    assert producer.flush(PATIENCE_S) == 0
    broker.clock.advance(seconds=61)
    with pytest.raises(KafkaException, match=r"fenced|PRODUCER"):
        producer.commit_transaction(PATIENCE_S)
    assert broker.messages(name) == []
    # The message, and the marker that says that it does not count.
    assert broker.end_offsets(name) == {0: 2}


def test_delayed_message_is_delivered_when_its_time_has_come(broker: Broker, name: str) -> None:
    with connect(broker.http_url) as client:
        queue = client.subscribe(name, subscription="later")
        client.send(name, b"remind me", deliver_after=HOUR_S)
        assert queue.receive(timeout_s=0.2) is None
        broker.clock.advance(seconds=HOUR_S + 1)
        message = queue.receive(timeout_s=PATIENCE_S)
        assert message is not None
        assert message.value == b"remind me"


def test_clock_tells_the_time_that_it_was_moved_to(broker: Broker) -> None:
    before_ms = broker.clock.now_ms()
    broker.clock.advance(seconds=HOUR_S)
    assert broker.clock.now_ms() - before_ms >= HOUR_S * 1000


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e18])
def test_clock_moves_only_ahead(broker: Broker, seconds: float) -> None:
    before_ms = broker.clock.now_ms()
    with pytest.raises(InvalidSetting, match="expected a number from 0 to"):
        broker.clock.advance(seconds=seconds)
    assert 0 <= broker.clock.now_ms() - before_ms < HOUR_S * 1000
