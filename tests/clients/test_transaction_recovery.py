"""Transactions outlive the broker; they do not outlive their producer, or their time."""

from __future__ import annotations

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_kinds import with_clients
from tests.clients.client_shape import (
    PRODUCER_FENCED,
    Client,
    Refused,
    TransactionalProducer,
    eventually,
    produce,
)
from tests.clients.conftest import StartBroker
from tests.clients.transaction_content import (
    ALL,
    content,
    numbered,
    run,
    stable_end,
    transactional,
    values,
)

pytestmark = pytest.mark.system

INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
MESSAGE_TIMED_OUT = -192
# How clients tell that another has their transactional id.
FENCED = {PRODUCER_FENCED, INVALID_PRODUCER_EPOCH}
# A client whose transaction was aborted by the broker may also find that it has none, or that its
# messages have waited too long: librdkafka lets them wait no longer than a transaction may take.
TIMED_OUT = FENCED | {INVALID_TXN_STATE, MESSAGE_TIMED_OUT}
TIMEOUT_MS = 1000

ways = pytest.mark.parametrize("way", ["kill", pytest.param("stop", marks=pytest.mark.torture)])


def restart(broker: BrokerProcess, way: str) -> None:
    if way == "kill":
        broker.kill_and_restart()
    else:
        broker.restart()


def refusal_of(producer: TransactionalProducer, topic: str) -> int:
    """The error with which a producer goes on that cannot go on."""
    try:
        producer.send_many(numbered(topic, range(3), what="refused-"))
        producer.flush()
        producer.commit()
    except Refused as refused:
        return refused.code
    raise AssertionError("it went on")


@with_clients()
def test_second_producer_with_the_same_id_fences_the_first(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    with transactional(client, broker.address, name) as first:
        run(first, numbered(name, range(5)))
        first.begin()
        first.send_many(numbered(name, range(5, 10)))
        first.flush()
        with transactional(client, broker.address, name) as second:
            # Its arrival has aborted what the first one had open.
            assert stable_end(client, broker.address, (name, 0)) == 12
            assert refusal_of(first, name) in FENCED
            run(second, numbered(name, range(10, 15)))
    kept = values(range(5)) + values(range(10, 15))
    assert content(client, broker.address, (name, 0)) == kept


@with_clients()
def test_first_producer_is_fenced_between_its_transactions(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    with transactional(client, broker.address, name) as first:
        run(first, numbered(name, range(5)))
        with transactional(client, broker.address, name) as second:
            run(second, numbered(name, range(5, 10)))
            first.begin()
            assert refusal_of(first, name) in FENCED
            run(second, numbered(name, range(10, 15)))
    assert content(client, broker.address, (name, 0)) == values(range(15))


@with_clients()
def test_transaction_that_takes_too_long_is_aborted(
    start_broker: StartBroker, client: Client, name: str
) -> None:
    broker = start_broker()
    address = broker.address
    with transactional(client, address, name, timeout_ms=TIMEOUT_MS) as slow:
        slow.begin()
        slow.send_many(numbered(name, range(5), what="slow-"))
        slow.flush()
        produce(client, address, numbered(name, range(5)))
        eventually(lambda: stable_end(client, address, (name, 0)) == 11, "the abort")
        assert refusal_of(slow, name) in TIMED_OUT
    assert content(client, address, (name, 0)) == values(range(5))
    with transactional(client, address, name) as next_one:
        run(next_one, numbered(name, range(5, 10)))
    assert content(client, address, (name, 0)) == values(range(10))


@with_clients()
@ways
def test_transaction_goes_on_when_the_broker_is_back(
    start_broker: StartBroker, client: Client, way: str, name: str
) -> None:
    broker = start_broker()
    address = broker.address
    with transactional(client, address, name) as producer:
        run(producer, numbered(name, range(10)))
        producer.begin()
        producer.send_many(numbered(name, range(10, 20)))
        producer.flush()
        restart(broker, way)
        assert stable_end(client, address, (name, 0)) == 11
        producer.send_many(numbered(name, range(20, 30)))
        producer.flush()
        producer.commit()
        producer.begin()
        producer.send_many(numbered(name, range(10), what="dropped-"))
        producer.flush()
        restart(broker, way)
        producer.abort()
        run(producer, numbered(name, range(30, 40)))
    assert content(client, address, (name, 0)) == values(range(40))
    assert len(content(client, address, (name, 0), isolation=ALL)) == 50


@with_clients()
@ways
def test_broker_restarts_just_before_and_just_after_a_commit(
    start_broker: StartBroker, client: Client, way: str, name: str
) -> None:
    broker = start_broker()
    address = broker.address
    kept: list[bytes] = []
    with transactional(client, address, name) as producer:
        for number in range(3):
            numbers = range(10 * number, 10 * number + 10)
            producer.begin()
            producer.send_many(numbered(name, numbers))
            producer.flush()
            restart(broker, way)
            producer.commit()
            restart(broker, way)
            kept += values(numbers)
            assert content(client, address, (name, 0)) == kept
    assert content(client, address, (name, 0), isolation=ALL) == kept


@with_clients()
@ways
def test_transaction_whose_producer_is_gone_is_aborted_by_the_next(
    start_broker: StartBroker, client: Client, way: str, name: str
) -> None:
    broker = start_broker()
    address = broker.address
    with transactional(client, address, name) as lost:
        run(lost, numbered(name, range(10)))
        lost.begin()
        lost.send_many(numbered(name, range(10), what="lost-"))
        lost.flush()
        restart(broker, way)
        # Still open: the broker knows of it, and of its producer.
        assert stable_end(client, address, (name, 0)) == 11
        with transactional(client, address, name) as following:
            run(following, numbered(name, range(10, 20)))
            restart(broker, way)
            assert refusal_of(lost, name) in FENCED
    assert content(client, address, (name, 0)) == values(range(20))


@with_clients()
@ways
def test_transaction_times_out_after_a_restart(
    start_broker: StartBroker, client: Client, way: str, name: str
) -> None:
    broker = start_broker()
    address = broker.address
    with transactional(client, address, name, timeout_ms=TIMEOUT_MS) as slow:
        slow.begin()
        slow.send_many(numbered(name, range(5), what="slow-"))
        slow.flush()
        restart(broker, way)
        eventually(lambda: stable_end(client, address, (name, 0)) == 6, "the abort")
        assert refusal_of(slow, name) in TIMED_OUT
    assert content(client, address, (name, 0)) == []


@with_clients()
def test_aborted_records_stay_hidden_after_every_restart(
    start_broker: StartBroker, client: Client, name: str
) -> None:
    broker = start_broker()
    address = broker.address
    kept: list[bytes] = []
    with transactional(client, address, name) as producer:
        for number in range(6):
            numbers = range(10 * number, 10 * number + 10)
            is_commit = number % 2 == 0
            run(producer, numbered(name, numbers), is_commit=is_commit)
            kept += values(numbers) if is_commit else []
            restart(broker, "kill" if number % 3 else "stop")
            assert content(client, address, (name, 0)) == kept
    assert content(client, address, (name, 0), isolation=ALL) == values(range(60))
