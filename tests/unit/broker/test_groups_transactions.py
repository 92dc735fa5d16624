"""Offsets that are committed in transactions: pending, then committed or gone, once for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    Fenced,
    IllegalGeneration,
    InvalidName,
    MetadataTooLarge,
    StorageFailure,
    Unavailable,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
    UnstableOffset,
)
from millstream.groups.consumer_commands import ConsumerHeartbeat
from millstream.groups.consumer_group import TopicFacts
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.groups.outcome import NO_TICKET
from tests.fakes.group_home import GROUP, T_ID, GroupHome, join, leaving, stable
from tests.fakes.simulated_flusher import SimulatedFlusher
from tests.fakes.simulated_loop import run_simulated

NOBODY = Committer("", None, -1)
P, Q = 7, 8
"""Producers."""
EIGHT_DAYS_S = 8 * 86_400


def play(scene: Callable[[GroupHome], Awaitable[None]], *, sync_ms: int = 1) -> None:
    clock = ManualClock()

    async def run() -> None:
        home = GroupHome(clock, flusher=SimulatedFlusher(lambda: sync_ms))
        await scene(home)
        home.groups.close()

    run_simulated(run(), clock)


def offset(number: int, partition: int = 0, topic: str = "t", metadata: str = "") -> OffsetToCommit:
    return OffsetToCommit(topic, partition, number, -1, metadata)


async def commit(home: GroupHome, *offsets: OffsetToCommit) -> None:
    assert set(await home.groups.commit(GROUP, NOBODY, offsets)) == {None}


async def pend(
    home: GroupHome,
    *offsets: OffsetToCommit,
    producer_id: int = P,
    by: Committer = NOBODY,
    group_id: str = GROUP,
) -> None:
    """Commit offsets in a producer's transaction."""
    results = await home.groups.commit_in_transaction(
        group_id, by, offsets, producer_id=producer_id, producer_epoch=0
    )
    assert set(results) == {None}


async def offsets_of(home: GroupHome, group_id: str = GROUP) -> dict[tuple[str, int], int]:
    found = await home.groups.fetch_offsets(group_id)
    return {key: committed.offset for key, committed in found.items()}


async def unstable_in(home: GroupHome) -> set[tuple[str, int]]:
    found = await home.groups.fetch_stable_offsets(GROUP)
    return {key for key, value in found.items() if isinstance(value, UnstableOffset)}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
def test_offsets_are_pending_until_their_transaction_ends(
    *, restarts: bool, is_commit: bool
) -> None:
    async def scene(home: GroupHome) -> None:
        await commit(home, offset(1))
        await pend(home, offset(5), offset(6, partition=1))
        await pend(home, offset(9), group_id="other")
        if restarts:
            home.restart()
        assert await offsets_of(home) == {("t", 0): 1}
        assert await unstable_in(home) == {("t", 0), ("t", 1)}
        home.end_transaction(P, is_commit=is_commit)
        wanted = {("t", 0): 5, ("t", 1): 6} if is_commit else {("t", 0): 1}
        assert await offsets_of(home) == wanted
        assert await offsets_of(home, "other") == ({("t", 0): 9} if is_commit else {})
        assert await unstable_in(home) == set()
        home.restart()
        assert await offsets_of(home) == wanted

    play(scene)


def test_group_of_pending_offsets_alone_ends_with_them() -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(5))
        assert [listing.group_id for listing in home.groups.list()] == [GROUP]
        home.end_transaction(P, is_commit=False)
        assert home.groups.list() == []
        home.restart()
        assert home.groups.list() == []

    play(scene)


def test_pending_offset_is_answered_when_it_is_durable() -> None:
    async def scene(home: GroupHome) -> None:
        before_ms = home.clock.now_ms()
        await pend(home, offset(5))
        assert home.clock.now_ms() - before_ms >= 499
        assert home.log.synced_offset == home.log.end_offset

    play(scene, sync_ms=500)


def test_committed_offset_is_told_when_the_marker_is_durable() -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(5))
        home.end_transaction(P)
        before_ms = home.clock.now_ms()
        assert await offsets_of(home) == {("t", 0): 5}
        assert home.clock.now_ms() - before_ms >= 499
        assert home.log.synced_offset == home.log.end_offset
        assert await offsets_of(home) == {("t", 0): 5}

    play(scene, sync_ms=500)


def test_committed_offset_is_not_told_when_the_marker_cannot_be_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(5))
        failure = StorageFailure(path=home.log.name, operation="sync", reason="it is broken")
        monkeypatch.setattr(home.flusher, "when_durable", lambda *waiter: waiter[2](failure))
        home.end_transaction(P)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await offsets_of(home)

    play(scene)


