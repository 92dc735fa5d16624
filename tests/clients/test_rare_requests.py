"""What only one of the clients can ask."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.aiokafka_client import Aiokafka
from tests.clients.broker_process import BrokerProcess
from tests.clients.client_shape import Committed, Message, produce, read
from tests.clients.confluent_client import Confluent
from tests.clients.kafka_python_client import KafkaPython, KafkaPythonAdmin
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition as Place
    from kafka.admin import GroupState, MemberToRemove, OffsetSpec


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Any]:
    """kafka-python's, which asks for nearly everything that there is."""
    found = KafkaPythonAdmin(broker.address)
    yield found.raw
    found.close()


def fill(broker: BrokerProcess, topic: str, count: int = 10) -> None:
    produce(Confluent(), broker.address, [Message(topic, b"%d" % n) for n in range(count)])


def test_offsets_of_a_group_are_deleted_one_by_one(
    broker: BrokerProcess, admin: Any, name: str
) -> None:
    first, second = f"{name}-first", f"{name}-second"
    for topic in (first, second):
        fill(broker, topic)
    member = KafkaPython().consumer(broker.address, group=name)
    member.subscribe([first])
    read(member, 10)
    member.commit({(first, 0): Committed(5), (second, 0): Committed(6)})
    # Those of a topic that somebody reads are kept.
    answer = admin.delete_group_offsets(name, [Place(first, 0), Place(second, 0)])
    assert [answer[Place(topic, 0)].errno for topic in (first, second)] == [86, 0]
    assert member.committed((first, 0)) == Committed(5)
    assert member.committed((second, 0)) is None
    member.close()


def test_static_member_is_removed_by_its_name(broker: BrokerProcess, admin: Any, name: str) -> None:
    fill(broker, name)
    member = KafkaPython().consumer(broker.address, group=name, instance="kept")
    member.subscribe([name])
    read(member, 10)
    member.close()
    assert len(admin.describe_groups([name])[name]["members"]) == 1
    admin.remove_group_members(name, [MemberToRemove(group_instance_id="kept")])
    assert admin.describe_groups([name])[name]["members"] == []


def test_groups_are_listed_by_state(broker: BrokerProcess, admin: Any, name: str) -> None:
    fill(broker, name)
    member = KafkaPython().consumer(broker.address, group=name)
    member.subscribe([name])
    read(member, 10)

    def listed(state: Any) -> set[str]:
        return {each["group_id"] for each in admin.list_groups(states_filter=[state])}

    assert name in listed(GroupState.STABLE)
    assert name not in listed(GroupState.EMPTY)
    member.commit({(name, 0): Committed(10)})
    member.close()
    assert name in listed(GroupState.EMPTY)


def test_group_offsets_are_reset_to_either_end(
    broker: BrokerProcess, admin: Any, name: str
) -> None:
    fill(broker, name)
    for spec, offset in ((OffsetSpec.LATEST, 10), (OffsetSpec.EARLIEST, 0)):
        admin.reset_group_offsets(name, {Place(name, 0): spec})
        found = admin.list_group_offsets(name)[name]
        assert found[Place(name, 0)].offset == offset


def test_log_directories_tell_sizes(broker: BrokerProcess, admin: Any, name: str) -> None:
    fill(broker, name)
    (described,) = admin.describe_log_dirs()
    assert [directory["error_code"] for directory in described["log_dirs"]] == [0]
    topics = {
        topic["name"]: topic for directory in described["log_dirs"] for topic in directory["topics"]
    }
    (partition,) = topics[name]["partitions"]
    assert partition["partition_size"] > 0


def test_partitions_are_described_page_by_page(
    broker: BrokerProcess, admin: Any, name: str
) -> None:
    Confluent().admin(broker.address).create(name, partitions=5)
    seen: list[int] = []
    cursor = None
    while True:
        answer = admin.describe_topic_partitions([name], response_partition_limit=2, cursor=cursor)
        seen += [
            each["partition_index"] for topic in answer["topics"] for each in topic["partitions"]
        ]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_leaders_need_no_election(broker: BrokerProcess, name: str) -> None:
    fill(broker, name)
    raw: AdminClient = Confluent().admin(broker.address).raw
    answer = raw.elect_leaders(ElectionType.PREFERRED, [TopicPartition(name, 0)])
    ((_, error),) = answer.result(HANG_S).items()
    assert error is None or error.name() == "ELECTION_NOT_NEEDED"


def test_old_way_to_alter_settings_resets_what_is_not_named(
    broker: BrokerProcess, name: str
) -> None:
    admin = Aiokafka().admin(broker.address)
    admin.create(name, partitions=1, configs={"retention.ms": "1000", "flush.ms": "50"})
    admin.alter(name, {"retention.ms": "2000"})
    configs = admin.configs(name)
    assert (configs["retention.ms"], configs["flush.ms"]) == ("2000", "1000")
    admin.close()
