"""What groups may keep in memory: over the limit is refused, and what is known may stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from millstream.settings.groups import GroupSettings
from millstream.settings.kafka import KafkaSettings
from millstream.settings.loader import Settings
from tests.fakes.open_door import open_door, run


def _settings(**groups: Any) -> Settings:
    return Settings(
        kafka=KafkaSettings(listener="127.0.0.1:0"),
        groups=GroupSettings(initial_rebalance_delay_ms=0, **groups),
    )


def _join(group: str, size: int, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(size))],
    )


def _commit(group: str, metadata: str, partitions: int = 1) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=1, committed_metadata=metadata
                    )
                    for number in range(partitions)
                ],
            )
        ],
    )


def test_member_with_more_metadata_than_allowed_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, _settings(member_max_bytes=10_000)) as opened:
            client = await opened.connect()
            assert (await client.ask(_join("g", 8000), 2)).error_code != ErrorCode.INVALID_REQUEST
            refused = await client.ask(_join("h", 10_000), 2)
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            heartbeat = ConsumerGroupHeartbeatRequest(
                group_id="c",
                member_id="m",
                rebalance_timeout_ms=1000,
                subscribed_topic_names=["x" * 200] * 60,
                topic_partitions=[],
            )
            answer = await client.ask(heartbeat, 1)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert "millstream.group.member.max.bytes" in answer.error_message

    run(main())


def test_groups_that_would_take_more_than_all_may_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, _settings(groups_max_bytes=50_000)) as opened:
            first, second = await opened.connect(), await opened.connect()
            joined = await first.ask(_join("g", 30_000), 2)
            assert joined.error_code == 0
            refused = await second.ask(_join("h", 30_000), 2)
            assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
            assert refused.members == []
            # Who is in comes again with what it has.
            again = await first.ask(_join("g", 30_000, joined.member_id), 2)
            assert again.error_code == 0
            assert [each.group_id for each in opened.broker.groups.list()] == ["g"]

    run(main())


def test_assignment_larger_than_allowed_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, _settings(member_max_bytes=10_000)) as opened:
            client = await opened.connect()
            joined = await client.ask(_join("g", 100), 2)
            sync = SyncGroupRequest(
                group_id="g",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(20_000))
                ],
            )
            assert (await client.ask(sync, 2)).error_code == ErrorCode.INVALID_REQUEST

    run(main())


def test_offsets_that_would_take_more_than_all_may_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, _settings(groups_max_bytes=20_000)) as opened:
            await opened.topic("t", partitions=10)
            client = await opened.connect()
            codes = []
            for number in range(10):
                answer = await client.ask(_commit(f"g{number}", "x" * 3000), 7)
                codes.append(answer.topics[0].partitions[0].error_code)
            assert codes == [0] * 4 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 6
            # An offset that is known goes on, as long as it takes no more than before.
            answer = await client.ask(_commit("g0", "y" * 3000), 7)
            assert answer.topics[0].partitions[0].error_code == 0

    run(main())


def test_room_of_groups_that_are_gone_is_used_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, _settings(groups_max_bytes=20_000)) as opened:
            await opened.topic("t")
            client = await opened.connect()
            for number in range(30):
                answer = await client.ask(_commit(f"g{number}", "x" * 4000), 7)
                assert answer.topics[0].partitions[0].error_code == 0, number
                await opened.broker.groups.delete(f"g{number}")

    run(main())
