"""The group coordinator: what is stored before it is told, and what survives a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    IllegalGeneration,
    InvalidName,
    InvalidTimeout,
    MemberIdRequired,
    MetadataTooLarge,
    NonEmptyGroup,
    RebalanceInProgress,
    SubscribedGroup,
    Unavailable,
    UnknownGroup,
    UnknownMember,
)
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.protocol.codec import encode
from millstream.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from millstream.settings.groups import GroupSettings
from millstream.settings.names import OFFSETS_TOPIC
from millstream.storage.flusher import Flusher
from tests.fakes.fake_broker import PATH
from tests.fakes.fake_flusher import DelayedFlusher
from tests.fakes.group_home import (
    DELAY_MS,
    GROUP,
    SESSION_MS,
    GroupHome,
    beat,
    join,
    leaving,
    stable,
    sync,
)
from tests.fakes.simulated_loop import run_simulated

NOBODY = Committer("", None, -1)
DAY_MS = 86_400_000


def play(scene: Callable[[GroupHome], Awaitable[None]], *, sync_ms: int = 1) -> None:
    """Run a scene on simulated time, with a disk that takes a while to sync."""
    clock = ManualClock()

    async def run() -> None:
        flusher = partial(DelayedFlusher, lambda _: sync_ms)
        home = await GroupHome(clock=clock, new_flusher=flusher).start()
        await scene(home)
        await home.stop()

    run_simulated(run(), clock)


def offset(number: int, partition: int = 0, topic: str = "t", metadata: str = "") -> OffsetToCommit:
    return OffsetToCommit(topic, partition, number, -1, metadata)


def subscription(*topics: str) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=topics), 0)


async def commit(home: GroupHome, *offsets: OffsetToCommit, by: Committer = NOBODY) -> None:
    assert set(await home.groups.commit(GROUP, by, offsets)) == {None}


async def offsets_of(home: GroupHome) -> dict[tuple[str, int], int]:
    found = await home.groups.fetch_offsets(GROUP)
    return {key: committed.offset for key, committed in found.items()}


def test_member_joins_after_the_delay_and_its_assignment_is_kept_over_a_restart() -> None:
    async def scene(home: GroupHome) -> None:
        before_ms = home.clock.now_ms()
        member_id = await stable(home)
        assert home.clock.now_ms() - before_ms >= DELAY_MS
        await home.restart()
        assert (await home.groups.sync(GROUP, sync(member_id))).assignment == b"all"
        await home.groups.heartbeat(GROUP, beat(member_id))
        assert home.groups.describe(GROUP).state == "Stable"

    play(scene)


def test_answer_waits_until_what_it_tells_of_is_durable() -> None:
    async def scene(home: GroupHome) -> None:
        joined = await home.groups.join(GROUP, join())
        member_id = joined.member_id
        task = asyncio.create_task(
            home.groups.sync(GROUP, sync(member_id, assignments={member_id: b"all"}))
        )
        await asyncio.sleep(0.499)
        assert home.groups.describe(GROUP).state == "Stable"
        again = asyncio.create_task(home.groups.sync(GROUP, sync(member_id)))
        await asyncio.sleep(0)
        assert not task.done()
        assert not again.done()
        await asyncio.sleep(0.002)
        assert (await task).assignment == (await again).assignment == b"all"

    play(scene, sync_ms=500)


def test_heartbeat_is_answered_without_waiting() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home)
        with pytest.raises(StopIteration):
            home.groups.heartbeat(GROUP, beat(member_id)).send(None)

    play(scene)


def test_silent_member_is_removed_in_time_whatever_its_earlier_heartbeats() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home)
        for _ in range(3):
            await asyncio.sleep((SESSION_MS - 10) / 1000)
            await home.groups.heartbeat(GROUP, beat(member_id))
        await asyncio.sleep((SESSION_MS + 1) / 1000)
        assert home.groups.describe(GROUP).state == "Empty"

    play(scene)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_clock_of_the_machine_is_set_and_sessions_last_as_long_as_ever(jump_ms: int) -> None:
    wall = ManualClock()

    async def scene() -> None:
        home = await GroupHome(clock=wall).start()
        member_id = await stable(home)
        wall.advance_ms(jump_ms)
        await asyncio.sleep((SESSION_MS - 10) / 1000)
        await home.groups.heartbeat(GROUP, beat(member_id))
        await asyncio.sleep((SESSION_MS - 10) / 1000)
        assert home.groups.describe(GROUP).state == "Stable"
        await asyncio.sleep(0.02)
        assert home.groups.describe(GROUP).state == "Empty"
        home.groups.close()

    run_simulated(scene(), ManualClock())


def test_member_has_a_whole_session_after_a_restart_and_no_more() -> None:
    async def scene(home: GroupHome) -> None:
        await stable(home)
        await asyncio.sleep((SESSION_MS - 10) / 1000)
        await home.restart()
        await asyncio.sleep((SESSION_MS - 10) / 1000)
        assert home.groups.describe(GROUP).state == "Stable"
        await asyncio.sleep(0.011)
        assert home.groups.describe(GROUP).state == "Empty"

    play(scene)


def test_member_id_is_made_from_the_client_and_must_be_brought_back() -> None:
    async def scene(home: GroupHome) -> None:
        with pytest.raises(MemberIdRequired) as refused:
            await home.groups.join(GROUP, join(client_id="mill-wheel" * 99, must_return=True))
        assert refused.value.member_id.startswith("mill-wheel")
        assert len(refused.value.member_id) < 300
        joined = await home.groups.join(GROUP, join(refused.value.member_id, must_return=True))
        assert joined.member_id == refused.value.member_id

    play(scene)


def test_refused_first_member_leaves_no_group_behind() -> None:
    async def scene(home: GroupHome) -> None:
        with pytest.raises(InvalidTimeout):
            await home.groups.join(GROUP, join(session_ms=1))
        assert home.groups.list() == []
        assert home.groups.describe(GROUP).state == "Dead"

    play(scene)


def test_unknown_group_knows_no_members() -> None:
    async def scene(home: GroupHome) -> None:
        for request in (
            home.groups.join(GROUP, join("m")),
            home.groups.sync(GROUP, sync("m")),
            home.groups.heartbeat(GROUP, beat("m")),
        ):
            with pytest.raises(UnknownMember):
                await request
        left = await home.groups.leave(GROUP, leaving("m"))
        assert [type(result) for result in left.results] == [UnknownMember]
        assert home.groups.list() == []

    play(scene)


@pytest.mark.parametrize("name", ["", "x" * 40_000])
def test_group_without_a_usable_name_is_refused(name: str) -> None:
    async def scene(home: GroupHome) -> None:
        for request in (
            home.groups.join(name, join()),
            home.groups.sync(name, sync("m")),
            home.groups.heartbeat(name, beat("m")),
            home.groups.leave(name, leaving("m")),
        ):
            with pytest.raises(InvalidName):
                await request

    play(scene)


def test_names_that_no_record_can_hold_are_refused() -> None:
    async def scene(home: GroupHome) -> None:
        with pytest.raises(InvalidName):
            await home.groups.join(GROUP, join(instance_id="ü" * 20_000))

    play(scene)


def test_member_that_hangs_up_while_it_waits_to_join_is_dropped() -> None:
    async def scene(home: GroupHome) -> None:
        other = asyncio.create_task(home.groups.join(GROUP, join()))
        gone = asyncio.create_task(home.groups.join(GROUP, join()))
        await asyncio.sleep(0)
        gone.cancel()
        joined = await other
        assert gone.cancelled()
        assert joined.generation == 1
        assert [m.member_id for m in home.groups.describe(GROUP).members] == [joined.member_id]

    play(scene)


def test_shutdown_answers_all_who_wait_and_all_who_come() -> None:
    async def scene(home: GroupHome) -> None:
        waiting = asyncio.create_task(home.groups.join(GROUP, join()))
        await asyncio.sleep(0)
        home.groups.close()
        with pytest.raises(Unavailable):
            await waiting
        with pytest.raises(Unavailable):
            await home.groups.join(GROUP, join())

    play(scene)


def test_commit_is_kept_over_a_restart() -> None:
    async def scene(home: GroupHome) -> None:
        await commit(home, offset(5), offset(7, partition=1, metadata="note"))
        await commit(home, offset(6))
        await home.restart()
        assert await offsets_of(home) == {("t", 0): 6, ("t", 1): 7}
        found = await home.groups.fetch_offsets(GROUP, [("t", 1), ("t", 9)])
        assert found[("t", 1)].metadata == "note"
        assert len(found) == 1
        assert home.groups.list()[0] == (GROUP, "", "Empty", "classic")

    play(scene)


def test_fetched_offset_is_durable() -> None:
    async def scene(home: GroupHome) -> None:
        task = asyncio.create_task(home.groups.commit(GROUP, NOBODY, [offset(5)]))
        await asyncio.sleep(0)
        before_ms = home.clock.now_ms()
        assert await offsets_of(home) == {("t", 0): 5}
        assert home.clock.now_ms() - before_ms >= 499
        await task

    play(scene, sync_ms=500)


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone() -> None:
    async def scene(home: GroupHome) -> None:
        results = await home.groups.commit(
            GROUP, NOBODY, [offset(1, metadata="x" * 5000), offset(2, partition=1)]
        )
        assert [type(result) for result in results] == [MetadataTooLarge, type(None)]
        assert await offsets_of(home) == {("t", 1): 2}

    play(scene)


def test_member_of_an_unknown_group_cannot_commit() -> None:
    async def scene(home: GroupHome) -> None:
        with pytest.raises(UnknownGroup):
            await home.groups.commit(GROUP, Committer("m", None, 3), [offset(1)])
        assert home.groups.list() == []

    play(scene)


def test_commit_of_a_member_renews_its_session() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home)
        for number in range(4):
            await asyncio.sleep((SESSION_MS - 10) / 1000)
            await commit(home, offset(number), by=Committer(member_id, None, 1))
        with pytest.raises(IllegalGeneration):
            await home.groups.commit(GROUP, Committer(member_id, None, 2), [offset(9)])

    play(scene)


def test_group_with_members_is_not_deleted_and_an_empty_one_is() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home)
        await commit(home, offset(3), by=Committer(member_id, None, 1))
        with pytest.raises(NonEmptyGroup):
            await home.groups.delete(GROUP)
        await home.groups.leave(GROUP, leaving(member_id))
        await home.groups.delete(GROUP)
        assert home.groups.list() == []
        with pytest.raises(UnknownGroup):
            await home.groups.delete(GROUP)
        await home.restart()
        assert await offsets_of(home) == {}
        assert home.groups.list() == []

    play(scene)


def test_offsets_of_topics_that_are_read_are_not_deleted() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home, subscription("t"))
        by = Committer(member_id, None, 1)
        await commit(home, offset(1), offset(2, topic="u"), by=by)
        results = await home.groups.delete_offsets(GROUP, [("t", 0), ("u", 0), ("u", 5)])
        assert [type(result) for result in results] == [SubscribedGroup, type(None), type(None)]
        await home.restart()
        assert await offsets_of(home) == {("t", 0): 1}

    play(scene)


def test_offsets_of_an_unknown_group_cannot_be_deleted() -> None:
    async def scene(home: GroupHome) -> None:
        with pytest.raises(UnknownGroup):
            await home.groups.delete_offsets(GROUP, [("t", 0)])

    play(scene)


def test_deleted_topic_takes_its_offsets_along() -> None:
    async def scene(home: GroupHome) -> None:
        await commit(home, offset(1), offset(2, topic="u"))
        await home.topics.delete("t")
        assert await offsets_of(home) == {("u", 0): 2}
        await home.restart()
        assert await offsets_of(home) == {("u", 0): 2}

    play(scene)


def test_topic_that_is_gone_after_a_restart_has_no_offsets() -> None:
    async def scene(home: GroupHome) -> None:
        await commit(home, offset(1), offset(2, topic="u"))
        # The crash comes before its offsets are forgotten; the next process creates it anew.
        home.disk.fail_sync(f"{PATH}/topics")
        await home.topics.delete("t")
        await home.crash()
        assert await offsets_of(home) == {("u", 0): 2}
        await home.restart()
        assert await offsets_of(home) == {("u", 0): 2}

    play(scene)


def test_offsets_expire_a_week_after_the_last_member_left_and_the_group_with_them() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home)
        await commit(home, offset(1), by=Committer(member_id, None, 1))
        await home.groups.leave(GROUP, leaving(member_id))
        upkeep = asyncio.create_task(home.groups.run())
        await asyncio.sleep(6.9 * DAY_MS / 1000)
        assert await offsets_of(home) == {("t", 0): 1}
        await asyncio.sleep(0.2 * DAY_MS / 1000)
        assert await offsets_of(home) == {}
        assert home.groups.list() == []
        upkeep.cancel()
        await home.restart()
        assert home.groups.list() == []

    play(scene)


def test_groups_are_listed_by_state_and_type() -> None:
    async def scene(home: GroupHome) -> None:
        await stable(home)
        await home.groups.commit("simple", NOBODY, [offset(1)])
        names = {
            state: [listing.group_id for listing in home.groups.list(states=[state])]
            for state in ("stable", "Empty", "Dead")
        }
        assert names == {"stable": [GROUP], "Empty": ["simple"], "Dead": []}
        assert len(home.groups.list(types=["Classic"])) == 2
        assert home.groups.list(types=["consumer"]) == []

    play(scene)


def test_full_disk_refuses_the_change_and_keeps_the_state() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home)
        home.disk.full_paths = [f"*/{OFFSETS_TOPIC}/*"]
        with pytest.raises(Unavailable):
            await commit(home, offset(1), by=Committer(member_id, None, 1))
        with pytest.raises(Unavailable):
            await home.groups.leave(GROUP, leaving(member_id))
        assert await offsets_of(home) == {}
        assert home.groups.describe(GROUP).state == "Stable"
        await asyncio.sleep((SESSION_MS + 500) / 1000)
        assert home.groups.describe(GROUP).state == "Stable"
        home.disk.full_paths = []
        await asyncio.sleep(1)
        assert home.groups.describe(GROUP).state == "Empty"

    play(scene)


def test_unreadable_records_are_passed_over() -> None:
    async def scene(home: GroupHome) -> None:
        await commit(home, offset(1))
        home.topics.state_log(OFFSETS_TOPIC).append(
            [(b"", b""), (b"\x7f\x7f??", b"x"), (b"\0\1\0", b"\0\3")]
        )
        await commit(home, offset(2, partition=1))
        await home.restart()
        assert await offsets_of(home) == {("t", 0): 1, ("t", 1): 2}

    play(scene)


def play_with_threads(scene: Callable[[GroupHome], Awaitable[None]]) -> None:
    """Run a scene in real time, with syncs in threads."""

    async def run() -> None:
        settings = GroupSettings(initial_rebalance_delay_ms=0)
        home = await GroupHome(groups=settings, new_flusher=Flusher).start()
        try:
            await scene(home)
        finally:
            await home.stop()

    asyncio.run(run())


def test_group_lives_on_a_real_flusher() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home)
        by = Committer(member_id, None, 1)
        await asyncio.gather(*(commit(home, offset(n, partition=n), by=by) for n in range(20)))
        assert len(await offsets_of(home)) == 20
        assert home.log.synced_offset == home.log.end_offset

    play_with_threads(scene)


def test_failed_sync_takes_back_no_answer_and_gives_no_more() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home)
        by = Committer(member_id, None, 1)
        await commit(home, offset(1), by=by)
        home.disk.fail_sync(f"*/{OFFSETS_TOPIC}/*.log")
        with pytest.raises(Unavailable):
            await commit(home, offset(2), by=by)
        with pytest.raises(Unavailable):
            await offsets_of(home)
        with pytest.raises(Unavailable):
            await home.groups.heartbeat(GROUP, beat(member_id))

    play_with_threads(scene)


def test_rebalance_of_two_members_goes_through_the_coordinator() -> None:
    async def scene(home: GroupHome) -> None:
        first = await stable(home)
        second = asyncio.create_task(home.groups.join(GROUP, join()))
        await asyncio.sleep(0)
        with pytest.raises(RebalanceInProgress):
            await home.groups.heartbeat(GROUP, beat(first))
        leader = await home.groups.join(GROUP, join(first))
        follower = await second
        assert [member.member_id for member in leader.members] == [first, follower.member_id]
        parts = {first: b"1", follower.member_id: b"2"}
        results = await asyncio.gather(
            home.groups.sync(GROUP, sync(follower.member_id, 2)),
            home.groups.sync(GROUP, sync(first, 2, parts)),
        )
        assert [synced.assignment for synced in results] == [b"2", b"1"]

    play(scene)
