"""Transactions as producers make them and as consumers see them."""

from __future__ import annotations

from itertools import chain

import confluent_kafka
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_kinds import with_clients
from tests.clients.client_shape import Client, Message, eventually, produce, read, read_to
from tests.clients.transaction_content import (
    ALL,
    COMMITTED,
    content,
    numbered,
    run,
    stable_end,
    transactional,
    value,
    values,
)
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
MANY = 100_000
# Looks of a reader that is to find nothing.
LOOKS = 5
endings = pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])


def create(client: Client, broker: BrokerProcess, *topics: str, partitions: int = 1) -> None:
    admin = client.admin(broker.address)
    for topic in topics:
        admin.create(topic, partitions=partitions)
    admin.close()


@with_clients()
def test_committed_records_are_read_and_aborted_ones_are_not(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    with transactional(client, broker.address, name) as producer:
        run(producer, numbered(name, range(10)))
        run(producer, numbered(name, range(10, 20)), is_commit=False)
        run(producer, numbered(name, range(20, 30)))
        run(producer, numbered(name, range(30, 40)), is_commit=False)
    kept = values(range(10)) + values(range(20, 30))
    assert content(client, broker.address, (name, 0)) == kept
    assert content(client, broker.address, (name, 0), isolation=ALL) == values(range(40))


@pytest.mark.parametrize("has_offsets", [False, True])
def test_aborts_cost_librdkafka_no_connection(
    broker: BrokerProcess, name: str, has_offsets: bool
) -> None:
    errors: list[object] = []
    reader = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": name})
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.address,
            "transactional.id": name,
            "error_cb": errors.append,
        }
    )
    producer.init_transactions(HANG_S)
    for number in range(5):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number)
        producer.flush(HANG_S)
        if has_offsets:
            offset = confluent_kafka.TopicPartition(name, 0, number)
            group = reader.consumer_group_metadata()
            producer.send_offsets_to_transaction([offset], group, HANG_S)
        if number < 4:
            producer.abort_transaction(HANG_S)
    producer.commit_transaction(HANG_S)
    producer.poll(0)
    reader.close()
    assert errors == []


