"""Topics, settings and groups, as admin clients see and change them."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_kinds import CREATING_READERS, GROUP_DELETERS, with_clients
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
from tests.clients.conftest import SETTINGS, StartBroker
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

UNKNOWN_TOPIC = 3
INVALID_TOPIC = 17
TOPIC_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
GROUP_NOT_EMPTY = 68
GROUP_UNKNOWN = 69
OFFSET_OUT_OF_RANGE = 1
TIME_MS = 1_700_000_000_000


def numbered(topic: str, count: int, *, partition: int = 0) -> list[Message]:
    return [
        Message(topic, b"%d" % number, partition=partition, timestamp_ms=TIME_MS + number)
        for number in range(count)
    ]


@with_clients()
def test_topic_is_created_altered_widened_and_deleted(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    configs = {"retention.ms": "123456", "cleanup.policy": "compact,delete"}
    admin.create(name, partitions=3, configs=configs)
    assert admin.topics()[name] == 3
    described = admin.configs(name)
    assert described["retention.ms"] == "123456"
    assert set((described["cleanup.policy"] or "").split(",")) == {"compact", "delete"}
    assert described["segment.bytes"] == str(1024**3)
    admin.alter(name, {"retention.ms": "777", "max.message.bytes": "5000"})
    assert admin.configs(name)["retention.ms"] == "777"
    assert admin.configs(name)["max.message.bytes"] == "5000"
    admin.add_partitions(name, 5)
    assert admin.topics()[name] == 5
    admin.delete(name)
    assert name not in admin.topics()
    admin.close()


@with_clients()
def test_deleted_topic_is_made_anew_and_empty(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    admin = client.admin(broker.address)
    for partitions in (2, 1, 3):
        admin.create(name, partitions=partitions)
        last = partitions - 1
        assert produce(client, broker.address, numbered(name, 10, partition=last))[0] == 0
        assert len(read_all(client, broker.address, {(name, last): 0})) == 10
        assert admin.topics()[name] == partitions
        admin.delete(name)
    admin.close()


@with_clients()
def test_what_cannot_be_is_refused(broker: BrokerProcess, client: Client, name: str) -> None:
    admin = client.admin(broker.address)
    admin.create(name, partitions=2)
    with pytest.raises(Refused) as refused:
        admin.create(name, partitions=2)
    assert refused.value.code == TOPIC_EXISTS
    with pytest.raises(Refused) as refused:
        admin.delete(f"{name}-that-is-not")
    assert refused.value.code == UNKNOWN_TOPIC
    with pytest.raises(Refused) as refused:
        admin.add_partitions(name, 1)
    assert refused.value.code == INVALID_PARTITIONS
    with pytest.raises(Refused) as refused:
        admin.create(f"{name}-2", partitions=1, configs={"retention.ms": "soon"})
    assert refused.value.code == INVALID_CONFIG
    with pytest.raises(Refused) as refused:
        admin.create("../outside", partitions=1)
    assert refused.value.code == INVALID_TOPIC
    assert set(admin.topics()) & {f"{name}-2", "../outside"} == set()
    admin.close()


@with_clients()
def test_deleted_records_are_gone_for_everyone(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    produce(client, broker.address, numbered(name, 30))
    admin = client.admin(broker.address)
    assert admin.delete_records((name, 0), 10) == 10
    # Up to the end, whichever that is.
    assert admin.delete_records((name, 0), -1) == 30
    produce(client, broker.address, numbered(name, 3))
    found = read_all(client, broker.address, {(name, 0): 30})
    assert [each.offset for each in found] == [30, 31, 32]
    admin.close()


@with_clients()
def test_groups_are_listed_and_described(broker: BrokerProcess, client: Client, name: str) -> None:
    produce(client, broker.address, numbered(name, 5))
    admin = client.admin(broker.address)
    assert name not in admin.groups()
    member = client.consumer(broker.address, group=name)
    member.subscribe([name])
    read(member, 5)
    assert name in admin.groups()
    assert admin.group_members(name) == ("Stable", 1)
    member.commit({(name, 0): Committed(5)})
    member.close()
    assert admin.group_members(name) == ("Empty", 0)
    admin.close()


@with_clients(GROUP_DELETERS)
def test_group_is_deleted_once_it_is_empty(
    broker: BrokerProcess, client: Client, name: str
) -> None:
    produce(client, broker.address, numbered(name, 5))
    member = client.consumer(broker.address, group=name)
    member.subscribe([name])
    read(member, 5)
    member.commit({(name, 0): Committed(5)})
    admin = client.admin(broker.address)
    with pytest.raises(Refused):
        admin.delete_group(name)
    member.close()
    admin.delete_group(name)
    assert name not in admin.groups()
    with pytest.raises(Refused):
        admin.delete_group(name)
    again = client.consumer(broker.address, group=name)
    assert again.committed((name, 0)) is None
    again.close()
    admin.close()


@with_clients()
def test_cluster_is_one_broker_at_the_address_used(broker: BrokerProcess, client: Client) -> None:
    admin = client.admin(broker.address)
    assert [each[1:] for each in admin.brokers()] == [("127.0.0.1", broker.port)]
    admin.close()


@with_clients()
def test_topic_made_by_use_has_the_configured_partitions(
    start_broker: StartBroker, client: Client, name: str
) -> None:
    broker = start_broker(SETTINGS + "\n[topics]\nnum.partitions = 7\n")
    admin = client.admin(broker.address)
    produce(client, broker.address, [Message(name, b"value", partition=6)])
    assert admin.topics()[name] == 7
    admin.close()


@with_clients(CREATING_READERS)
def test_topic_made_by_its_reader_has_the_configured_partitions(
    start_broker: StartBroker, client: Client, name: str
) -> None:
    broker = start_broker(SETTINGS + "\n[topics]\nnum.partitions = 7\n")
    admin = client.admin(broker.address)
    consumer = client.consumer(broker.address, group=name)
    consumer.subscribe([name])
    reader = Patient(consumer)
    eventually(lambda: not reader.poll() and name in admin.topics(), "a topic made by a reader")
    assert admin.topics()[name] == 7
    eventually(lambda: not reader.poll() and len(consumer.assignment()) == 7, "all its partitions")
    consumer.close()
    admin.close()


@with_clients()
def test_topics_survive_a_kill(start_broker: StartBroker, client: Client, name: str) -> None:
    broker = start_broker()
    admin = client.admin(broker.address)
    admin.create(name, partitions=4, configs={"retention.ms": "5000"})
    admin.create(f"{name}-gone", partitions=1)
    admin.add_partitions(name, 6)
    admin.alter(name, {"retention.ms": "6000"})
    admin.delete(f"{name}-gone")
    admin.close()
    broker.kill_and_restart()
    admin = client.admin(broker.address)
    assert admin.topics()[name] == 6
    assert f"{name}-gone" not in admin.topics()
    assert admin.configs(name)["retention.ms"] == "6000"
    admin.close()


# What only confluent-kafka's admin client asks.


def test_settings_are_changed_one_by_one(broker: BrokerProcess, name: str) -> None:
    admin = Confluent().admin(broker.address)
    admin.create(name, partitions=1, configs={"retention.ms": "1000", "flush.ms": "50"})

    def change(setting: str, operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry(setting, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        (future,) = admin.raw.incremental_alter_configs([resource]).values()
        future.result(HANG_S)

    change("cleanup.policy", AlterConfigOpType.APPEND, "compact")
    assert set((admin.configs(name)["cleanup.policy"] or "").split(",")) == {"delete", "compact"}
    change("cleanup.policy", AlterConfigOpType.SUBTRACT, "delete")
    assert admin.configs(name)["cleanup.policy"] == "compact"
    change("retention.ms", AlterConfigOpType.DELETE, None)
    assert admin.configs(name)["retention.ms"] == str(7 * 24 * 3600 * 1000)
    assert admin.configs(name)["flush.ms"] == "50"


def test_checks_alone_change_nothing(broker: BrokerProcess, name: str) -> None:
    admin = Confluent().admin(broker.address)
    new = NewTopic(name, 3, 1)
    (future,) = admin.raw.create_topics([new], validate_only=True).values()
    future.result(HANG_S)
    assert name not in admin.topics()
    admin.create(name, partitions=1)
    more = NewPartitions(name, 4)
    (widened,) = admin.raw.create_partitions([more], validate_only=True).values()
    widened.result(HANG_S)
    assert admin.topics()[name] == 1


def test_offsets_are_listed_by_every_specification(broker: BrokerProcess, name: str) -> None:
    client = Confluent()
    admin = client.admin(broker.address)
    times = [100, 300, 200]
    produce(
        client,
        broker.address,
        [Message(name, b"value", timestamp_ms=TIME_MS + time) for time in times],
    )

    specs: Any = OffsetSpec

    def listed(spec: OffsetSpec) -> int:
        (future,) = admin.raw.list_offsets({TopicPartition(name, 0): spec}).values()
        return int(future.result(HANG_S).offset)

    assert listed(specs.earliest()) == 0
    assert listed(specs.latest()) == 3
    assert listed(specs.max_timestamp()) == 1
    assert listed(specs.for_timestamp(TIME_MS + 101)) == 1
    assert listed(specs.for_timestamp(TIME_MS + 301)) == -1


def test_topics_and_cluster_are_described(broker: BrokerProcess, name: str) -> None:
    admin = Confluent().admin(broker.address)
    admin.create(name, partitions=2)
    (future,) = admin.raw.describe_topics(TopicCollection([name])).values()
    topic = future.result(HANG_S)
    assert topic.name == name
    assert not topic.is_internal
    partitions: list[TopicPartitionInfo] = topic.partitions
    assert [(each.id, each.leader.id, len(each.replicas)) for each in partitions] == [
        (0, 0, 1),
        (1, 0, 1),
    ]
    cluster = admin.raw.describe_cluster(request_timeout=HANG_S).result()
    assert cluster.cluster_id
    assert cluster.controller.id == 0
    (future,) = admin.raw.describe_configs([ConfigResource(ResourceType.BROKER, "0")]).values()
    assert future.result(HANG_S)


def test_offsets_of_an_empty_group_are_altered(broker: BrokerProcess, name: str) -> None:
    client = Confluent()
    produce(client, broker.address, numbered(name, 10))
    admin = client.admin(broker.address)
    wanted = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 6)])
    (future,) = admin.raw.alter_consumer_group_offsets([wanted]).values()
    future.result(HANG_S)
    assert admin.group_offsets(name) == {(name, 0): 6}
    member = client.consumer(broker.address, group=name)
    member.subscribe([name])
    assert read(member, 4)[0].offset == 6
    member.close()
    asked = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0)])
    (found,) = admin.raw.list_consumer_group_offsets([asked]).values()
    assert [each.offset for each in found.result(HANG_S).topic_partitions] == [6]


def test_retention_waits_for_the_groups_that_a_topic_names(
    start_broker: StartBroker, name: str
) -> None:
    """Names and bounds are settings like others; the offset that counts is the committed one."""
    broker = start_broker("[storage]\nlog.retention.check.interval.ms = 50")
    admin = Confluent().admin(broker.address)
    hold = {
        "millstream.retention.hold.groups": "loader,billing",
        "millstream.retention.hold.max.ms": "-1",
    }
    small = {"segment.bytes": "1", "retention.bytes": "0", "retention.ms": "-1"}
    admin.create(name, partitions=1, configs={**hold, **small})
    described = admin.configs(name)
    assert set((described["millstream.retention.hold.groups"] or "").split(",")) == {
        "loader",
        "billing",
    }
    assert described["millstream.retention.hold.max.bytes"] == str(10 * 1024**3)
    with pytest.raises(Refused) as refused:
        admin.alter(name, {"millstream.retention.hold.max.bytes": "-1"})
    assert refused.value.code == INVALID_CONFIG
    for number in range(10):
        produce(Confluent(), broker.address, numbered(name, 10)[number : number + 1])
    place = (name, 0)
    for group, offset in (("loader", 7), ("billing", 3)):
        committer = Confluent().consumer(broker.address, group=group)
        committer.commit({place: Committed(offset)})
        committer.close()
    reader = Confluent().consumer(broker.address)
    eventually(lambda: reader.bounds(place)[0] == 3, "what both have read is gone")
    assert [m.value for m in read_all(Confluent(), broker.address, {place: 3})] == [
        b"%d" % number for number in range(3, 10)
    ]
    admin.alter(name, {"millstream.retention.hold.groups": ""})
    eventually(lambda: reader.bounds(place)[0] == 9, "nobody holds it back")
    reader.close()
    admin.close()
    lost = [line for line in broker.complaints() if "has not read" in line]
    assert "deletes offsets 3 to 8, which group 'billing' has not read" in "".join(lost)
    assert "deletes offsets 7 to 8, which group 'loader' has not read" in "".join(lost)
