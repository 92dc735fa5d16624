"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, on a coordinator whose disk is in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

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
from tests.fakes.admin_desk import AdminDesk
from tests.fakes.fake_filesystem import FakeFilesystem

Scene = Callable[["Door"], Coroutine[Any, Any, None]]


class Door(AdminDesk):
    """Members of a group, and a broker."""

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
        response = await consumer_group_describe.handle(request, self.context(1))
        [group] = response.groups
        return group


def play(scene: Scene, filesystem: FakeFilesystem | None = None) -> None:
    async def run() -> None:
        door = await Door(filesystem, first_id=100 if filesystem else 1).start()
        if "t" not in door.shape():
            await door.topics.create("t", partitions=2, overrides={})
        try:
            await scene(door)
        finally:
            await door.stop()

    asyncio.run(run())


def test_member_joins_goes_on_and_is_described() -> None:
    async def scene(door: Door) -> None:
        topic_id = door.topics.get("t").topic_id
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
        assert (await door.join("", version=0)).member_id == "-1"
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
        await door.topics.delete("t")
        [member] = (await door.describe("g")).members
        assert [part.topic_name for part in member.assignment.topic_partitions] == [""]

    play(scene)