def test_marker_that_nobody_was_told_of_counts_after_a_restart() -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(5))
        home.end_transaction(P, told=False)
        assert await unstable_in(home) == {("t", 0)}
        home.restart()
        assert await unstable_in(home) == set()
        assert await offsets_of(home) == {("t", 0): 5}

    play(scene)


def test_plain_commit_after_a_pending_offset_outlasts_it() -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(5))
        await commit(home, offset(3))
        assert await unstable_in(home) == set()
        home.end_transaction(P)
        assert await offsets_of(home) == {("t", 0): 3}
        home.restart()
        assert await offsets_of(home) == {("t", 0): 3}

    play(scene)


@pytest.mark.parametrize("first", [P, Q])
def test_of_two_transactions_the_one_that_wrote_last_decides(first: int) -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(5))
        await pend(home, offset(4), producer_id=Q)
        for producer_id in (first, P + Q - first):
            home.end_transaction(producer_id)
        assert await offsets_of(home) == {("t", 0): 4}
        home.restart()
        assert await offsets_of(home) == {("t", 0): 4}

    play(scene)


def test_end_with_the_next_epoch_ends_the_transaction_and_the_next_has_it() -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(5))
        home.end_transaction(P, epoch=1)
        assert await offsets_of(home) == {("t", 0): 5}
        with pytest.raises(Fenced):
            await pend(home, offset(6))
        await home.groups.commit_in_transaction(
            GROUP, NOBODY, [offset(7)], producer_id=P, producer_epoch=1
        )
        home.end_transaction(P, epoch=2)
        assert await offsets_of(home) == {("t", 0): 7}

    play(scene)


def test_only_wanted_offsets_are_told_stable_or_not() -> None:
    async def scene(home: GroupHome) -> None:
        await commit(home, offset(1), offset(2, partition=1))
        await pend(home, offset(5), offset(1, topic="u"))
        found = await home.groups.fetch_stable_offsets(GROUP, [("t", 0), ("t", 1), ("t", 9)])
        assert isinstance(found["t", 0], UnstableOffset)
        committed = found["t", 1]
        assert not isinstance(committed, UnstableOffset)
        assert committed.offset == 2
        assert len(found) == 2
        assert await home.groups.fetch_stable_offsets("none") == {}

    play(scene)


# Who may commit


def test_member_commits_with_its_generation_and_others_do_not() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home)
        await pend(home, offset(1), by=Committer(member_id, None, 1))
        for committer, refusal in (
            (Committer(member_id, None, 2), IllegalGeneration),
            (Committer("stranger", None, 1), UnknownMember),
            (Committer(member_id, None, -1), IllegalGeneration),
        ):
            with pytest.raises(refusal):
                await pend(home, offset(2), by=committer)
        # As old producers do, which know nothing of members.
        await pend(home, offset(3))
        home.end_transaction(P)
        assert await offsets_of(home) == {("t", 0): 3}

    play(scene)


def test_member_commits_while_its_group_completes_a_rebalance() -> None:
    async def scene(home: GroupHome) -> None:
        joined = await home.groups.join(GROUP, join())
        assert home.groups.describe(GROUP).state == "CompletingRebalance"
        await pend(home, offset(1), by=Committer(joined.member_id, None, joined.generation))

    play(scene)


def test_member_of_a_group_that_is_not_there_is_refused() -> None:
    async def scene(home: GroupHome) -> None:
        with pytest.raises(IllegalGeneration):
            await pend(home, offset(1), by=Committer("m", None, 1))
        assert home.groups.list() == []
        await pend(home, offset(1))
        with pytest.raises(UnknownMember):
            await pend(home, offset(1), by=Committer("m", None, 1))

    play(scene)


def test_member_of_a_consumer_group_commits_with_its_epoch() -> None:
    async def scene(home: GroupHome) -> None:
        reply = await home.groups.consumer_heartbeat(GROUP, first_heartbeat())
        member = Committer("m", None, reply.member_epoch)
        await pend(home, offset(1), by=member)
        with pytest.raises(IllegalGeneration):
            await pend(home, offset(2), by=member._replace(generation=member.generation + 1))
        with pytest.raises(UnknownMember):
            await pend(home, offset(2), by=member._replace(member_id="stranger"))
        await pend(home, offset(3))
        home.end_transaction(P)
        assert await offsets_of(home) == {("t", 0): 3}

    play(scene)


