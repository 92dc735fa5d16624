"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, on a coordinator whose disk is in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, cast

import pytest

from millstream.broker.broker import Broker
from millstream.broker.group_topics import GroupTopics
from millstream.broker.groups import GroupCoordinator
from millstream.broker.pipelines import Pipelines
from millstream.broker.producer_ids import ProducerIds
from millstream.broker.reading import Reader
from millstream.broker.sending import Sender
from millstream.broker.subscriptions import Subscriptions
from millstream.broker.transactions import TransactionCoordinator
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.handlers import consumer_group_describe, consumer_group_heartbeat
from millstream.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from millstream.settings.loader import Settings
from millstream.settings.names import OFFSETS_TOPIC
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.topic_host import TopicHost

Scene = Callable[["Door"], Coroutine[Any, Any, None]]


class Door:
    def __init__(self, host: TopicHost) -> None:
        self.host = host
        ids = count(1)
        settings = Settings()
        groups = GroupCoordinator(
            host.topics.state_log(OFFSETS_TOPIC),
            settings=settings.groups,
            clock=host.clock,
            topics=GroupTopics(host.topics).view,
            new_member_id=lambda _: f"made-{next(ids)}",
        )
        groups.replay()
        self.broker = Broker(
            topics=host.topics,
            groups=groups,
            transactions=cast(TransactionCoordinator, None),
            subscriptions=cast(Subscriptions, None),
            pipelines=cast(Pipelines, None),
            producer_ids=ProducerIds(host.topics.allocate_producer_ids),
            sender=Sender(host.topics, host.flusher, clock=host.clock),
            reader=Reader(max_unpacked_bytes=1 << 20),
            flusher=host.flusher,
            clock=host.clock,
            settings=settings,
        )

    def context(self, version: int = 1) -> Context:
        return Context(
            broker=self.broker,
            version=version,
            client_id="client",
            client_host="/127.0.0.1",
            connection=1,
            advertised=("127.0.0.1", 9092),
        )

    async def beat(
        self, member_id: str, epoch: int, *, version: int = 1, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, **fields
        )
        return await consumer_group_heartbeat.handle(request, self.context(version))

    async def join(
        self, member_id: str, *, version: int = 1, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        given = {
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **fields,
        }
        return await self.beat(member_id, 0, version=version, **given)

    async def describe(self, group_id: str) -> DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        response = await consumer_group_describe.handle(request, self.context())
        [group] = response.groups
        return group


def play(scene: Scene, filesystem: FakeFilesystem | None = None) -> None:
    async def run() -> None:
        host = TopicHost(filesystem or FakeFilesystem())
        await host.start()
        if "t" not in host.shape():
            await host.topics.create("t", partitions=2, overrides={})
        door = Door(host)
        try:
            await scene(door)
        finally:
            door.broker.groups.close()
            host.close()

    asyncio.run(run())


def test_member_joins_goes_on_and_is_described() -> None:
    async def scene(door: Door) -> None:
        topic_id = door.host.topics.get("t").topic_id
        reply = await door.join("m1", instance_id="i1", rack_id="r1")
        assert (reply.error_code, reply.member_id, reply.member_epoch) == (0, "m1", 1)
        assert reply.heartbeat_interval_ms == 5000
        assert reply.assignment is not None
        assert list(reply.assignment.topic_partitions) == [
            TopicPartitions(topic_id=topic_id, partitions=[0, 1])
        ]
        quiet = await door.beat("m1", 1, instance_id="i1")
        assert (quiet.error_code, quiet.assignment) == (0, None)

        group = await door.describe("g")
        assert (group.error_code, group.group_state, group.assignor_name) == (
            0,
            "Stable",
            "uniform",
        )
        assert (group.group_epoch, group.assignment_epoch) == (1, 1)
        [member] = group.members
        assert (member.member_id, member.instance_id, member.rack_id) == ("m1", "i1", "r1")
        assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
        assert (member.member_epoch, member.member_type) == (1, 1)
        assert list(member.subscribed_topic_names) == ["t"]
        assert member.assignment == member.target_assignment
        [part] = member.assignment.topic_partitions
        assert (part.topic_id, part.topic_name, list(part.partitions)) == (topic_id, "t", [0, 1])

    play(scene)


def test_group_is_the_same_after_a_restart() -> None:
    filesystem = FakeFilesystem()

    async def first(door: Door) -> None:
        await door.join("m1")

    async def second(door: Door) -> None:
        reply = await door.beat("m1", 1)
        assert (reply.error_code, reply.member_epoch, reply.assignment) == (0, 1, None)

    play(first, filesystem)
    play(second, filesystem)


def test_only_the_oldest_version_leaves_the_id_to_the_broker() -> None:
    async def scene(door: Door) -> None:
        assert (await door.join("", version=0)).member_id == "made-1"
        refused = await door.join("", version=1)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message

    play(scene)


@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (0, {"server_assignor": "rack"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (0, {"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (0, {"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (7, {"member_id": "m2"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (7, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        (0, {"member_id": "m2", "instance_id": "i1"}, ErrorCode.UNRELEASED_INSTANCE_ID),
        (1, {"member_id": "m2", "instance_id": "i1"}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_errors_have_their_codes(epoch: int, fields: dict[str, Any], code: int) -> None:
    async def scene(door: Door) -> None:
        await door.join("m1", instance_id="i1")
        given = {"member_id": "m1", "instance_id": "i1", **fields}
        if given["member_id"] == "m2" and epoch == 7:
            del given["instance_id"]
        member_id = given.pop("member_id")
        if epoch == 0:
            reply = await door.join(member_id, **given)
        else:
            reply = await door.beat(member_id, epoch, **given)
        assert reply.error_code == code

    play(scene)


def test_groups_that_are_not_there_are_said_to_be_unknown() -> None:
    async def scene(door: Door) -> None:
        group = await door.describe("other")
        assert (group.group_id, group.error_code) == ("other", ErrorCode.GROUP_ID_NOT_FOUND)

    play(scene)


def test_partitions_of_a_deleted_topic_are_described_without_its_name() -> None:
    async def scene(door: Door) -> None:
        await door.join("m1")
        await door.host.topics.delete("t")
        [member] = (await door.describe("g")).members
        assert [part.topic_name for part in member.assignment.topic_partitions] == [""]

    play(scene)
