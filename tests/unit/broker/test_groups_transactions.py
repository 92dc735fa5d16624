"""Offsets that are committed in transactions: pending, then committed or gone, once for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    Fenced,
    IllegalGeneration,
    InvalidName,
    MetadataTooLarge,
    MillstreamError,
    Unavailable,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
    UnstableOffset,
)
from millstream.groups.consumer_commands import ConsumerHeartbeat
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.groups.outcome import NO_TICKET
from millstream.records import ControlType, build_control
from millstream.settings.domain import INT_MAX
from millstream.settings.names import OFFSETS_TOPIC
from millstream.settings.transactions import TransactionSettings
from tests.fakes.fake_broker import PATH
from tests.fakes.fake_flusher import DelayedFlusher
from tests.fakes.group_home import GROUP, GroupHome, join, leaving, stable
from tests.fakes.log_steps import append
from tests.fakes.open_door import until
from tests.fakes.sample_batches import batch_of
from tests.fakes.simulated_loop import run_simulated
from tests.fakes.transaction_home import Writer

NOBODY = Committer("", None, -1)
P, Q = "p", "q"
"""Transactional ids."""
EIGHT_DAYS_S = 8 * 86_400


class Home(GroupHome):
    """A broker with producers that commit offsets in their transactions, by name."""

    def __init__(self, **options: Any) -> None:
        # No transaction times out in these tests.
        settings = TransactionSettings(max_timeout_ms=INT_MAX)
        super().__init__(transactions=settings, **options)
        self.writers: dict[str, Writer] = {}

    async def begin(self, producer: str = P) -> Writer:
        """The producer, in a transaction that has offsets."""
        if producer not in self.writers:
            self.writers[producer] = await self.writer(producer, timeout_ms=INT_MAX)
        writer = self.writers[producer]
        await self.transactions.add_offsets(writer.name, writer.producer_id, writer.epoch)
        return writer

    async def end_transaction(self, producer: str = P, *, is_commit: bool = True) -> None:
        await self.end(self.writers[producer], is_commit=is_commit)


def play(scene: Callable[[Home], Awaitable[None]], *, sync_ms: int = 1) -> None:
    clock = ManualClock()

    async def run() -> None:
        flusher = partial(DelayedFlusher, lambda _: sync_ms)
        home = await Home(clock=clock, new_flusher=flusher).start()
        await scene(home)
        await home.stop()

    run_simulated(run(), clock)


def offset(number: int, partition: int = 0, topic: str = "t", metadata: str = "") -> OffsetToCommit:
    return OffsetToCommit(topic, partition, number, -1, metadata)


async def commit(home: Home, *offsets: OffsetToCommit) -> None:
    assert set(await home.groups.commit(GROUP, NOBODY, offsets)) == {None}


async def commit_in(
    home: Home,
    writer: Writer,
    *offsets: OffsetToCommit,
    by: Committer = NOBODY,
    group_id: str = GROUP,
) -> Sequence[MillstreamError | None]:
    return await home.groups.commit_in_transaction(
        group_id, by, offsets, producer_id=writer.producer_id, producer_epoch=writer.epoch
    )


async def pend(
    home: Home,
    *offsets: OffsetToCommit,
    producer: str = P,
    by: Committer = NOBODY,
    group_id: str = GROUP,
) -> None:
    """Commit offsets in a producer's transaction."""
    assert set(
        await commit_in(home, await home.begin(producer), *offsets, by=by, group_id=group_id)
    ) == {None}


async def offsets_of(home: Home, group_id: str = GROUP) -> dict[tuple[str, int], int]:
    found = await home.groups.fetch_offsets(group_id)
    return {key: committed.offset for key, committed in found.items()}


async def unstable_in(home: Home) -> set[tuple[str, int]]:
    found = await home.groups.fetch_stable_offsets(GROUP)
    return {key for key, value in found.items() if isinstance(value, UnstableOffset)}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
def test_offsets_are_pending_until_their_transaction_ends(
    *, restarts: bool, is_commit: bool
) -> None:
    async def scene(home: Home) -> None:
        await commit(home, offset(1))
        await pend(home, offset(5), offset(6, partition=1))
        await pend(home, offset(9), group_id="other")
        if restarts:
            await home.restart()
        assert await offsets_of(home) == {("t", 0): 1}
        assert await unstable_in(home) == {("t", 0), ("t", 1)}
        await home.end_transaction(P, is_commit=is_commit)
        wanted = {("t", 0): 5, ("t", 1): 6} if is_commit else {("t", 0): 1}
        assert await offsets_of(home) == wanted
        assert await offsets_of(home, "other") == ({("t", 0): 9} if is_commit else {})
        assert await unstable_in(home) == set()
        await home.restart()
        assert await offsets_of(home) == wanted

    play(scene)