@with_clients()
def test_every_transaction_takes_one_offset_for_its_marker(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    with transactional(client, broker.address, name) as producer:
        assert run(producer, numbered(name, range(3))) == [0, 1, 2]
        assert run(producer, numbered(name, range(3)), is_commit=False) == [4, 5, 6]
        assert run(producer, numbered(name, range(1))) == [8]
    assert stable_end(client, broker.address, (name, 0)) == 10


@with_clients()
@endings
def test_reader_of_committed_records_waits_at_an_open_transaction(
    broker: BrokerProcess, client: Client, is_commit: bool, name: str
) -> None:
    address, place = broker.address, (name, 0)
    produce(client, address, numbered(name, range(5), what="before-"))
    with transactional(client, address, name) as producer:
        producer.begin()
        producer.send_many(numbered(name, range(5), what="inside-"))
        producer.flush()
        produce(client, address, numbered(name, range(5), what="after-"))
        assert stable_end(client, address, place) == 5
        assert stable_end(client, address, place, isolation=ALL) == 15
        reader = client.consumer(address, isolation=COMMITTED)
        reader.assign({place: 0})
        assert [each.value for each in read(reader, 5)] == values(range(5), "before-")
        for _ in range(LOOKS):
            assert reader.poll() == []
        everything = client.consumer(address, isolation=ALL)
        everything.assign({place: 0})
        assert len(read(everything, 15)) == 15
        everything.close()
        if is_commit:
            producer.commit()
        else:
            producer.abort()
    inside = values(range(5), "inside-") if is_commit else []
    rest = read_to(reader, 14)
    reader.close()
    assert [each.value for each in rest] == inside + values(range(5), "after-")
    assert stable_end(client, address, place) == 16


@with_clients()
@endings
def test_transaction_ends_alike_in_all_its_partitions_and_topics(
    broker: BrokerProcess, client: Client, is_commit: bool, name: str
) -> None:
    topics = [f"{name}-{letter}" for letter in "ab"]
    places = [(topic, partition) for topic in topics for partition in range(PARTITIONS)]
    create(client, broker, *topics, partitions=PARTITIONS)
    messages = [Message(topic, value(n), partition=p) for n in range(50) for topic, p in places]
    with transactional(client, broker.address, name) as producer:
        producer.begin()
        producer.send_many(messages)
        producer.flush()
        assert {stable_end(client, broker.address, place) for place in places} == {0}
        if is_commit:
            producer.commit()
        else:
            producer.abort()
    for place in places:
        assert content(client, broker.address, place) == (values(range(50)) if is_commit else [])
        assert content(client, broker.address, place, isolation=ALL) == values(range(50))


@with_clients()
@endings
def test_hundred_thousand_records_in_one_transaction(
    broker: BrokerProcess, client: Client, is_commit: bool, name: str
) -> None:
    with transactional(client, broker.address, name) as producer:
        offsets = run(producer, numbered(name, range(MANY)), is_commit=is_commit)
    assert offsets == list(range(MANY))
    kept = values(range(MANY)) if is_commit else []
    assert content(client, broker.address, (name, 0)) == kept
    assert stable_end(client, broker.address, (name, 0), isolation=ALL) == MANY + 2


@with_clients()
@pytest.mark.parametrize("codec", CODECS)
def test_transactions_over_many_compressed_batches(
    broker: BrokerProcess, client: Client, codec: str, name: str
) -> None:
    kept: list[bytes] = []
    with transactional(client, broker.address, name, compression=codec) as producer:
        for number in range(6):
            messages = [
                Message(name, b"%d-%d " % (number, each) + b"text" * 100) for each in range(60)
            ]
            producer.begin()
            for first in range(0, 60, 20):
                # A flush ends a batch.
                producer.send_many(messages[first : first + 20])
                producer.flush()
            if number % 3 == 1:
                producer.abort()
            else:
                producer.commit()
                kept += [each.value or b"" for each in messages]
    assert content(client, broker.address, (name, 0)) == kept
    assert len(content(client, broker.address, (name, 0), isolation=ALL)) == 360


@with_clients()
def test_transactions_of_several_producers_cross_in_one_partition(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    with (
        transactional(client, broker.address, f"{name}-a") as keeping,
        transactional(client, broker.address, f"{name}-b") as dropping,
        transactional(client, broker.address, f"{name}-c") as last,
    ):
        for producer in (keeping, dropping, last):
            producer.begin()
        for number in range(10):
            for what, producer in (("k", keeping), ("d", dropping), ("l", last)):
                producer.send(Message(name, value(number, what)))
                producer.flush()
        dropping.abort()
        assert stable_end(client, broker.address, (name, 0)) == 0
        run(dropping, numbered(name, range(10), what="again"))
        keeping.commit()
        # The last one's first record is the third of all, and it is still open.
        assert stable_end(client, broker.address, (name, 0)) == 2
        last.commit()
    crossed = chain.from_iterable((value(n, "k"), value(n, "l")) for n in range(10))
    assert content(client, broker.address, (name, 0)) == [*crossed, *values(range(10), "again")]


@with_clients()
def test_reader_that_begins_inside_an_aborted_transaction_sees_none_of_it(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    with transactional(client, broker.address, name) as producer:
        run(producer, numbered(name, range(100)), is_commit=False)
        run(producer, numbered(name, range(100, 200)))
    for first in (1, 50, 99, 100):
        found = content(client, broker.address, (name, 0), first=first)
        assert found == values(range(100, 200))
    assert content(client, broker.address, (name, 0), first=151) == values(range(150, 200))


@with_clients()
def test_transaction_without_records_ends(broker: BrokerProcess, client: Client, name: str) -> None:
    with transactional(client, broker.address, name) as producer:
        run(producer, [])
        run(producer, [], is_commit=False)
        run(producer, numbered(name, range(3)))
    assert content(client, broker.address, (name, 0)) == values(range(3))


@with_clients()
@endings
def test_topic_is_deleted_while_a_transaction_is_open_in_it(
    broker: BrokerProcess, client: Client, is_commit: bool, name: str
) -> None:
    doomed, kept = f"{name}-doomed", f"{name}-kept"
    create(client, broker, doomed, kept)
    admin = client.admin(broker.address)
    with transactional(client, broker.address, name) as producer:
        producer.begin()
        producer.send_many(numbered(doomed, range(10)) + numbered(kept, range(10)))
        producer.flush()
        admin.delete(doomed)
        eventually(lambda: doomed not in admin.topics(), "the topic is gone")
        if is_commit:
            producer.commit()
        else:
            producer.abort()
        run(producer, numbered(kept, range(10, 20)))
    first = 0 if is_commit else 10
    assert content(client, broker.address, (kept, 0)) == values(range(first, 20))
    # A client that asks for the topics that it knows may have created it again.
    if doomed not in admin.topics():
        admin.create(doomed, partitions=1)
    admin.close()
    with transactional(client, broker.address, name) as producer:
        run(producer, numbered(doomed, range(5)))
    assert content(client, broker.address, (doomed, 0)) == values(range(5))
