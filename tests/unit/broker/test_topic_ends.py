"""Committed offsets and the ends of topics: of those deleted, and of those that a crash has cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millstream.errors import AlreadyExists
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.settings.names import OFFSETS_TOPIC
from millstream.storage.flusher import Done
from millstream.storage.partition_log import PartitionLog
from tests.fakes.fake_broker import PATH
from tests.fakes.fake_flusher import PromptFlusher
from tests.fakes.sample_batches import batch_of
from tests.fakes.transaction_home import TransactionHome, Writer

NOBODY = Committer("", None, -1)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


class SlowOffsets(PromptFlusher):
    """Takes its time to sync the offsets of groups, once it is told to."""

    def __init__(self, *, is_slow: bool = False, **_: object) -> None:
        super().__init__()
        self.is_slow = is_slow
        self.is_asked = asyncio.Event()
        self._late: list[tuple[PartitionLog, int, Done]] = []

    def when_durable(self, log: PartitionLog, offset: int, done: Done) -> None:
        if self.is_slow and log.name.startswith(OFFSETS_TOPIC) and offset > log.synced_offset:
            self._late.append((log, offset, done))
            self.is_asked.set()
        else:
            super().when_durable(log, offset, done)

    def catch_up(self) -> None:
        self.is_slow = False
        for waiter in self._late:
            self.when_durable(*waiter)


class Home(TransactionHome):
    """A broker with one topic and one group."""

    async def create(self) -> None:
        await self.topics.create("orders", partitions=1, overrides={})

    async def offsets(self) -> dict[tuple[str, int], int]:
        found = await self.groups.fetch_offsets("g")
        return {key: committed.offset for key, committed in found.items()}


async def with_commit(**options: Any) -> Home:
    home = await Home(**options).start()
    await home.create()
    await home.groups.commit("g", NOBODY, [OffsetToCommit("orders", 0, 5, -1, "")])
    assert await home.offsets() == {("orders", 0): 5}
    return home


def test_name_is_not_free_before_the_end_of_its_offsets_is_durable() -> None:
    async def test() -> None:
        offsets = SlowOffsets()
        home = await with_commit(new_flusher=lambda **_: offsets)
        offsets.is_slow = True
        deletion = asyncio.create_task(home.topics.delete("orders"))
        await offsets.is_asked.wait()
        with pytest.raises(AlreadyExists):
            await home.create()
        assert not deletion.done()
        offsets.catch_up()
        await deletion
        await home.create()
        await home.crash()
        assert len(home.topics.get("orders").partitions) == 1
        assert await home.offsets() == {}

    run(test)


def test_start_that_ends_a_deletion_waits_for_the_end_of_its_offsets() -> None:
    async def test() -> None:
        home = await with_commit()
        home.disk.fail_sync(f"{PATH}/topics")
        await home.topics.delete("orders")
        offsets = SlowOffsets(is_slow=True)
        disk = home.disk.after_crash("lost")
        again = Home(disk, first_id=1000, new_flusher=lambda **_: offsets)
        starting = asyncio.create_task(again.start())
        await offsets.is_asked.wait()
        await asyncio.sleep(0)
        assert not starting.done()
        offsets.catch_up()
        await starting
        await again.create()
        await again.crash()
        assert await again.offsets() == {}

    run(test)


def test_offsets_that_cannot_be_forgotten_keep_the_name_until_the_next_start() -> None:
    async def test() -> None:
        home = await with_commit()
        home.groups.close()
        await home.topics.delete("orders")
        with pytest.raises(AlreadyExists):
            await home.create()
        await home.crash()
        await home.create()
        assert await home.offsets() == {}

    run(test)


def test_offset_past_the_end_of_a_log_that_a_crash_has_cut_is_set_back() -> None:
    async def test() -> None:
        home = await with_commit()
        log = home.topics.partition("orders", 0).log
        log.append([batch_of(b"synced")])
        log.sync()
        log.append([batch_of(b"lost") for _ in range(4)])
        await home.crash()
        assert home.topics.partition("orders", 0).log.end_offset == 1
        assert await home.offsets() == {("orders", 0): 1}

    run(test)


async def with_pending() -> tuple[Home, Writer]:
    """A broker, and a producer that has committed an offset in a transaction."""
    home = await Home().start()
    await home.create()
    writer = await home.writer()
    await home.commit_offset(writer, "g", "orders", 5)
    return home, writer


def test_pending_offset_past_the_end_of_a_log_that_a_crash_has_cut_is_set_back() -> None:
    async def test() -> None:
        home, writer = await with_pending()
        log = home.topics.partition("orders", 0).log
        log.append([batch_of(b"synced")])
        log.sync()
        log.append([batch_of(b"lost") for _ in range(4)])
        await home.crash()
        log = home.topics.partition("orders", 0).log
        assert log.end_offset == 1
        # Others take the offsets of what was lost, and are to be read.
        log.append([batch_of(b"new") for _ in range(9)])
        log.sync()
        await home.crash()
        await home.end(writer, is_commit=True)
        assert await home.offsets() == {("orders", 0): 1}
        await home.crash()
        assert await home.offsets() == {("orders", 0): 1}

    run(test)


def test_pending_offset_of_a_deleted_topic_does_not_come_back_with_another_of_its_name() -> None:
    async def test() -> None:
        home, writer = await with_pending()
        await home.topics.delete("orders")
        await home.create()
        await home.crash()
        await home.end(writer, is_commit=True)
        assert await home.offsets() == {}

    run(test)


def test_offset_past_the_end_of_a_log_outlives_a_clean_stop() -> None:
    async def test() -> None:
        home = await with_commit()
        await home.restart()
        assert await home.offsets() == {("orders", 0): 5}

    run(test)