def test_group_of_pending_offsets_alone_ends_with_them() -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(5))
        assert [listing.group_id for listing in home.groups.list()] == [GROUP]
        await home.end_transaction(P, is_commit=False)
        assert home.groups.list() == []
        await home.restart()
        assert home.groups.list() == []

    play(scene)


def test_pending_offset_is_answered_when_it_is_durable() -> None:
    async def scene(home: Home) -> None:
        writer = await home.begin()
        before_ms = home.clock.now_ms()
        assert await commit_in(home, writer, offset(5)) == (None,)
        assert home.clock.now_ms() - before_ms >= 499
        assert home.log.synced_offset == home.log.end_offset

    play(scene, sync_ms=500)


def test_committed_offset_is_told_when_the_marker_is_durable() -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(5))
        end_offset = home.log.end_offset
        ending = asyncio.create_task(home.end_transaction(P))
        await until(lambda: home.log.end_offset > end_offset)
        before_ms = home.clock.now_ms()
        assert await offsets_of(home) == {("t", 0): 5}
        assert home.clock.now_ms() - before_ms >= 499
        assert home.log.synced_offset == home.log.end_offset
        await ending
        assert await offsets_of(home) == {("t", 0): 5}

    play(scene, sync_ms=500)


def test_committed_offset_is_not_told_when_the_marker_cannot_be_synced() -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(5))
        home.disk.fail_sync(f"*/{OFFSETS_TOPIC}/*.log")
        await home.end_transaction(P)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await offsets_of(home)

    play(scene)


def test_marker_that_nobody_was_told_of_counts_after_a_restart() -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(5))
        # A crash comes when the marker is written, and before anything else.
        marker = build_control(
            ControlType.COMMIT,
            producer_id=home.writers[P].producer_id,
            producer_epoch=home.writers[P].epoch,
            coordinator_epoch=0,
            timestamp_ms=home.clock.now_ms(),
        )
        home.log.append([marker])
        assert await unstable_in(home) == {("t", 0)}
        await home.crash("kept")
        assert await unstable_in(home) == set()
        assert await offsets_of(home) == {("t", 0): 5}

    play(scene)


def test_plain_commit_after_a_pending_offset_outlasts_it() -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(5))
        await commit(home, offset(3))
        assert await unstable_in(home) == set()
        await home.end_transaction(P)
        assert await offsets_of(home) == {("t", 0): 3}
        await home.restart()
        assert await offsets_of(home) == {("t", 0): 3}

    play(scene)


@pytest.mark.parametrize("first", [P, Q])
def test_of_two_transactions_the_one_that_wrote_last_decides(first: str) -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(5))
        await pend(home, offset(4), producer=Q)
        for producer in (first, Q if first == P else P):
            await home.end_transaction(producer)
        assert await offsets_of(home) == {("t", 0): 4}
        await home.restart()
        assert await offsets_of(home) == {("t", 0): 4}

    play(scene)


def test_end_with_the_next_epoch_ends_the_transaction_and_the_next_has_it() -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(5))
        before = replace(home.writers[P])
        await home.end_transaction(P)
        assert home.writers[P].epoch == before.epoch + 1
        assert await offsets_of(home) == {("t", 0): 5}
        with pytest.raises(Fenced):
            await commit_in(home, before, offset(6))
        await pend(home, offset(7))
        await home.end_transaction(P)
        assert await offsets_of(home) == {("t", 0): 7}

    play(scene)


def test_only_wanted_offsets_are_told_stable_or_not() -> None:
    async def scene(home: Home) -> None:
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
    async def scene(home: Home) -> None:
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
        await home.end_transaction(P)
        assert await offsets_of(home) == {("t", 0): 3}

    play(scene)


def test_member_commits_while_its_group_completes_a_rebalance() -> None:
    async def scene(home: Home) -> None:
        joined = await home.groups.join(GROUP, join())
        assert home.groups.describe(GROUP).state == "CompletingRebalance"
        await pend(home, offset(1), by=Committer(joined.member_id, None, joined.generation))

    play(scene)


def test_member_of_a_group_that_is_not_there_is_refused() -> None:
    async def scene(home: Home) -> None:
        with pytest.raises(IllegalGeneration):
            await pend(home, offset(1), by=Committer("m", None, 1))
        assert home.groups.list() == []
        await pend(home, offset(1))
        with pytest.raises(UnknownMember):
            await pend(home, offset(1), by=Committer("m", None, 1))

    play(scene)


