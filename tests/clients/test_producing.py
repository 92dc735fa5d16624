"""What clients send arrives, is stored as they sent it, and is read back byte for byte."""

from __future__ import annotations

import pytest

from millstream.records import Codec
from tests.clients.broker_process import BrokerProcess
from tests.clients.client_kinds import NULL_HEADER_SENDERS, with_clients
from tests.clients.client_shape import Client, Message, Refused, produce, read_all
from tests.clients.stored_batches import batches_of, records_in

pytestmark = pytest.mark.system

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MESSAGE_TOO_LARGE = 10
TIME_MS = 1_700_000_000_000


def assorted(topic: str) -> list[Message]:
    """Records of every kind that there is."""
    headers = (("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b""))
    return [
        Message(topic, b"plain"),
        Message(topic, b"with a key", b"key"),
        Message(topic, b"", b"empty value"),
        Message(topic, None, b"null value"),
        Message(topic, b"empty key", b""),
        Message(topic, b"with headers", b"key", headers),
        Message(topic, b"with a name beyond ASCII", b"key", (("größe", "ü".encode()),)),
        Message(topic, bytes(range(256)), bytes(range(255, -1, -1))),
        Message(topic, b"repeated " * 10_000, b"large"),
    ]


@with_clients()
@pytest.mark.parametrize("codec", CODECS)
def test_produced_records_are_read_back_and_stored_compressed(
    broker: BrokerProcess, client: Client, codec: str, name: str
) -> None:
    sent = assorted(name)
    producer = client.producer(broker.address, compression=codec)
    for message in sent:
        producer.send(message)
    assert producer.flush() == list(range(len(sent)))
    producer.close()
    found = read_all(client, broker.address, {(name, 0): 0})
    assert [each.content() for each in found] == [each.content() for each in sent]
    assert [each.offset for each in found] == list(range(len(sent)))
    stored = [header for header, _ in batches_of(broker.segments(name)[0])]
    # A client that cannot make a batch smaller may send it as it is.
    assert Codec[codec.upper()] in {header.codec for header in stored}
    assert {header.codec for header in stored} <= {Codec[codec.upper()], Codec.NONE}
    assert codec == "none" or sum(header.size_bytes for header in stored) < 80_000


@with_clients(NULL_HEADER_SENDERS)
def test_header_without_a_value_is_read_back(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    headers = (("null", None), ("empty", b""))
    produce(client, broker.address, [Message(name, b"value", None, headers)])
    (found,) = read_all(client, broker.address, {(name, 0): 0})
    assert found.headers == headers


@with_clients()
def test_timestamps_are_kept(broker: BrokerProcess, client: Client, name: str) -> None:
    times = [TIME_MS, TIME_MS - 5_000, TIME_MS + 1]
    produce(client, broker.address, [Message(name, b"value", timestamp_ms=time) for time in times])
    found = read_all(client, broker.address, {(name, 0): 0})
    assert [each.timestamp_ms for each in found] == times


@with_clients()
def test_topic_may_ask_for_append_time(broker: BrokerProcess, client: Client, name: str) -> None:
    admin = client.admin(broker.address)
    admin.create(name, partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    admin.close()
    produce(client, broker.address, [Message(name, b"value", timestamp_ms=TIME_MS)])
    (found,) = read_all(client, broker.address, {(name, 0): 0})
    assert found.timestamp_ms > TIME_MS


@with_clients()
def test_record_of_nearly_a_megabyte_is_read_back(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    large = bytes(range(256)) * 4090
    producer = client.producer(broker.address, max_bytes=2 * 1024**2)
    producer.send(Message(name, large, b"key"))
    assert producer.flush() == [0]
    producer.close()
    (found,) = read_all(client, broker.address, {(name, 0): 0})
    assert found.value == large


@with_clients()
def test_too_large_record_is_refused_and_the_next_one_is_taken(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    producer = client.producer(broker.address, max_bytes=4 * 1024**2)
    producer.send(Message(name, bytes(1100 * 1024)))
    with pytest.raises(Refused) as refused:
        producer.flush()
    assert refused.value.code == MESSAGE_TOO_LARGE
    producer.send(Message(name, b"small"))
    assert producer.flush() == [0]
    producer.close()


@with_clients()
def test_topic_decides_how_large_a_record_may_be(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    admin.create(name, partitions=1, configs={"max.message.bytes": "2000"})
    admin.close()
    producer = client.producer(broker.address)
    producer.send(Message(name, bytes(3000)))
    with pytest.raises(Refused) as refused:
        producer.flush()
    assert refused.value.code == MESSAGE_TOO_LARGE
    producer.send(Message(name, bytes(1000)))
    assert producer.flush() == [0]
    producer.close()


@with_clients()
def test_keyless_record_is_refused_by_a_compacted_topic(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    admin.create(name, partitions=1, configs={"cleanup.policy": "compact"})
    admin.close()
    producer = client.producer(broker.address)
    producer.send(Message(name, b"no key"))
    with pytest.raises(Refused):
        producer.flush()
    producer.send(Message(name, b"value", b"key"))
    assert producer.flush() == [0]
    producer.close()


@with_clients()
def test_records_of_many_partitions_keep_their_order(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    admin.create(name, partitions=5)
    admin.close()
    sent = [Message(name, b"%d" % number, partition=number % 5) for number in range(2000)]
    produce(client, broker.address, sent)
    found = read_all(client, broker.address, {(name, partition): 0 for partition in range(5)})
    for partition in range(5):
        mine = [each for each in found if each.partition == partition]
        assert [int(each.value or b"") for each in mine] == list(range(partition, 2000, 5))
        assert [each.offset for each in mine] == list(range(400))


@with_clients()
def test_records_of_one_key_share_a_partition(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    admin.create(name, partitions=4)
    admin.close()
    sent = [Message(name, b"%d" % n, b"key-%d" % (n % 20), partition=-1) for n in range(200)]
    produce(client, broker.address, sent)
    found = read_all(client, broker.address, dict.fromkeys([(name, p) for p in range(4)], 0))
    homes = {(each.key, each.partition) for each in found}
    assert len(homes) == 20
    assert {partition for _, partition in homes} == {0, 1, 2, 3}
    for key in {each.key for each in sent}:
        mine = [each.value for each in found if each.key == key]
        assert mine == [each.value for each in sent if each.key == key]


@with_clients()
def test_idempotent_producer_is_known_in_what_is_stored(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    producer = client.producer(broker.address, idempotent=True)
    for number in range(50):
        producer.send(Message(name, b"%d" % number))
        producer.flush()
    producer.close()
    stored = [header for header, _ in batches_of(broker.segments(name)[0])]
    assert {header.producer_id for header in stored} != {-1}
    assert [header.base_sequence for header in stored] == list(range(50))
    values = [record.value for record in records_in(broker.segments(name))]
    assert values == [b"%d" % number for number in range(50)]


@with_clients()
def test_acks_none_and_one_arrive_too(broker: BrokerProcess, client: Client, name: str) -> None:
    for acks in (0, 1):
        producer = client.producer(broker.address, acks=acks)
        for number in range(10):
            producer.send(Message(name, b"%d" % number))
        producer.flush()
        producer.close()
    found = read_all(client, broker.address, {(name, 0): 0})
    assert [each.value for each in found] == [b"%d" % number for number in range(10)] * 2
