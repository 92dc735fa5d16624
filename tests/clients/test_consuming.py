"""Reading where one likes: by offset, by time, from either end, and on from where one was."""

from __future__ import annotations

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_kinds import CLIENTS, with_clients
from tests.clients.client_shape import (
    Client,
    Committed,
    Message,
    Patient,
    Refused,
    eventually,
    produce,
    read,
    read_all,
)
from tests.clients.confluent_client import Confluent

pytestmark = pytest.mark.system

TIME_MS = 1_700_000_000_000
MANY_TOPICS = 200
OFFSET_METADATA_TOO_LARGE = 12


def numbered(topic: str, count: int, *, first: int = 0) -> list[Message]:
    """Records that say their number, ten milliseconds apart."""
    return [
        Message(topic, b"%d" % number, timestamp_ms=TIME_MS + 10 * number)
        for number in range(first, first + count)
    ]


def numbers(messages: list[Message]) -> list[int]:
    return [int(each.value or b"") for each in messages]


@with_clients()
def test_seek_goes_back_and_forward(broker: BrokerProcess, client: Client, name: str) -> None:
    produce(client, broker.address, numbered(name, 100))
    consumer = client.consumer(broker.address)
    consumer.assign({(name, 0): 90})
    assert numbers(read(consumer, 10)) == list(range(90, 100))
    consumer.seek((name, 0), 5)
    assert numbers(read(consumer, 95)) == list(range(5, 100))
    consumer.seek((name, 0), 99)
    assert numbers(read(consumer, 1)) == [99]
    consumer.close()


