"""The handlers of classic groups and offsets, in every version, with requests as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import pytest

from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.protocol.messages.join_group import JoinGroupRequestProtocol
from millstream.protocol.messages.leave_group import MemberIdentity
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from millstream.protocol.messages.sync_group import SyncGroupRequestAssignment
from millstream.settings.groups import GroupSettings
from tests.fakes.admin_desk import AdminDesk


class Door(AdminDesk):
    """Members of a group, and a broker."""

    async def call(self, api: ModuleType, version: int = -1, **fields: Any) -> Any:
        """The response to a request, both by way of their bytes."""
        return await self.handle(api, api.REQUEST(**fields), None if version < 0 else version)

    async def join(self, version: int = 3, **fields: Any) -> Any:
        return await self.call(
            join_group,
            version,
            **{
                "group_id": "g",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 20_000,
                "protocol_type": "consumer",
                "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"m")],
                **fields,
            },
        )

    async def stable(self) -> str:
        """A stable group of one member; returns its id."""
        joined = await self.join()
        await self.call(
            sync_group,
            group_id="g",
            generation_id=1,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"part")
            ],
        )
        member_id: str = joined.member_id
        return member_id

    async def commit(self, version: int = 9, **fields: Any) -> list[int]:
        """Commits offset 7 in two partitions, the second of which does not exist."""
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=7, committed_metadata="note"
            )
            for number in (0, 5)
        ]
        answer = await self.call(
            offset_commit,
            version,
            **{
                "group_id": "g",
                "topics": [OffsetCommitRequestTopic(name="t", partitions=partitions)],
                **fields,
            },
        )
        [topic] = answer.topics
        return [partition.error_code for partition in topic.partitions]


def play(scene: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        door = await Door(groups=GroupSettings(initial_rebalance_delay_ms=0)).start()
        await door.topics.create("t", partitions=2, overrides={})
        try:
            await scene(door)
        finally:
            await door.stop()

    asyncio.run(run())


def versions(api: ModuleType) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", range(api.VERSIONS[0], api.VERSIONS[1] + 1))


@versions(find_coordinator)
def test_coordinator_of_everything_is_this_broker(version: int) -> None:
    async def scene(door: Door) -> None:
        for key_type in (0, 1) if version else (0,):
            answer = await door.call(
                find_coordinator, version, key="g", coordinator_keys=["g"], key_type=key_type
            )
            found = answer.coordinators[0] if version >= 4 else answer
            assert (found.error_code, found.node_id, found.host, found.port) == (
                0,
                0,
                "broker.test",
                9092,
            )

    play(scene)


@pytest.mark.parametrize("version", [1, 4, 6])
def test_coordinator_of_another_kind_is_refused(version: int) -> None:
    async def scene(door: Door) -> None:
        answer = await door.call(
            find_coordinator, version, key="s", coordinator_keys=["s"], key_type=2
        )
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)

    play(scene)


@versions(join_group)
def test_member_joins(version: int) -> None:
    async def scene(door: Door) -> None:
        joined = await door.join(version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            joined = await door.join(version, member_id=joined.member_id)
        assert (joined.error_code, joined.generation_id) == (0, 1)
        assert joined.protocol_name == "range"
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        assert joined.leader == joined.member_id == "client-1"
        assert [(m.member_id, m.metadata) for m in joined.members] == [("client-1", b"m")]

    play(scene)


@versions(join_group)
def test_join_that_is_refused_says_why(version: int) -> None:
    async def scene(door: Door) -> None:
        for fields, code in (
            ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
            ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
            ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ):
            refused = await door.join(version, **fields)
            assert (refused.error_code, refused.generation_id) == (code, -1)

    play(scene)


@versions(sync_group)
def test_member_gets_its_assignment(version: int) -> None:
    async def scene(door: Door) -> None:
        member_id = await door.stable()
        fields = {"group_id": "g", "member_id": member_id}
        synced = await door.call(sync_group, version, generation_id=1, **fields)
        assert (synced.error_code, synced.assignment) == (0, b"part")
        refused = await door.call(sync_group, version, generation_id=9, **fields)
        assert refused.error_code == ErrorCode.ILLEGAL_GENERATION

    play(scene)


@versions(heartbeat)
def test_member_heartbeats(version: int) -> None:
    async def scene(door: Door) -> None:
        member_id = await door.stable()
        codes = [
            (
                await door.call(
                    heartbeat, version, group_id="g", member_id=name, generation_id=generation
                )
            ).error_code
            for name, generation in ((member_id, 1), (member_id, 2), ("who", 1))
        ]
        assert codes == [0, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]

    play(scene)


@versions(leave_group)
def test_member_leaves(version: int) -> None:
    async def scene(door: Door) -> None:
        member_id = await door.stable()
        codes = []
        for name in ("who", member_id):
            members = [MemberIdentity(member_id=name, reason="done")]
            left = await door.call(
                leave_group, version, group_id="g", member_id=name, members=members
            )
            codes.append(left.members[0].error_code if version >= 3 else left.error_code)
        assert codes == [ErrorCode.UNKNOWN_MEMBER_ID, 0]
        assert door.broker.groups.describe("g").state == "Empty"

    play(scene)


@versions(offset_commit)
def test_simple_consumer_commits_to_partitions_that_exist(version: int) -> None:
    async def scene(door: Door) -> None:
        assert await door.commit(version) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    play(scene)


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_commit_to_a_group_that_is_gone_is_refused_as_the_version_has_it(
    version: int, code: int
) -> None:
    async def scene(door: Door) -> None:
        fields = {"member_id": "m", "generation_id_or_member_epoch": 4}
        assert await door.commit(version, **fields) == [code, code]

    play(scene)


@versions(offset_fetch)
def test_offsets_are_fetched(version: int) -> None:
    async def scene(door: Door) -> None:
        await door.commit()
        if version >= 8:
            topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
            wanted = [
                OffsetFetchRequestGroup(group_id="g", topics=topics),
                OffsetFetchRequestGroup(group_id="none", topics=topics),
                OffsetFetchRequestGroup(group_id="g", topics=None),
            ]
            answer = await door.call(offset_fetch, version, groups=wanted)
            first, other, everything = answer.groups
            assert other.topics[0].partitions[0].committed_offset == -1
            assert len(everything.topics[0].partitions) == 1
            assert {group.error_code for group in answer.groups} == {0}
        else:
            old = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            first = await door.call(offset_fetch, version, group_id="g", topics=old)
            assert first.error_code == 0
        [topic] = first.topics
        assert [
            (p.partition_index, p.committed_offset, p.metadata, p.error_code)
            for p in topic.partitions
        ] == [(0, 7, "note", 0), (1, -1, "", 0)]

    play(scene)


@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize("version", [7, 8, 9])
def test_offset_that_a_transaction_may_change_is_unstable_to_those_who_ask(
    version: int, *, is_asked: bool
) -> None:
    async def scene(door: Door) -> None:
        await door.commit()
        offsets = [OffsetToCommit("t", 0, 9, -1, "")]
        await door.broker.groups.commit_in_transaction(
            "g", Committer("", None, -1), offsets, producer_id=1, producer_epoch=0
        )
        if version >= 8:
            topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
            wanted = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
            whole = await door.call(offset_fetch, version, groups=wanted, require_stable=is_asked)
            [answer] = whole.groups
        else:
            old = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            answer = await door.call(
                offset_fetch, version, group_id="g", topics=old, require_stable=is_asked
            )
        assert answer.error_code == 0
        [topic] = answer.topics
        found = [(p.partition_index, p.committed_offset, p.error_code) for p in topic.partitions]
        unstable = (0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert found == [unstable if is_asked else (0, 7, 0), (1, -1, 0)]

    play(scene)


@pytest.mark.parametrize("version", [2, 7])
def test_all_offsets_are_fetched_for_null(version: int) -> None:
    async def scene(door: Door) -> None:
        await door.commit()
        answer = await door.call(offset_fetch, version, group_id="g", topics=None)
        [topic] = answer.topics
        assert [p.partition_index for p in topic.partitions] == [0]

    play(scene)


@versions(describe_groups)
def test_groups_are_described(version: int) -> None:
    async def scene(door: Door) -> None:
        member_id = await door.stable()
        answer = await door.call(
            describe_groups, version, groups=["g", "none"], include_authorized_operations=True
        )
        group, unknown = answer.groups
        assert (group.error_code, group.group_state) == (0, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        [member] = group.members
        assert (member.member_id, member.client_id) == (member_id, "client")
        assert (member.member_metadata, member.member_assignment) == (b"m", b"part")
        assert (unknown.error_code, unknown.group_state) == (69 if version >= 6 else 0, "Dead")
        if version >= 3:
            assert group.authorized_operations > 0

    play(scene)


@versions(list_groups)
def test_groups_are_listed(version: int) -> None:
    async def scene(door: Door) -> None:
        await door.stable()
        await door.commit(group_id="simple")
        listed = await door.call(list_groups, version)
        assert [(g.group_id, g.protocol_type) for g in listed.groups] == [
            ("g", "consumer"),
            ("simple", ""),
        ]
        if version >= 4:
            listed = await door.call(list_groups, version, states_filter=["Empty"])
            assert [g.group_id for g in listed.groups] == ["simple"]
        if version >= 5:
            assert listed.groups[0].group_type == "classic"
            listed = await door.call(list_groups, version, types_filter=["consumer"])
            assert list(listed.groups) == []

    play(scene)


@versions(delete_groups)
def test_groups_are_deleted(version: int) -> None:
    async def scene(door: Door) -> None:
        await door.stable()
        await door.commit(group_id="simple")
        names = ["g", "simple", "none"]
        answer = await door.call(delete_groups, version, groups_names=names)
        assert [(r.group_id, r.error_code) for r in answer.results] == [
            ("g", ErrorCode.NON_EMPTY_GROUP),
            ("simple", 0),
            ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ]

    play(scene)


def test_offsets_are_deleted() -> None:
    async def scene(door: Door) -> None:
        await door.commit()
        partitions = [OffsetDeleteRequestPartition(partition_index=n) for n in (0, 1)]
        topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
        answer = await door.call(offset_delete, group_id="g", topics=topics)
        assert answer.error_code == 0
        assert [p.error_code for p in answer.topics[0].partitions] == [0, 0]
        answer = await door.call(offset_delete, group_id="g", topics=topics)
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    play(scene)


def test_static_member_is_named_and_taken_over() -> None:
    async def scene(door: Door) -> None:
        first = await door.join(9, group_instance_id="one")
        assert (first.error_code, first.member_id) == (0, "one-1")
        assert first.members[0].group_instance_id == "one"
        second = await door.join(9, group_instance_id="one")
        assert (second.error_code, second.member_id) == (0, "one-2")
        fenced = await door.call(
            heartbeat, group_id="g", member_id="one-1", group_instance_id="one", generation_id=1
        )
        assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID

    play(scene)
