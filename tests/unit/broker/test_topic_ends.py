"""Committed offsets and the ends of topics: of those deleted, and of those that a crash has cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millstream.broker.group_topics import GroupTopics
from millstream.broker.groups import GroupCoordinator
from millstream.errors import AlreadyExists
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.records import ControlType, build_control
from millstream.settings.groups import GroupSettings
from millstream.settings.names import OFFSETS_TOPIC
from millstream.storage.flusher import Done
from millstream.storage.partition_log import PartitionLog
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.sample_batches import batch_of
from tests.fakes.topic_host import PATH, TopicHost

NOBODY = Committer("", None, -1)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


class Home:
    """Topics and groups on one disk."""

    def __init__(self, disk: FakeFilesystem, *, first_id: int = 1) -> None:
        self.disk = disk
        self.host = TopicHost(disk, first_id=first_id)
        self.topics = self.host.topics

    async def start(self) -> None:
        await self.host.start()
        self.groups = GroupCoordinator(
            self.topics.state_log(OFFSETS_TOPIC),
            settings=GroupSettings(),
            clock=self.host.clock,
            topics=GroupTopics(self.topics).view,
            new_member_id=lambda name: name,
        )
        await self.groups.start(self.topics.cut_end)
        self.topics.forgetting.append(self.groups.topic_deleted)

    async def create(self) -> None:
        await self.topics.create("orders", partitions=1, overrides={})

    async def after_power_cut(self) -> Home:
        again = Home(self.disk.after_crash("lost"), first_id=1000)
        await again.start()
        return again

    def commit_transaction(self) -> None:
        """Of the only producer there is."""
        marker = build_control(
            ControlType.COMMIT,
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=0,
        )
        self.topics.partition(OFFSETS_TOPIC, 0).log.append([marker])
        self.groups.end_transaction(1, is_commit=True)

    async def offsets(self) -> dict[tuple[str, int], int]:
        found = await self.groups.fetch_offsets("g")
        return {key: committed.offset for key, committed in found.items()}


async def with_commit() -> Home:
    home = Home(FakeFilesystem())
    await home.start()
    await home.create()
    await home.groups.commit("g", NOBODY, [OffsetToCommit("orders", 0, 5, -1, "")])
    assert await home.offsets() == {("orders", 0): 5}
    return home


class SlowOffsets:
    """A disk that takes its time to sync the offsets of groups."""

    def __init__(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        self._late: list[tuple[PartitionLog, int, Done]] = []
        self.is_asked = asyncio.Event()
        self._when_durable = home.host.flusher.when_durable
        monkeypatch.setattr(home.host.flusher, "when_durable", self._hold)

    def _hold(self, log: PartitionLog, offset: int, done: Done) -> None:
        if log.name.startswith(OFFSETS_TOPIC) and offset > log.synced_offset:
            self._late.append((log, offset, done))
            self.is_asked.set()
        else:
            self._when_durable(log, offset, done)

    def catch_up(self) -> None:
        for waiter in self._late:
            self._when_durable(*waiter)


def test_name_is_not_free_before_the_end_of_its_offsets_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        home = await with_commit()
        offsets = SlowOffsets(home, monkeypatch)
        deletion = asyncio.create_task(home.topics.delete("orders"))
        await offsets.is_asked.wait()
        with pytest.raises(AlreadyExists):
            await home.create()
        assert not deletion.done()
        offsets.catch_up()
        await deletion
        await home.create()
        again = await home.after_power_cut()
        assert len(again.topics.get("orders").partitions) == 1
        assert await again.offsets() == {}

    run(test)


def test_start_that_ends_a_deletion_waits_for_the_end_of_its_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        home = await with_commit()
        home.disk.fail_sync(f"{PATH}/topics")
        await home.topics.delete("orders")
        again = Home(home.disk.after_crash("lost"), first_id=1000)
        offsets = SlowOffsets(again, monkeypatch)
        starting = asyncio.create_task(again.start())
        await offsets.is_asked.wait()
        await asyncio.sleep(0)
        assert not starting.done()
        offsets.catch_up()
        await starting
        await again.create()
        assert await (await again.after_power_cut()).offsets() == {}

    run(test)


def test_offsets_that_cannot_be_forgotten_keep_the_name_until_the_next_start() -> None:
    async def test() -> None:
        home = await with_commit()
        home.groups.close()
        await home.topics.delete("orders")
        with pytest.raises(AlreadyExists):
            await home.create()
        again = await home.after_power_cut()
        await again.create()
        assert await again.offsets() == {}

    run(test)


def test_offset_past_the_end_of_a_log_that_a_crash_has_cut_is_set_back() -> None:
    async def test() -> None:
        home = await with_commit()
        log = home.topics.partition("orders", 0).log
        log.append([batch_of(b"synced")])
        log.sync()
        log.append([batch_of(b"lost") for _ in range(4)])
        again = await home.after_power_cut()
        assert again.topics.partition("orders", 0).log.end_offset == 1
        assert await again.offsets() == {("orders", 0): 1}

    run(test)


async def with_pending() -> Home:
    home = Home(FakeFilesystem())
    await home.start()
    await home.create()
    offsets = [OffsetToCommit("orders", 0, 5, -1, "")]
    await home.groups.commit_in_transaction("g", NOBODY, offsets, producer_id=1, producer_epoch=0)
    return home


def test_pending_offset_past_the_end_of_a_log_that_a_crash_has_cut_is_set_back() -> None:
    async def test() -> None:
        home = await with_pending()
        log = home.topics.partition("orders", 0).log
        log.append([batch_of(b"synced")])
        log.sync()
        log.append([batch_of(b"lost") for _ in range(4)])
        again = await home.after_power_cut()
        log = again.topics.partition("orders", 0).log
        assert log.end_offset == 1
        # Others take the offsets of what was lost, and are to be read.
        log.append([batch_of(b"new") for _ in range(9)])
        log.sync()
        third = await again.after_power_cut()
        third.commit_transaction()
        assert await third.offsets() == {("orders", 0): 1}
        assert await (await third.after_power_cut()).offsets() == {("orders", 0): 1}

    run(test)


def test_pending_offset_of_a_deleted_topic_does_not_come_back_with_another_of_its_name() -> None:
    async def test() -> None:
        home = await with_pending()
        await home.topics.delete("orders")
        await home.create()
        again = await home.after_power_cut()
        again.commit_transaction()
        assert await again.offsets() == {}

    run(test)


def test_offset_past_the_end_of_a_log_outlives_a_clean_stop() -> None:
    async def test() -> None:
        home = await with_commit()
        home.host.close()
        again = Home(home.disk, first_id=1000)
        await again.start()
        assert await again.offsets() == {("orders", 0): 5}

    run(test)
