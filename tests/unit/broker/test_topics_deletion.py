"""Topics that are deleted: gone at once, with a name that is free at once."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millstream.broker.topics import Topic
from millstream.errors import (
    AlreadyExists,
    DiskFull,
    InvalidName,
    StorageFailure,
    UnknownTopic,
    UnknownTopicId,
)
from millstream.settings.names import OFFSETS_TOPIC
from millstream.storage.flusher import Flusher
from millstream.storage.local_log import LocalLog
from tests.fakes.fake_broker import PATH, FakeBroker
from tests.fakes.fake_disk import SECTOR_BYTES
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import batch_of, idempotent_batch, values_of


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def started(disk: FakeFilesystem | None = None, *, first_id: int = 1) -> FakeBroker:
    return await FakeBroker(disk, first_id=first_id).start()


def test_deleted_topic_is_gone_and_stays_gone() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        host = await started(disk)
        topic = await host.topics.create("orders", partitions=2, overrides={})
        append(topic.partitions[0].log, batch_of(b"a"))
        await host.topics.delete("orders")
        with pytest.raises(UnknownTopic):
            host.topics.get("orders")
        with pytest.raises(UnknownTopicId):
            host.topics.by_id(topic.topic_id)
        assert "orders" not in host.topic_directories()
        for mode in ("kept", "lost"):
            again = await started(disk.after_crash(mode), first_id=1000)
            assert again.shape() == {}

    run(test)


def test_new_topic_of_the_same_name_has_nothing_of_the_old_one() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        host = await started(disk)
        old = await host.topics.create("orders", partitions=1, overrides={"segment.bytes": "300"})
        log = old.partitions[0].log
        for number in range(5):
            append(log, idempotent_batch(number))
        log.sync()
        # Closed segments of the old one are in the cache now.
        assert len(values_of(log)) == 5
        await host.housekeeping.checkpoint()
        await host.topics.delete("orders")
        new = await host.topics.create("orders", partitions=1, overrides={"segment.bytes": "300"})
        fresh = new.partitions[0].log
        assert new.topic_id != old.topic_id
        assert (fresh.start_offset, fresh.end_offset) == (0, 0)
        assert append(fresh, idempotent_batch(0)) == [0]
        for number in range(4):
            append(fresh, batch_of(b"new %d" % number))
        assert values_of(fresh)[1:] == [b"new 0", b"new 1", b"new 2", b"new 3"]
        fresh.sync()
        for mode in ("kept", "lost"):
            again = await started(disk.after_crash(mode), first_id=1000)
            assert values_of(again.topics.partition("orders", 0).log) == values_of(fresh)

    run(test)


def test_old_log_takes_and_gives_nothing_any_more() -> None:
    async def test() -> None:
        host = await started()
        topic = await host.topics.create("orders", partitions=1, overrides={})
        log = topic.partitions[0].log
        append(log, batch_of(b"a"))
        task = log.begin_sync()
        await host.topics.delete("orders")
        new = await host.topics.create("orders", partitions=1, overrides={})
        [refusal] = log.append([batch_of(b"b")])
        assert isinstance(refusal, StorageFailure)
        with pytest.raises(StorageFailure):
            log.read(0, 100)
        # A sync that comes too late touches nothing.
        operations = host.filesystem.operations  # type: ignore[attr-defined]
        before = len(operations)
        with pytest.raises(OSError, match="a sync before"):
            task.run()
        log.finish_sync(task, OSError(5, "too late"))
        assert len(operations) == before
        assert append(new.partitions[0].log, batch_of(b"c")) == [0]

    run(test)


def test_waiters_of_a_deleted_log_are_told() -> None:
    async def test() -> None:
        host = await started()
        topic = await host.topics.create("orders", partitions=1, overrides={})
        log = topic.partitions[0].log
        loop = asyncio.get_running_loop()
        flusher = Flusher(threads=0, wake=lambda: None)
        told: list[StorageFailure | None] = []
        append(log, batch_of(b"a"))
        flusher.when_durable(log, 1, told.append)
        append(log, batch_of(b"b"))
        flusher.when_durable(log, 2, told.append)
        await host.topics.delete("orders")
        # Only now does a thread get to it.
        (job_log, task) = flusher._jobs.get_nowait() or (log, log.begin_sync())
        assert job_log is log
        error: OSError | None = None
        try:
            await loop.run_in_executor(None, task.run)
        except OSError as caught:
            error = caught
        flusher._finished.put(((log, task), error, 0))
        flusher.collect()
        assert [type(each) for each in told] == [StorageFailure, StorageFailure]
        flusher.close()

    run(test)


def test_topic_is_deleted_once() -> None:
    async def test() -> None:
        host = await started()
        await host.topics.create("orders", partitions=1, overrides={})
        first, second = await asyncio.gather(
            host.topics.delete("orders"), host.topics.delete("orders"), return_exceptions=True
        )
        assert first is None
        assert isinstance(second, UnknownTopic)

    run(test)


def test_name_is_taken_until_the_files_are_out_of_the_way() -> None:
    async def test() -> None:
        host = await started()
        await host.topics.create("orders", partitions=1, overrides={})
        deletion = asyncio.create_task(host.topics.delete("orders"))
        await asyncio.sleep(0)
        with pytest.raises(AlreadyExists):
            await host.topics.create("orders", partitions=1, overrides={})
        with pytest.raises(UnknownTopic):
            await host.topics.ensure("orders")
        await deletion
        await host.topics.create("orders", partitions=1, overrides={})

    run(test)


def test_partitions_that_are_being_added_go_with_the_topic() -> None:
    async def test() -> None:
        host = await started()
        await host.topics.create("orders", partitions=1, overrides={})
        added, deleted = await asyncio.gather(
            host.topics.add_partitions("orders", 50),
            host.topics.delete("orders"),
            return_exceptions=True,
        )
        assert isinstance(added, UnknownTopic)
        assert deleted is None
        assert [log.name for log in host.directory.logs() if "orders" in log.name] == []
        assert "orders" not in host.topic_directories()

    run(test)


def test_failure_that_nobody_waits_for_any_more_is_quiet() -> None:
    async def test() -> None:
        loose: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: loose.append(told))
        host = await started()
        topic = await host.topics.create("orders", partitions=1, overrides={})
        async with topic.turn:
            addition = asyncio.create_task(host.topics.add_partitions("orders", 2))
            deletion = asyncio.create_task(host.topics.delete("orders"))
            await asyncio.sleep(0)
            addition.cancel()
            await asyncio.wait([addition])
        await deletion
        await host.topics.close()
        gc.collect()
        assert loose == []

    run(test)


def test_brokers_own_topic_is_not_deleted() -> None:
    async def test() -> None:
        host = await started()
        with pytest.raises(InvalidName):
            await host.topics.delete(OFFSETS_TOPIC)
        with pytest.raises(UnknownTopic):
            await host.topics.delete("nope")
        assert host.topics.get(OFFSETS_TOPIC).is_internal

    run(test)


def test_listeners_hear_of_a_topic_that_is_gone() -> None:
    async def test() -> None:
        host = await started()
        heard: list[Topic] = []

        def broken(topic: Topic) -> None:
            raise RuntimeError(topic.name)

        host.topics.on_deleted += [broken, heard.append]
        topic = await host.topics.create("orders", partitions=1, overrides={})
        await host.topics.delete("orders")
        assert heard == [topic]
        assert topic.partitions[0].log.is_closed

    run(test)


def test_files_are_removed_later() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        host = await started(disk)
        topic = await host.topics.create("orders", partitions=2, overrides={})
        append(topic.partitions[0].log, batch_of(b"a"))
        await host.topics.delete("orders")
        assert disk.directories(f"{PATH}/deleted") == [topic.topic_id.hex()]
        # A process that ends before that leaves it to the next one.
        again = await started(disk.after_crash("kept"), first_id=1000)
        for each in (host, again):
            await each.housekeeping.remove_deleted()
            assert each.filesystem.directories(f"{PATH}/deleted") == []
            assert each.directory.take_leftovers() == []

    run(test)


def test_files_that_cannot_be_moved_keep_the_name_until_the_next_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "millstream")

    async def test() -> None:
        disk = FakeFilesystem()
        host = await started(disk)
        await host.topics.create("orders", partitions=1, overrides={})
        disk.fail_sync(f"{PATH}/topics")
        await host.topics.delete("orders")
        with pytest.raises(UnknownTopic):
            host.topics.get("orders")
        with pytest.raises(AlreadyExists):
            await host.topics.create("orders", partitions=1, overrides={})
        again = await started(disk.after_crash("kept"), first_id=1000)
        assert "topic 'orders' was being deleted" in caplog.text
        created = await again.topics.create("orders", partitions=1, overrides={})
        assert isinstance(created.partitions[0].log, LocalLog)

    run(test)


def test_topic_deleted_on_a_full_disk_gives_its_room_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        host = await started(disk)
        topic = await host.topics.create("orders", partitions=1, overrides={})
        for _ in range(50):
            append(topic.partitions[0].log, batch_of(b"a" * 1000))
        await host.housekeeping.checkpoint()
        # Room for the catalog's next record, which may fit in its last sector, and nothing else.
        disk.space_bytes = disk.used_bytes
        try:
            await host.topics.delete("orders")
        except DiskFull:
            disk.space_bytes += SECTOR_BYTES
            await host.topics.delete("orders")
        assert "No space left" in caplog.text
        await host.housekeeping.remove_deleted()
        assert disk.used_bytes < disk.space_bytes - 50_000
        again = await started(disk.after_crash("kept"), first_id=1000)
        assert again.shape() == {}
        new = await again.topics.create("orders", partitions=1, overrides={})
        assert new.partitions[0].log.end_offset == 0

    run(test)
