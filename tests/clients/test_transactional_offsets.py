"""Offsets that a group commits with a transaction: they count if it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_kinds import MEMBER_COMMITTERS, STABLE_READERS, with_clients
from tests.clients.client_shape import Client, Committed, Consumer, Refused, produce, read
from tests.clients.conftest import StartBroker
from tests.clients.transaction_content import (
    COMMITTED,
    content,
    numbered,
    run,
    transactional,
    values,
)

pytestmark = pytest.mark.system

endings = pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
ways = pytest.mark.parametrize("way", ["kill", pytest.param("stop", marks=pytest.mark.torture)])
INPUT = 20
# Illegal generation, unknown member id, or, from kafka-python, just that the commit failed.
NOT_A_MEMBER = {22, 25, -1}


@contextmanager
def member(client: Client, address: str, group: str, topic: str) -> Iterator[Consumer]:
    """A member of a group that has read all of the input."""
    consumer = client.consumer(address, group=group, isolation=COMMITTED)
    try:
        consumer.subscribe([topic])
        assert len(read(consumer, INPUT)) == INPUT
        yield consumer
    finally:
        consumer.close()


def offset_of(client: Client, address: str, group: str, topic: str) -> Committed | None:
    """What one who asks for it is told, without being a member."""
    consumer = client.consumer(address, group=group)
    try:
        return consumer.committed((topic, 0))
    finally:
        consumer.close()


@with_clients()
@endings
def test_offsets_end_as_their_transaction_does(
    broker: BrokerProcess, client: Client, is_commit: bool, name: str
) -> None:
    address, output = broker.address, f"{name}-output"
    produce(client, address, numbered(name, range(INPUT)))
    with (
        member(client, address, name, name) as consumer,
        transactional(client, address, name) as producer,
    ):
        consumer.commit({(name, 0): Committed(5)})
        producer.begin()
        producer.send_many(numbered(output, range(INPUT)))
        producer.flush()
        producer.send_offsets(consumer.membership(), {(name, 0): INPUT})
        # Who does not ask for stable offsets is told what counts now.
        assert offset_of(client, address, name, name) == Committed(5)
        if is_commit:
            producer.commit()
        else:
            producer.abort()
        wanted = Committed(INPUT if is_commit else 5)
        assert offset_of(client, address, name, name) == wanted
        assert consumer.committed((name, 0)) == wanted
    assert content(client, address, (output, 0)) == (values(range(INPUT)) if is_commit else [])


@with_clients()
def test_offsets_of_several_transactions_follow_each_other(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    produce(client, broker.address, numbered(name, range(INPUT)))
    with (
        member(client, broker.address, name, name) as consumer,
        transactional(client, broker.address, name) as producer,
    ):
        reached = 0
        for number in range(1, INPUT + 1):
            producer.begin()
            producer.send_offsets(consumer.membership(), {(name, 0): number})
            if number % 3 == 0:
                producer.abort()
            else:
                producer.commit()
                reached = number
            assert offset_of(client, broker.address, name, name) == Committed(reached)


@with_clients(STABLE_READERS)
def test_who_asks_for_stable_offsets_waits_for_the_end_of_the_transaction(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    """Else a record could be read again whose transaction is about to be committed."""
    address, output = broker.address, f"{name}-output"
    produce(client, address, numbered(name, range(INPUT)))
    with transactional(client, address, name) as producer:
        with member(client, address, name, name) as consumer:
            run(producer, numbered(output, range(1)))
            producer.begin()
            producer.send_offsets(consumer.membership(), {(name, 0): INPUT - 5})
        following = client.consumer(address, group=name, isolation=COMMITTED)
        following.subscribe([name])
        for _ in range(10):
            # It may have joined or not, but it does not know where to begin.
            assert following.poll() == []
        producer.commit()
        found = read(following, 5)
        assert [each.offset for each in found] == list(range(INPUT - 5, INPUT))
        following.close()


@with_clients(MEMBER_COMMITTERS)
def test_offsets_of_one_who_has_left_the_group_are_refused(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    address = broker.address
    produce(client, address, numbered(name, range(INPUT)))
    with transactional(client, address, name) as producer:
        gone = client.consumer(address, group=name)
        gone.subscribe([name])
        read(gone, INPUT)
        kept = gone.membership()
        gone.close()
        with member(client, address, name, name):
            producer.begin()
            with pytest.raises(Refused) as refused:
                producer.send_offsets(kept, {(name, 0): INPUT})
            assert refused.value.code in NOT_A_MEMBER
            producer.abort()
            # It is the offsets that were refused, and not the producer.
            run(producer, numbered(f"{name}-output", range(1)))
    assert offset_of(client, address, name, name) is None


@with_clients()
@ways
def test_offsets_of_a_transaction_outlive_the_broker(
    start_broker: StartBroker, client: Client, way: str, name: str
) -> None:
    broker = start_broker()
    address = broker.address
    end = broker.kill_and_restart if way == "kill" else broker.restart
    produce(client, address, numbered(name, range(INPUT)))
    with (
        member(client, address, name, name) as consumer,
        transactional(client, address, name) as producer,
    ):
        producer.begin()
        producer.send_offsets(consumer.membership(), {(name, 0): 7})
        end()
        assert offset_of(client, address, name, name) is None
        producer.commit()
        assert offset_of(client, address, name, name) == Committed(7)
        end()
        assert offset_of(client, address, name, name) == Committed(7)
    with (
        member_of_rest(client, address, name, 7) as consumer,
        transactional(client, address, name) as producer,
    ):
        producer.begin()
        producer.send_offsets(consumer.membership(), {(name, 0): 15})
        end()
        producer.abort()
        end()
        assert offset_of(client, address, name, name) == Committed(7)


@contextmanager
def member_of_rest(client: Client, address: str, name: str, first: int) -> Iterator[Consumer]:
    """A member that begins where the group stands."""
    consumer = client.consumer(address, group=name, isolation=COMMITTED)
    try:
        consumer.subscribe([name])
        assert [each.offset for each in read(consumer, INPUT - first)] == list(range(first, INPUT))
        yield consumer
    finally:
        consumer.close()
