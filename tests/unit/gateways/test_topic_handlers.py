"""Handlers that create, show and delete topics, asked and answered in the bytes of each version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from millstream.gateways.kafka.handlers import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    elect_leaders,
    metadata,
)
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from millstream.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millstream.protocol.messages.describe_cluster import DescribeClusterRequest
from millstream.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from millstream.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from millstream.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.protocol.notation import NO_UUID
from millstream.settings.topics import TopicSettings
from tests.fakes.admin_desk import AdminDesk, versions_of

NOT_ASKED = -(2**31)
OWN = ("__consumer_offsets", "__transaction_state", "__subscriptions")


@pytest.fixture
def desk() -> AdminDesk:
    return AdminDesk()


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    configs: dict[str, str | None] | None = None,
    assignments: Sequence[CreatableReplicaAssignment] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=n, value=v) for n, v in (configs or {}).items()],
    )


def create(desk: AdminDesk, *topics: CreatableTopic, **options: Any) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, **options)
    return list(desk.ask(create_topics, request).topics)


def metadata_of(desk: AdminDesk, *names: str, version: int = 12, **options: Any) -> Any:
    asked = [MetadataRequestTopic(name=name) for name in names]
    return desk.ask(metadata, MetadataRequest(topics=asked, **options), version)


# --- Metadata


@pytest.mark.parametrize("version", versions_of(metadata))
def test_metadata_shows_the_broker_and_all_topics(desk: AdminDesk, version: int) -> None:
    [made] = create(desk, topic("orders", 2))
    nothing = () if version == 0 else None
    answer = desk.ask(metadata, MetadataRequest(topics=nothing), version)
    [broker] = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (0, "broker.test", 9092)
    shown = {each.name: each for each in answer.topics}
    assert set(shown) == {"orders", *OWN}
    orders = shown["orders"]
    assert orders.error_code == 0
    assert [(p.partition_index, p.leader_id) for p in orders.partitions] == [(0, 0), (1, 0)]
    assert [list(p.isr_nodes) for p in orders.partitions] == [[0], [0]]
    if version >= 1:
        assert answer.controller_id == 0
        assert [shown[n].is_internal for n in ("orders", "__consumer_offsets")] == [False, True]
    if version >= 2:
        assert answer.cluster_id == desk.topics.cluster_id
    if version >= 7:
        assert [p.leader_epoch for p in orders.partitions] == [0, 0]
    if version >= 8:
        assert orders.topic_authorized_operations == NOT_ASKED
    if version >= 10:
        assert orders.topic_id == made.topic_id != NO_UUID


def test_metadata_of_no_topics_is_that_of_the_broker(desk: AdminDesk) -> None:
    assert len(metadata_of(desk, version=1).brokers) == 1
    assert metadata_of(desk, version=1).topics == []


@pytest.mark.parametrize("version", versions_of(metadata))
def test_topic_is_created_by_who_first_asks_for_it(version: int) -> None:
    desk = AdminDesk(topics=TopicSettings(num_partitions=3))
    [answer] = metadata_of(desk, "orders", version=version).topics
    assert (answer.error_code, len(answer.partitions)) == (0, 3)
    assert len(desk.topics.get("orders").partitions) == 3


def test_topic_is_not_created_when_client_or_broker_will_not_have_it(desk: AdminDesk) -> None:
    strict = AdminDesk(topics=TopicSettings(auto_create=False))
    for asked, options in ((desk, {"allow_auto_topic_creation": False}), (strict, {})):
        [answer] = metadata_of(asked, "orders", **options).topics
        assert (answer.name, answer.error_code) == ("orders", 3)
        assert asked.shape() == {}


@pytest.mark.parametrize("may_create", [True, False])
def test_metadata_of_a_name_that_is_none_is_refused(desk: AdminDesk, may_create: bool) -> None:
    answer = metadata_of(desk, "a b", "", allow_auto_topic_creation=may_create)
    assert [each.error_code for each in answer.topics] == [17, 17]
    [internal] = metadata_of(desk, "__catalog").topics
    assert internal.error_code == 17


def test_metadata_by_id(desk: AdminDesk) -> None:
    [made] = create(desk, topic("orders"))
    unknown = b"x" * 16
    asked = [MetadataRequestTopic(topic_id=made.topic_id), MetadataRequestTopic(topic_id=unknown)]
    found, missing = desk.ask(metadata, MetadataRequest(topics=asked), 12).topics
    assert (found.name, found.error_code) == ("orders", 0)
    assert (missing.name, missing.error_code, missing.topic_id) == (None, 100, unknown)


def test_metadata_by_id_takes_no_notice_of_an_empty_name(desk: AdminDesk) -> None:
    [made] = create(desk, topic("orders"))
    asked = [MetadataRequestTopic(topic_id=made.topic_id, name="")]
    [found] = desk.ask(metadata, MetadataRequest(topics=asked), 12).topics
    assert (found.name, found.error_code) == ("orders", 0)


def test_metadata_answers_each_topic_once_and_in_order(desk: AdminDesk) -> None:
    create(desk, topic("b"))
    answer = metadata_of(desk, "c", "b", "a", "c", "b")
    assert [each.name for each in answer.topics] == ["c", "b", "a"]


def test_metadata_tells_what_is_allowed_when_asked(desk: AdminDesk) -> None:
    answer = metadata_of(
        desk,
        "orders",
        version=8,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert answer.cluster_authorized_operations == 0x1FA0
    assert answer.topics[0].topic_authorized_operations == 0xDF8


# --- CreateTopics


@pytest.mark.parametrize("version", versions_of(create_topics))
def test_topic_is_created_with_its_settings(desk: AdminDesk, version: int) -> None:
    request = CreateTopicsRequest(topics=[topic("orders", 2, configs={"retention.ms": "5"})])
    [answer] = desk.ask(create_topics, request, version).topics
    assert (answer.name, answer.error_code, answer.error_message) == ("orders", 0, None)
    assert desk.shape() == {"orders": (2, {"retention.ms": "5"})}
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (2, 1)
        configs = {each.name: each for each in answer.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert configs["segment.bytes"].config_source == 5
    if version >= 7:
        assert answer.topic_id == desk.topics.get("orders").topic_id


def test_what_is_left_to_the_broker_is_its_default() -> None:
    desk = AdminDesk(topics=TopicSettings(num_partitions=4))
    checked, *_ = create(desk, topic("orders", -1, -1), validate_only=True)
    assert (checked.error_code, checked.num_partitions, checked.topic_id) == (0, 4, NO_UUID)
    assert desk.shape() == {}
    create(desk, topic("orders", -1, -1))
    assert desk.shape() == {"orders": (4, {})}


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("a b"), 17),
        (topic("__transaction_state"), 17),
        (topic("taken"), 36),
        (topic("or.ders", 0), 37),
        (topic("orders", -2), 37),
        (topic("orders", 1, 2), 38),
        (topic("orders", 1, 0), 38),
        (topic("orders", configs={"x": "y"}), 40),
        (topic("orders", configs={"retention.ms": None}), 40),
        (topic("orders", configs={"compression.type": "brotli"}), 40),
    ],
)
def test_creation_that_cannot_be_is_refused(
    desk: AdminDesk, asked: CreatableTopic, code: int, validate_only: bool
) -> None:
    create(desk, topic("taken"))
    [answer] = create(desk, asked, validate_only=validate_only)
    assert (answer.name, answer.error_code) == (asked.name, code)
    assert answer.error_message
    assert list(desk.shape()) == ["taken"]


def assigned(*brokers: list[int]) -> list[CreatableReplicaAssignment]:
    return [
        CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
        for number, ids in enumerate(brokers)
    ]


def test_partitions_may_be_assigned_by_hand_to_the_one_broker(desk: AdminDesk) -> None:
    [answer] = create(desk, topic("orders", -1, -1, assignments=assigned([0], [0], [0])))
    assert answer.error_code == 0
    assert desk.shape() == {"orders": (3, {})}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("orders", -1, -1, assignments=assigned([0], [1])), 39),
        (topic("orders", -1, -1, assignments=assigned([0, 1])), 39),
        (topic("orders", -1, -1, assignments=assigned([])), 39),
        (topic("orders", -1, -1, assignments=assigned([0], [0])[1:]), 39),
        (topic("orders", 1, -1, assignments=assigned([0])), 42),
        (topic("orders", -1, 1, assignments=assigned([0])), 42),
    ],
)
def test_assignment_that_cannot_be_is_refused(
    desk: AdminDesk, asked: CreatableTopic, code: int
) -> None:
    assert [each.error_code for each in create(desk, asked)] == [code]


def test_topic_that_is_named_twice_is_refused_and_others_are_created(desk: AdminDesk) -> None:
    answers = create(desk, topic("twice"), topic("once"), topic("twice", 3))
    assert [(each.name, each.error_code) for each in answers] == [("twice", 42), ("once", 0)]
    assert list(desk.shape()) == ["once"]


# --- DeleteTopics


@pytest.mark.parametrize("version", versions_of(delete_topics))
def test_topics_are_deleted_by_name(desk: AdminDesk, version: int) -> None:
    create(desk, topic("a"), topic("b"))
    names = ["a", "nope", "__consumer_offsets"]
    request = DeleteTopicsRequest(
        topic_names=names, topics=[DeleteTopicState(name=name) for name in names]
    )
    answers = desk.ask(delete_topics, request, version).responses
    assert [(e.name, e.error_code) for e in answers] == list(zip(names, [0, 3, 17], strict=True))
    assert list(desk.shape()) == ["b"]


def test_topics_are_deleted_by_id(desk: AdminDesk) -> None:
    [made] = create(desk, topic("a"))
    unknown = b"x" * 16
    asked = [
        DeleteTopicState(topic_id=made.topic_id),
        DeleteTopicState(topic_id=unknown),
        DeleteTopicState(name="a", topic_id=made.topic_id),
    ]
    answers = desk.ask(delete_topics, DeleteTopicsRequest(topics=asked), 6).responses
    assert [(e.name, e.topic_id, e.error_code) for e in answers] == [
        ("a", made.topic_id, 0),
        (None, unknown, 100),
        ("a", made.topic_id, 42),
    ]


def test_topic_to_be_deleted_twice_is_refused(desk: AdminDesk) -> None:
    create(desk, topic("a"))
    answers = desk.ask(delete_topics, DeleteTopicsRequest(topic_names=["a", "a"]), 5).responses
    assert [each.error_code for each in answers] == [42]
    assert list(desk.shape()) == ["a"]


def test_deletion_can_be_forbidden() -> None:
    desk = AdminDesk(topics=TopicSettings(delete_enable=False))
    create(desk, topic("a"))
    for version, code in ((2, 42), (3, 73)):
        request = DeleteTopicsRequest(topic_names=["a"])
        answers = desk.ask(delete_topics, request, version).responses
        assert [each.error_code for each in answers] == [code]


# --- CreatePartitions


def more(desk: AdminDesk, *asked: CreatePartitionsTopic, **options: Any) -> list[int]:
    request = CreatePartitionsRequest(topics=asked, **options)
    return [each.error_code for each in desk.ask(create_partitions, request).results]


@pytest.mark.parametrize("version", versions_of(create_partitions))
def test_topic_gets_more_partitions(desk: AdminDesk, version: int) -> None:
    create(desk, topic("a"))
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=3)])
    [answer] = desk.ask(create_partitions, request, version).results
    assert (answer.name, answer.error_code, answer.error_message) == ("a", 0, None)
    assert desk.shape() == {"a": (3, {})}


def test_partitions_that_cannot_be_added_are_refused(desk: AdminDesk) -> None:
    create(desk, topic("a", 2), topic("b"))
    only_here = [CreatePartitionsAssignment(broker_ids=[0])]
    elsewhere = [CreatePartitionsAssignment(broker_ids=[1])]
    for asked, code in (
        (CreatePartitionsTopic(name="nope", count=3), 3),
        (CreatePartitionsTopic(name="a", count=2), 37),
        (CreatePartitionsTopic(name="a", count=4, assignments=only_here), 39),
        (CreatePartitionsTopic(name="a", count=3, assignments=elsewhere), 39),
        (CreatePartitionsTopic(name="__consumer_offsets", count=3), 17),
    ):
        assert more(desk, asked) == [code]
    twice = CreatePartitionsTopic(name="a", count=4)
    assert more(desk, twice, CreatePartitionsTopic(name="b", count=2), twice) == [42, 0]
    assert more(desk, twice, validate_only=True) == [0]
    assert desk.shape() == {"a": (2, {}), "b": (2, {})}
    assert more(desk, CreatePartitionsTopic(name="a", count=3, assignments=only_here)) == [0]


# --- DescribeCluster, ElectLeaders, DescribeTopicPartitions


@pytest.mark.parametrize("version", versions_of(describe_cluster))
def test_cluster_is_the_one_broker(desk: AdminDesk, version: int) -> None:
    answer = desk.ask(describe_cluster, DescribeClusterRequest(), version)
    assert (answer.error_code, answer.controller_id) == (0, 0)
    assert answer.cluster_id == desk.topics.cluster_id
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(0, "broker.test", 9092)]
    assert answer.cluster_authorized_operations == NOT_ASKED
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert desk.ask(describe_cluster, asked, version).cluster_authorized_operations > 0


def test_controllers_are_not_to_be_had(desk: AdminDesk) -> None:
    for kind, code in ((2, 114), (3, 115)):
        answer = desk.ask(describe_cluster, DescribeClusterRequest(endpoint_type=kind), 1)
        assert answer.error_code == code


@pytest.mark.parametrize("version", versions_of(elect_leaders))
def test_no_election_is_needed(desk: AdminDesk, version: int) -> None:
    create(desk, topic("a", 2))
    asked = [
        TopicPartitions(topic="a", partitions=[0, 1, 2]),
        TopicPartitions(topic="nope", partitions=[0]),
    ]
    answer = desk.ask(elect_leaders, ElectLeadersRequest(topic_partitions=asked), version)
    codes = [
        (each.topic, [p.error_code for p in each.partition_result])
        for each in answer.replica_election_results
    ]
    assert codes == [("a", [84, 84, 3]), ("nope", [3])]
    everything = desk.ask(elect_leaders, ElectLeadersRequest(topic_partitions=None), version)
    assert everything.replica_election_results == []


def test_partitions_are_described_page_by_page(desk: AdminDesk) -> None:
    create(desk, topic("b", 3), topic("a", 2), topic("c", 1))
    cursor: Cursor | None = None
    pages = []
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in ("c", "b", "a", "b")],
            response_partition_limit=2,
            cursor=cursor,
        )
        answer = desk.ask(describe_topic_partitions, request)
        pages.append(
            [(each.name, [p.partition_index for p in each.partitions]) for each in answer.topics]
        )
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert pages == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]


def test_described_partition_has_lists_where_java_takes_no_null(desk: AdminDesk) -> None:
    create(desk, topic("orders"))
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")])
    [found] = desk.ask(describe_topic_partitions, request).topics
    [partition] = found.partitions
    assert list(partition.eligible_leader_replicas) == list(partition.last_known_elr) == []


def test_all_topics_are_described_when_none_is_named(desk: AdminDesk) -> None:
    [made] = create(desk, topic("a"))
    answer = desk.ask(describe_topic_partitions, DescribeTopicPartitionsRequest())
    shown = {each.name: each for each in answer.topics}
    assert set(shown) == {"a", *OWN}
    assert shown["a"].topic_id == made.topic_id
    assert answer.next_cursor is None
    [partition] = shown["a"].partitions
    assert (partition.leader_id, partition.leader_epoch) == (0, 0)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=n) for n in ("nope", "a b")])
    answer = desk.ask(describe_topic_partitions, request)
    assert [(e.name, e.error_code) for e in answer.topics] == [("a b", 17), ("nope", 3)]


def test_page_has_room_for_one_partition_at_least(desk: AdminDesk) -> None:
    create(desk, topic("a", 2))
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="a")], response_partition_limit=0
    )
    answer = desk.ask(describe_topic_partitions, request)
    assert [p.partition_index for p in answer.topics[0].partitions] == [0]


def test_many_clients_may_ask_for_a_new_topic_at_once(desk: AdminDesk) -> None:
    async def ask_all() -> list[Any]:
        await desk.started()
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        return await asyncio.gather(*(desk.handle(metadata, request, 12) for _ in range(10)))

    answers = asyncio.run(ask_all())
    assert {answer.topics[0].error_code for answer in answers} == {0}
    assert len({answer.topics[0].topic_id for answer in answers}) == 1
