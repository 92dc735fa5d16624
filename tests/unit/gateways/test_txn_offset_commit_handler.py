"""Offsets committed in transactions, through the door, in every version.

What is expected here is what Apache Kafka 4.3 answers to the same requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.handlers import txn_offset_commit
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from millstream.protocol.messages.sync_group import SyncGroupRequest
from millstream.settings.groups import GroupSettings
from millstream.settings.kafka import KafkaSettings
from millstream.settings.loader import Settings
from tests.fakes.open_door import OpenDoor, open_door, run
from tests.fakes.transactional_producer import Place, TransactionalProducer
from tests.fakes.wire_client import WireClient

FIRST, BEYOND = ("t", 0), ("t", 9)
ADDS = 5
VERSIONS = pytest.mark.parametrize("version", range(txn_offset_commit.VERSIONS[1] + 1))
KNOWS_MEMBERS = pytest.mark.parametrize("version", [3, 4, 5])

Scene = Callable[[OpenDoor, TransactionalProducer], Coroutine[Any, Any, None]]


def play(path: Path, scene: Scene) -> None:
    """A producer that has begun nothing yet."""
    settings = Settings(
        kafka=KafkaSettings(listener="127.0.0.1:0"),
        groups=GroupSettings(initial_rebalance_delay_ms=0),
    )

    async def main() -> None:
        async with open_door(path, settings) as opened:
            await opened.topic("t", partitions=2)
            producer = TransactionalProducer(await opened.connect())
            await producer.init()
            await producer.init()
            await scene(opened, producer)

    run(main())


async def committed(opened: OpenDoor, place: Place = FIRST) -> int:
    """The offset that the group has of a partition; -1 for none."""
    topic, number = place
    group = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[number])]
    )
    client = await opened.connect()
    answer = await client.ask(OffsetFetchRequest(groups=[group]), 9)
    [partition] = answer.groups[0].topics[0].partitions
    offset: int = partition.committed_offset
    return offset


async def joined(client: WireClient) -> str:
    """A member, the only one, of a stable group in generation 1."""
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    answer = await client.ask(join, 3)
    assert (answer.error_code, answer.generation_id) == (0, 1)
    member_id: str = answer.member_id
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id)
    assert (await client.ask(sync, 3)).error_code == 0
    return member_id


@VERSIONS
@pytest.mark.parametrize("commits", [True, False])
def test_offsets_are_kept_when_the_transaction_commits(
    version: int, commits: bool, tmp_path: Path
) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        if version < ADDS:
            assert await producer.add_offsets() == 0
        told = await producer.commit_offset(7, FIRST, BEYOND, ("none", 0), version=version)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert told == {FIRST: 0, BEYOND: unknown, ("none", 0): unknown}
        assert await committed(opened) == -1
        assert (await producer.end(committed=commits))[0] == 0
        assert await committed(opened) == (7 if commits else -1)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        *((version, ErrorCode.INVALID_TXN_STATE) for version in range(4)),
        (4, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_offsets_that_were_not_announced_are_refused(
    version: int, code: int, tmp_path: Path
) -> None:
    async def scene(_: OpenDoor, producer: TransactionalProducer) -> None:
        assert await producer.commit_offset(7, FIRST, version=version) == {FIRST: code}
        await producer.add(FIRST)
        assert await producer.commit_offset(7, FIRST, version=version) == {FIRST: code}

    play(tmp_path, scene)


@VERSIONS
def test_offsets_of_a_stranger_are_refused(version: int, tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        unknown, fenced = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_EPOCH
        for fields, code in (
            ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
            ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
            ({"transactional_id": "nobody"}, unknown),
            ({"producer_id": producer.producer_id + 40}, unknown),
            ({"producer_epoch": producer.epoch - 1}, fenced),
            ({"producer_epoch": producer.epoch + 1}, fenced),
        ):
            told = await producer.commit_offset(7, FIRST, BEYOND, version=version, **fields)
            assert told == {FIRST: code, BEYOND: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not opened.broker.transactions.registry.describe("tx").partitions

    play(tmp_path, scene)


@VERSIONS
def test_offsets_of_unknown_partitions_alone_begin_no_transaction(
    version: int, tmp_path: Path
) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        for producer_id in (producer.producer_id, 777):
            told = await producer.commit_offset(7, BEYOND, version=version, producer_id=producer_id)
            assert told == {BEYOND: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not opened.broker.transactions.registry.describe("tx").partitions

    play(tmp_path, scene)


@KNOWS_MEMBERS
def test_offsets_of_a_member_are_its_own_to_commit(version: int, tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        member_id = await joined(await opened.connect())
        await producer.add_offsets()

        async def code(**fields: Any) -> int:
            told = await producer.commit_offset(7, FIRST, version=version, **fields)
            return told[FIRST]

        assert await code(member_id="nobody", generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await code(member_id=member_id, generation_id=2) == ErrorCode.ILLEGAL_GENERATION
        assert await code(member_id=member_id, generation_id=1) == 0
        await producer.end()
        assert await committed(opened) == 7

    play(tmp_path, scene)


@KNOWS_MEMBERS
def test_member_of_a_group_that_is_not_there_is_of_no_generation(
    version: int, tmp_path: Path
) -> None:
    async def scene(_: OpenDoor, producer: TransactionalProducer) -> None:
        await producer.add_offsets()
        told = await producer.commit_offset(
            7, FIRST, version=version, group_id="fresh", member_id="nobody", generation_id=3
        )
        assert told == {FIRST: ErrorCode.ILLEGAL_GENERATION}

    play(tmp_path, scene)


@VERSIONS
def test_commit_that_names_no_member_is_taken_beside_members(version: int, tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        await joined(await opened.connect())
        await producer.add_offsets()
        # Before version 3 no producer could say which member it commits for (KIP-447).
        assert await producer.commit_offset(8, FIRST, version=version) == {FIRST: 0}
        await producer.end()
        assert await committed(opened) == 8

    play(tmp_path, scene)


def test_offsets_may_come_through_an_older_connection_than_the_rest(tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        newer = TransactionalProducer(await opened.connect())
        newer.producer_id, newer.epoch = producer.producer_id, producer.epoch
        assert await newer.add_offsets() == 0
        assert await producer.commit_offset(7, FIRST) == {FIRST: 0}
        assert (await newer.end())[0] == 0
        assert await committed(opened) == 7

    play(tmp_path, scene)


def test_offsets_through_a_connection_that_was_given_up_end_that_connection(
    tmp_path: Path,
) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        newer = TransactionalProducer(await opened.connect())
        newer.producer_id, newer.epoch = producer.producer_id, producer.epoch
        assert await newer.commit_offset(7, FIRST) == {FIRST: 0}
        with pytest.raises(asyncio.IncompleteReadError):
            await producer.commit_offset(5, FIRST)
        assert (await newer.end())[0] == 0
        assert await committed(opened) == 7

    play(tmp_path, scene)