def first_heartbeat() -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        ticket=NO_TICKET,
        member_id="m",
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=10_000,
        topics=("t",),
        regex=None,
        assignor=None,
        owned={},
        client_id="c",
        client_host="/127.0.0.1",
    )


def test_offset_of_no_partition_or_with_too_long_metadata_is_refused_alone() -> None:
    async def scene(home: GroupHome) -> None:
        results = await home.groups.commit_in_transaction(
            GROUP,
            NOBODY,
            [offset(1, metadata="x" * 5000), offset(1, 2), offset(1, topic="none"), offset(2, 1)],
            producer_id=P,
            producer_epoch=0,
        )
        kinds = [type(result) for result in results]
        assert kinds == [MetadataTooLarge, UnknownPartition, UnknownTopic, type(None)]
        home.end_transaction(P)
        assert await offsets_of(home) == {("t", 1): 2}

    play(scene)


def test_group_without_a_name_has_no_transactions() -> None:
    async def scene(home: GroupHome) -> None:
        with pytest.raises(InvalidName):
            await pend(home, offset(1), group_id="")

    play(scene)


# What else happens to offsets meanwhile


def test_deleted_topic_takes_its_pending_offsets_along() -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(1), offset(2, topic="u"))
        facts = home.topics.pop("t")
        await home.groups.topic_deleted("t")
        home.topics["t"] = facts
        home.end_transaction(P)
        assert await offsets_of(home) == {("u", 0): 2}
        home.restart()
        assert await offsets_of(home) == {("u", 0): 2}

    play(scene)


def test_topic_that_is_gone_after_a_restart_has_no_pending_offsets() -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(1), offset(2, topic="u"))
        del home.topics["t"]
        home.restart()
        home.topics["t"] = TopicFacts(T_ID, partitions=2)
        home.restart()
        home.end_transaction(P)
        assert await offsets_of(home) == {("u", 0): 2}

    play(scene)


def test_deleted_group_takes_its_pending_offsets_along() -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(1))
        await home.groups.delete(GROUP)
        assert home.groups.list() == []
        with pytest.raises(UnknownGroup):
            await home.groups.delete(GROUP)
        # The transaction goes on, and the group with it begins anew.
        await pend(home, offset(2, partition=1))
        home.end_transaction(P)
        assert await offsets_of(home) == {("t", 1): 2}
        home.restart()
        assert await offsets_of(home) == {("t", 1): 2}

    play(scene)


def test_deleted_offset_does_not_come_back_with_the_transaction() -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(1), offset(2, partition=1))
        assert await home.groups.delete_offsets(GROUP, [("t", 0)]) == (None,)
        home.end_transaction(P)
        assert await offsets_of(home) == {("t", 1): 2}
        home.restart()
        assert await offsets_of(home) == {("t", 1): 2}

    play(scene)


def test_offset_does_not_expire_while_a_transaction_may_change_it() -> None:
    async def scene(home: GroupHome) -> None:
        await commit(home, offset(1), offset(2, partition=1))
        await pend(home, offset(3))
        await asyncio.sleep(EIGHT_DAYS_S)
        home.groups.expire()
        assert await offsets_of(home) == {("t", 0): 1}
        home.end_transaction(P, is_commit=False)
        home.groups.expire()
        assert await offsets_of(home) == {}
        assert home.groups.list() == []

    play(scene)


def test_empty_group_is_not_forgotten_while_it_has_pending_offsets() -> None:
    async def scene(home: GroupHome) -> None:
        member_id = await stable(home)
        await pend(home, offset(3), by=Committer(member_id, None, 1))
        await home.groups.leave(GROUP, leaving(member_id))
        await asyncio.sleep(EIGHT_DAYS_S)
        home.groups.expire()
        assert home.groups.describe(GROUP).state == "Empty"
        home.end_transaction(P, is_commit=False)
        home.groups.expire()
        assert home.groups.list() == []

    play(scene)


def test_offset_past_the_end_of_a_log_that_was_cut_is_set_back_in_its_transaction() -> None:
    async def scene(home: GroupHome) -> None:
        await pend(home, offset(9), offset(2, partition=1), offset(9, topic="u"))
        home.groups.close()
        home.start()
        await home.groups.start(lambda topic, _: 4 if topic == "t" else None)
        assert await unstable_in(home) == {("t", 0), ("t", 1), ("u", 0)}
        home.restart()
        home.end_transaction(P)
        assert await offsets_of(home) == {("t", 0): 4, ("t", 1): 2, ("u", 0): 9}
        home.restart()
        assert await offsets_of(home) == {("t", 0): 4, ("t", 1): 2, ("u", 0): 9}

    play(scene)