@with_clients()
def test_time_finds_the_first_record_that_is_not_older(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    # Several batches, and one record that is older than those before it.
    for first in range(0, 50, 10):
        produce(client, broker.address, numbered(name, 10, first=first))
    produce(client, broker.address, [Message(name, b"50", timestamp_ms=TIME_MS)])
    consumer = client.consumer(broker.address)
    place = (name, 0)
    assert consumer.offset_for_time(place, TIME_MS - 1) == 0
    for number in (0, 1, 9, 10, 33, 49):
        assert consumer.offset_for_time(place, TIME_MS + 10 * number) == number
        if number:
            assert consumer.offset_for_time(place, TIME_MS + 10 * number - 9) == number
    assert consumer.offset_for_time(place, TIME_MS + 10 * 49 + 1) is None
    consumer.close()


@with_clients()
def test_bounds_follow_appends_and_deletions(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    admin.create(name, partitions=1)
    consumer = client.consumer(broker.address)
    assert consumer.bounds((name, 0)) == (0, 0)
    produce(client, broker.address, numbered(name, 20))
    assert consumer.bounds((name, 0)) == (0, 20)
    assert admin.delete_records((name, 0), 15) == 15
    assert consumer.bounds((name, 0)) == (15, 20)
    assert numbers(read_all(client, broker.address, {(name, 0): 15})) == list(range(15, 20))
    consumer.close()
    admin.close()


@with_clients()
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_offset_that_is_gone_is_reset_as_the_client_asks(
    broker: BrokerProcess, client: Client, reset: str, name: str
) -> None:
    produce(client, broker.address, numbered(name, 20))
    admin = client.admin(broker.address)
    admin.delete_records((name, 0), 10)
    admin.close()
    consumer = client.consumer(broker.address, reset=reset)
    consumer.assign({(name, 0): 3})
    if reset == "earliest":
        assert numbers(read(consumer, 10)) == list(range(10, 20))
    else:
        # Where the reset went is told by the first record that comes after it.
        found: list[Message] = []

        def is_there() -> bool:
            produce(client, broker.address, [Message(name, b"new")])
            found.extend(consumer.poll())
            return bool(found)

        eventually(is_there, "a record after the end")
        assert found[0].offset >= 20
    consumer.close()


@with_clients()
def test_group_resumes_after_its_last_commit(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    produce(client, broker.address, numbered(name, 30))
    first = client.consumer(broker.address, group=name)
    first.subscribe([name])
    assert first.committed((name, 0)) is None
    assert numbers(read(first, 30)) == list(range(30))
    first.commit({(name, 0): Committed(12, "read up to a dozen; grün")})
    assert first.committed((name, 0)) == Committed(12, "read up to a dozen; grün")
    first.close()
    second = client.consumer(broker.address, group=name)
    second.subscribe([name])
    assert numbers(read(second, 18)) == list(range(12, 30))
    second.commit({(name, 0): Committed(30)})
    assert second.committed((name, 0)) == Committed(30)
    second.close()


@with_clients()
def test_commit_without_membership_is_kept(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    produce(client, broker.address, numbered(name, 5))
    consumer = client.consumer(broker.address, group=name)
    consumer.assign({(name, 0): 0})
    read(consumer, 5)
    consumer.commit({(name, 0): Committed(4, "alone")})
    assert consumer.committed((name, 0)) == Committed(4, "alone")
    consumer.close()


@with_clients()
def test_commit_with_too_much_to_say_is_refused(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    produce(client, broker.address, numbered(name, 5))
    consumer = client.consumer(broker.address, group=name)
    consumer.assign({(name, 0): 0})
    consumer.commit({(name, 0): Committed(2, "x" * 4000)})
    with pytest.raises(Refused) as refused:
        consumer.commit({(name, 0): Committed(4, "x" * 5000)})
    assert refused.value.code == OFFSET_METADATA_TOO_LARGE
    assert consumer.committed((name, 0)) == Committed(2, "x" * 4000)
    consumer.close()


@with_clients()
def test_tiny_fetches_get_on(broker: BrokerProcess, client: Client, name: str) -> None:
    sent = [Message(name, b"%d" % number * 2000) for number in range(40)]
    producer = client.producer(broker.address, linger_ms=0)
    for message in sent:
        producer.send(message)
        producer.flush()
    producer.close()
    consumer = client.consumer(broker.address, fetch_max_bytes=1000)
    consumer.assign({(name, 0): 0})
    assert [each.value for each in read(consumer, 40)] == [each.value for each in sent]
    consumer.close()


@with_clients()
def test_readers_of_committed_records_see_all_that_is_outside_transactions(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    produce(client, broker.address, numbered(name, 25))
    consumer = client.consumer(broker.address, isolation="read_committed")
    consumer.assign({(name, 0): 0})
    assert numbers(read(consumer, 25)) == list(range(25))
    assert consumer.bounds((name, 0)) == (0, 25)
    consumer.close()


@with_clients()
def test_waiting_consumer_hears_of_new_records(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    produce(client, broker.address, numbered(name, 1))
    consumer = client.consumer(broker.address)
    consumer.assign({(name, 0): 0})
    for number in range(10):
        assert numbers(read(consumer, 1)) == [number]
        produce(client, broker.address, numbered(name, 1, first=number + 1))
    consumer.close()


@with_clients()
def test_pattern_takes_in_topics_made_later(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    produce(client, broker.address, numbered(f"{name}-first", 3))
    produce(client, broker.address, numbered(f"other-{name}", 3))
    consumer = client.consumer(broker.address, group=name)
    consumer.subscribe_pattern(f"^{name}-.*")
    assert {each.topic for each in read(consumer, 3)} == {f"{name}-first"}
    consumer.commit({(f"{name}-first", 0): Committed(3)})
    produce(client, broker.address, numbered(f"{name}-second", 4))
    assert {each.topic for each in read(consumer, 4)} == {f"{name}-second"}
    assert consumer.assignment() == {(f"{name}-first", 0), (f"{name}-second", 0)}
    consumer.close()


@with_clients()
def test_topic_deleted_under_a_consumer_leaves_its_other_topic_alone(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    kept, gone = f"{name}-kept", f"{name}-gone"
    for topic in (kept, gone):
        admin.create(topic, partitions=1)
        produce(client, broker.address, numbered(topic, 5))
    consumer = client.consumer(broker.address)
    consumer.assign({(kept, 0): 0, (gone, 0): 0})
    read(consumer, 10)
    admin.delete(gone)
    for number in range(5, 10):
        produce(client, broker.address, numbered(kept, 1, first=number))
        assert numbers(read(Patient(consumer), 1)) == [number]
    consumer.close()
    admin.close()


@pytest.mark.parametrize("reader", CLIENTS, ids=lambda client: f"to-{client.name}")
@pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)
def test_clients_read_each_other(
    broker: BrokerProcess, writer: Client, reader: Client, name: str
) -> None:
    headers = (("from", writer.name.encode()),)
    sent = [Message(name, b"value %d" % number, b"key", headers) for number in range(100)]
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        producer = writer.producer(broker.address, compression=codec)
        for message in sent:
            producer.send(message)
        producer.flush()
        producer.close()
    found = read_all(reader, broker.address, {(name, 0): 0})
    assert [each.content() for each in found] == [each.content() for each in sent] * 4


def test_two_hundred_topics_are_written_and_read(broker: BrokerProcess, name: str) -> None:
    client = Confluent()
    topics = [f"{name}-{number}" for number in range(MANY_TOPICS)]
    produce(client, broker.address, [m for topic in topics for m in numbered(topic, 3)])
    found = read_all(client, broker.address, {(topic, 0): 0 for topic in topics})
    for topic in topics:
        assert numbers([each for each in found if each.topic == topic]) == [0, 1, 2]
    consumer = client.consumer(broker.address, group=name)
    consumer.subscribe(topics)
    assert len(read(consumer, 3 * MANY_TOPICS)) == 3 * MANY_TOPICS
    consumer.close()
