"""Topics that change under their clients: deleted, made anew, widened, compacted, shortened."""

from __future__ import annotations

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_kinds import with_clients
from tests.clients.client_shape import (
    Client,
    Committed,
    Message,
    Patient,
    Producer,
    Refused,
    eventually,
    produce,
    read,
    read_all,
    read_to,
)
from tests.clients.conftest import SETTINGS, StartBroker

pytestmark = pytest.mark.system

# Segments so small that a few records fill one, and upkeep that looks often.
UPKEEP = (
    SETTINGS
    + """
[storage]
log.retention.check.interval.ms = 100

[log]
segment.bytes = 2000
file.delete.delay.ms = 100
"""
)


@with_clients()
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_producer_outlives_a_topic_that_is_made_anew(
    broker: BrokerProcess, client: Client, idempotent: bool, name: str
) -> None:
    admin = client.admin(broker.address)
    admin.create(name, partitions=1)
    producer = client.producer(broker.address, idempotent=idempotent)
    for number in range(3):
        producer.send(Message(name, b"before"))
        assert producer.flush() == [number]
    admin.delete(name)
    admin.create(name, partitions=1)
    # The client may be told once that the topic it knew is gone.
    eventually(lambda: _is_taken(producer, name), "a record in the new topic")
    found = read_all(client, broker.address, {(name, 0): 0})
    assert {each.value for each in found} == {b"after"}
    producer.close()
    admin.close()


def _is_taken(producer: Producer, topic: str) -> bool:
    producer.send(Message(topic, b"after"))
    try:
        producer.flush()
    except Refused:
        return False
    return True


@with_clients()
def test_offsets_of_a_deleted_topic_are_forgotten(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    produce(client, broker.address, [Message(name, b"%d" % number) for number in range(10)])
    member = client.consumer(broker.address, group=name)
    member.subscribe([name])
    read(member, 10)
    member.commit({(name, 0): Committed(10)})
    member.close()
    admin.delete(name)
    admin.create(name, partitions=1)
    produce(client, broker.address, [Message(name, b"new %d" % number) for number in range(3)])
    again = client.consumer(broker.address, group=name)
    again.subscribe([name])
    assert [each.value for each in read(again, 3)] == [b"new 0", b"new 1", b"new 2"]
    again.close()
    admin.close()


@with_clients()
def test_new_partitions_reach_clients_that_are_at_work(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    admin.create(name, partitions=1)
    member = client.consumer(broker.address, group=name)
    member.subscribe([name])
    patient = Patient(member)
    eventually(lambda: not patient.poll() and len(member.assignment()) == 1, "one partition")
    admin.add_partitions(name, 3)
    eventually(lambda: not patient.poll() and len(member.assignment()) == 3, "three partitions")
    produce(client, broker.address, [Message(name, b"%d" % p, partition=p) for p in range(3)])
    assert {each.partition for each in read(member, 3)} == {0, 1, 2}
    member.close()
    admin.close()


@with_clients()
def test_compacted_topic_is_read_with_its_gaps(
    start_broker: StartBroker, client: Client, name: str
) -> None:
    broker = start_broker(UPKEEP)
    admin = client.admin(broker.address)
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    admin.create(name, partitions=1, configs=configs)
    admin.close()
    producer = client.producer(broker.address, compression="gzip")
    for number in range(300):
        producer.send(Message(name, b"%d" % number, b"key-%d" % (number % 10)))
        if number % 10 == 9:
            producer.flush()
    producer.close()

    newest = {b"key-%d" % key: b"%d" % (290 + key) for key in range(10)}
    consumer = client.consumer(broker.address)

    def is_compacted() -> bool:
        consumer.assign({(name, 0): 0})
        found = read_to(consumer, 299)
        assert {each.key: each.value for each in found} == newest
        assert [each.offset for each in found] == sorted({each.offset for each in found})
        # The segment that is written to stays whole, and has up to 130 of them.
        return len(found) < 200

    eventually(is_compacted, "compaction")
    # A position inside a gap reads on after it.
    consumer.assign({(name, 0): 5})
    assert read_to(consumer, 299)[0].offset > 5
    consumer.close()


@with_clients()
def test_reader_goes_on_where_retention_left_the_log(
    start_broker: StartBroker, client: Client, name: str
) -> None:
    broker = start_broker(UPKEEP)
    admin = client.admin(broker.address)
    admin.create(name, partitions=1, configs={"retention.bytes": "5000"})
    admin.close()
    consumer = client.consumer(broker.address)
    producer = client.producer(broker.address)
    for number in range(100):
        producer.send(Message(name, b"%d" % number * 100))
        producer.flush()
    producer.close()
    eventually(lambda: consumer.bounds((name, 0))[0] > 0, "retention")
    consumer.assign({(name, 0): 0})
    offsets = [each.offset for each in read_to(consumer, 99)]
    assert offsets[0] > 0
    assert offsets == list(range(offsets[0], 100))
    consumer.close()
