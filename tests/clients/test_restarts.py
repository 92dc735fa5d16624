"""Clients outlive the broker: nothing is lost, nothing comes twice, order is kept."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.clients.client_kinds import with_clients
from tests.clients.client_shape import Client, Committed, Message, eventually, produce, read
from tests.clients.confluent_client import Confluent
from tests.clients.conftest import StartBroker
from tests.clients.remote_producer import RemoteProducer
from tests.clients.stored_batches import records_in

pytestmark = pytest.mark.system

PARTITIONS = 3
KILLS = 3
EACH = 100


@with_clients()
def test_idempotent_producer_outlives_kills_of_the_broker(
    start_broker: StartBroker, client: Client, name: str
) -> None:
    broker = start_broker()
    admin = client.admin(broker.address)
    admin.create(name, partitions=PARTITIONS)
    admin.close()
    producer = client.producer(broker.address, idempotent=True)
    offsets: list[int] = []
    for number in range(2 * KILLS * EACH):
        for partition in range(PARTITIONS):
            producer.send(Message(name, b"%d" % number, partition=partition))
        if number % EACH == EACH - 1:
            if number // EACH % 2:
                # Some of these records are on the disk, some on their way, some not yet sent.
                broker.kill_and_restart()
            offsets += producer.flush()
    producer.close()
    for partition in range(PARTITIONS):
        stored = list(records_in(broker.segments(name, partition)))
        assert [int(record.value or b"") for record in stored] == list(range(2 * KILLS * EACH))
        assert offsets[partition::PARTITIONS] == [record.offset for record in stored]


@with_clients()
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_group_reads_on_when_the_broker_is_back(
    start_broker: StartBroker, client: Client, end: str, name: str
) -> None:
    broker = start_broker()
    produce(client, broker.address, [Message(name, b"%d" % number) for number in range(20)])
    consumer = client.consumer(broker.address, group=name)
    consumer.subscribe([name])
    assert len(read(consumer, 20)) == 20
    consumer.commit({(name, 0): Committed(20, "twenty")})
    if end == "kill":
        broker.kill_and_restart()
    else:
        broker.restart()
    produce(client, broker.address, [Message(name, b"%d" % number) for number in range(20, 40)])
    # Some clients rejoin, others carry on; neither reads what was committed.
    seen: set[int] = set()

    def is_done() -> bool:
        seen.update(each.offset for each in consumer.poll())
        return len(seen) >= 20

    eventually(is_done, "the records after the restart")
    assert seen == set(range(20, 40))
    assert consumer.committed((name, 0)) == Committed(20, "twenty")
    consumer.close()


def test_producers_in_several_processes_lose_nothing(start_broker: StartBroker, name: str) -> None:
    broker = start_broker()
    Confluent().admin(broker.address).create(name, partitions=PARTITIONS)
    with ExitStack() as running:
        producers = [
            running.enter_context(
                RemoteProducer(
                    broker.address, name, partitions=PARTITIONS, name=f"producer-{n}", count=500
                )
            )
            for n in range(4)
        ]
        for producer in producers:
            producer.finish()
            assert producer.sent == [500] * PARTITIONS
    for partition in range(PARTITIONS):
        stored = list(records_in(broker.segments(name, partition)))
        assert [record.offset for record in stored] == list(range(2000))
        for producer in producers:
            mine = [
                record.offset
                for record in stored
                if (record.value or b"").startswith(producer.name.encode())
            ]
            assert mine == [producer.acked[partition, number] for number in range(500)]
