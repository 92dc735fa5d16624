"""Consumer-protocol groups in the coordinator: stored, restarted, moved, expired, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    NonEmptyGroup,
    RebalanceInProgress,
    StaleMember,
    SubscribedGroup,
    UnknownGroup,
    UnknownMember,
)
from millstream.groups.consumer_commands import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.groups.outcome import NO_TICKET
from millstream.protocol.codec import encode
from millstream.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from tests.fakes.group_home import GROUP, GroupHome, beat, join, stable
from tests.fakes.simulated_loop import run_simulated

WEEK_S = 7 * 86_400


def play(scene: Callable[[GroupHome], Awaitable[None]]) -> None:
    clock = ManualClock()

    async def run() -> None:
        home = await GroupHome(clock=clock).start()
        await scene(home)
        await home.stop()

    run_simulated(run(), clock)


async def consumer_beat(
    home: GroupHome, epoch: int, member_id: str = "m"
) -> ConsumerHeartbeatReply:
    is_joining = epoch == 0
    command = ConsumerHeartbeat(
        ticket=NO_TICKET,
        member_id=member_id,
        member_epoch=epoch,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=30_000 if is_joining else -1,
        topics=("t",) if is_joining else None,
        owned={} if is_joining else None,
    )
    return await home.groups.consumer_heartbeat(GROUP, command)


async def commit(home: GroupHome, epoch: int, *topics: str) -> None:
    offsets = [OffsetToCommit(topic, 0, 7, -1, "") for topic in topics]
    await home.groups.commit(GROUP, Committer("m", None, epoch), offsets)


def test_consumer_group_comes_back_after_a_restart_with_its_assignment() -> None:
    async def scene(home: GroupHome) -> None:
        joined = await consumer_beat(home, 0)
        topic_id = home.topics.get("t").topic_id
        assert joined.assignment == {topic_id: frozenset({0, 1})}
        await home.restart()
        assert (await consumer_beat(home, joined.member_epoch)).assignment is None
        group = await home.groups.consumer_describe(GROUP)
        assert list(group.members) == ["m"]
        assert home.groups.list(types=["consumer"])[0] == (GROUP, "consumer", "Stable", "consumer")
        assert home.groups.describe(GROUP).state == "Dead"

    play(scene)


def test_broker_makes_an_id_for_a_member_without_one() -> None:
    async def scene(home: GroupHome) -> None:
        assert (await consumer_beat(home, 0, "")).member_id == "-1"

    play(scene)


def test_silent_member_of_a_consumer_group_is_removed() -> None:
    async def scene(home: GroupHome) -> None:
        await consumer_beat(home, 0)
        await asyncio.sleep(45.1)
        assert home.groups.list()[0].state == "Empty"

    play(scene)


def test_classic_group_is_not_described_as_a_consumer_group() -> None:
    async def scene(home: GroupHome) -> None:
        await stable(home)
        with pytest.raises(UnknownGroup):
            await home.groups.consumer_describe(GROUP)

    play(scene)


def test_offsets_of_a_consumer_group_are_committed_and_fetched_by_epoch() -> None:
    async def scene(home: GroupHome) -> None:
        epoch = (await consumer_beat(home, 0)).member_epoch
        await commit(home, epoch, "t")
        with pytest.raises(StaleMember):
            await commit(home, epoch - 1, "t")
        found = await home.groups.fetch_offsets(GROUP, member_id="m", member_epoch=epoch)
        assert found[("t", 0)].offset == 7
        with pytest.raises(UnknownMember):
            await home.groups.fetch_offsets(GROUP, member_id="z", member_epoch=epoch)

    play(scene)


def test_offsets_that_a_consumer_group_uses_neither_expire_nor_go_by_hand() -> None:
    async def scene(home: GroupHome) -> None:
        epoch = (await consumer_beat(home, 0)).member_epoch
        await commit(home, epoch, "t", "u")
        results = await home.groups.delete_offsets(GROUP, [("t", 0)])
        assert isinstance(results[0], SubscribedGroup)
        for _ in range(WEEK_S // 40 + 1):
            await asyncio.sleep(40)
            await consumer_beat(home, epoch)
        home.groups.expire()
        assert list(await home.groups.fetch_offsets(GROUP)) == [("t", 0)]
        with pytest.raises(NonEmptyGroup):
            await home.groups.delete(GROUP)

    play(scene)


def test_consumer_group_without_members_is_deleted_for_good() -> None:
    async def scene(home: GroupHome) -> None:
        epoch = (await consumer_beat(home, 0)).member_epoch
        await commit(home, epoch, "t")
        await consumer_beat(home, -1)
        await home.groups.delete(GROUP)
        await home.restart()
        assert home.groups.list() == []

    play(scene)


def test_living_classic_group_becomes_a_consumer_group_and_stays_one_after_a_restart() -> None:
    async def scene(home: GroupHome) -> None:
        subscription = ConsumerProtocolSubscription(topics=["t"])
        metadata = b"\0\0" + encode(subscription, 0)
        first = (await home.groups.join(GROUP, join(metadata=metadata))).member_id
        waiting = asyncio.create_task(home.groups.join(GROUP, join(metadata=metadata)))
        await asyncio.sleep(0)
        await consumer_beat(home, 0)
        with pytest.raises(RebalanceInProgress):
            await waiting
        await home.restart()
        group = await home.groups.consumer_describe(GROUP)
        assert {first, "m"} <= set(group.members)
        with pytest.raises(RebalanceInProgress):
            await home.groups.heartbeat(GROUP, beat(first))

    play(scene)