def test_member_of_a_consumer_group_commits_with_its_epoch() -> None:
    async def scene(home: Home) -> None:
        reply = await home.groups.consumer_heartbeat(GROUP, first_heartbeat())
        member = Committer("m", None, reply.member_epoch)
        await pend(home, offset(1), by=member)
        with pytest.raises(IllegalGeneration):
            await pend(home, offset(2), by=member._replace(generation=member.generation + 1))
        with pytest.raises(UnknownMember):
            await pend(home, offset(2), by=member._replace(member_id="stranger"))
        await pend(home, offset(3))
        await home.end_transaction(P)
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
    async def scene(home: Home) -> None:
        results = await commit_in(
            home,
            await home.begin(),
            offset(1, metadata="x" * 5000),
            offset(1, 2),
            offset(1, topic="none"),
            offset(2, 1),
        )
        kinds = [type(result) for result in results]
        assert kinds == [MetadataTooLarge, UnknownPartition, UnknownTopic, type(None)]
        await home.end_transaction(P)
        assert await offsets_of(home) == {("t", 1): 2}

    play(scene)


def test_group_without_a_name_has_no_transactions() -> None:
    async def scene(home: Home) -> None:
        with pytest.raises(InvalidName):
            await pend(home, offset(1), group_id="")

    play(scene)


# What else happens to offsets meanwhile


def test_deleted_topic_takes_its_pending_offsets_along() -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(1), offset(2, topic="u"))
        await home.topics.delete("t")
        await home.topics.create("t", partitions=2, overrides={})
        await home.end_transaction(P)
        assert await offsets_of(home) == {("u", 0): 2}
        await home.restart()
        assert await offsets_of(home) == {("u", 0): 2}

    play(scene)


def test_topic_that_is_gone_after_a_restart_has_no_pending_offsets() -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(1), offset(2, topic="u"))
        # The crash comes before its offsets are forgotten; the next process creates it anew.
        home.disk.fail_sync(f"{PATH}/topics")
        await home.topics.delete("t")
        await home.crash()
        await home.restart()
        await home.end_transaction(P)
        assert await offsets_of(home) == {("u", 0): 2}

    play(scene)


def test_deleted_group_takes_its_pending_offsets_along() -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(1))
        await home.groups.delete(GROUP)
        assert home.groups.list() == []
        with pytest.raises(UnknownGroup):
            await home.groups.delete(GROUP)
        # The transaction goes on, and the group with it begins anew.
        await pend(home, offset(2, partition=1))
        await home.end_transaction(P)
        assert await offsets_of(home) == {("t", 1): 2}
        await home.restart()
        assert await offsets_of(home) == {("t", 1): 2}

    play(scene)


def test_deleted_offset_does_not_come_back_with_the_transaction() -> None:
    async def scene(home: Home) -> None:
        await pend(home, offset(1), offset(2, partition=1))
        assert await home.groups.delete_offsets(GROUP, [("t", 0)]) == (None,)
        await home.end_transaction(P)
        assert await offsets_of(home) == {("t", 1): 2}
        await home.restart()
        assert await offsets_of(home) == {("t", 1): 2}

    play(scene)


def test_offset_does_not_expire_while_a_transaction_may_change_it() -> None:
    async def scene(home: Home) -> None:
        await commit(home, offset(1), offset(2, partition=1))
        await pend(home, offset(3))
        await asyncio.sleep(EIGHT_DAYS_S)
        home.groups.expire()
        assert await offsets_of(home) == {("t", 0): 1}
        await home.end_transaction(P, is_commit=False)
        home.groups.expire()
        assert await offsets_of(home) == {}
        assert home.groups.list() == []

    play(scene)


def test_empty_group_is_not_forgotten_while_it_has_pending_offsets() -> None:
    async def scene(home: Home) -> None:
        member_id = await stable(home)
        await pend(home, offset(3), by=Committer(member_id, None, 1))
        await home.groups.leave(GROUP, leaving(member_id))
        await asyncio.sleep(EIGHT_DAYS_S)
        home.groups.expire()
        assert home.groups.describe(GROUP).state == "Empty"
        await home.end_transaction(P, is_commit=False)
        home.groups.expire()
        assert home.groups.list() == []

    play(scene)


def test_offset_past_the_end_of_a_log_that_was_cut_is_set_back_in_its_transaction() -> None:
    async def scene(home: Home) -> None:
        log = home.partition("t", 0).log
        append(log, batch_of(*[b"synced"] * 4))
        log.sync()
        append(log, batch_of(*[b"lost"] * 5))
        await pend(home, offset(9), offset(2, partition=1), offset(9, topic="u"))
        await home.crash()
        assert await unstable_in(home) == {("t", 0), ("t", 1), ("u", 0)}
        await home.restart()
        await home.end_transaction(P)
        assert await offsets_of(home) == {("t", 0): 4, ("t", 1): 2, ("u", 0): 9}
        await home.restart()
        assert await offsets_of(home) == {("t", 0): 4, ("t", 1): 2, ("u", 0): 9}

    play(scene)
