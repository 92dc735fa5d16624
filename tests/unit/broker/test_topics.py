"""The broker's topics: found, created, changed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.producer_ids import ProducerIds
from millstream.broker.topics import Topic
from millstream.clock import ManualClock
from millstream.errors import (
    AlreadyExists,
    InvalidName,
    InvalidPartitions,
    InvalidSetting,
    OffsetOutOfRange,
    StorageFailure,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from millstream.records import Record, build
from millstream.settings.log import LogSettings
from millstream.settings.names import CATALOG_TOPIC, OFFSETS_TOPIC
from millstream.settings.storage import StorageSettings
from millstream.settings.topics import TopicSettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.local_log import LocalLog
from tests.fakes.fake_broker import PATH, FakeBroker
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.log_steps import append
from tests.fakes.patience import HANG_S
from tests.fakes.sample_batches import batch_of, values_of


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def started(disk: FakeFilesystem | None = None, **options: Any) -> FakeBroker:
    return await FakeBroker(disk, **options).start()


async def restarted(host: FakeBroker, **options: Any) -> FakeBroker:
    await host.stop()
    return await started(host.disk, first_id=1000, **options)


# --- looking up


def test_created_topic_is_found_by_name_id_and_partition() -> None:
    async def test() -> None:
        host = await started()
        topic = await host.topics.create("orders", partitions=3, overrides={})
        assert host.topics.get("orders") is topic
        assert host.topics.by_id(topic.topic_id) is topic
        assert [p.number for p in topic.partitions] == [0, 1, 2]
        assert host.topics.partition("orders", 2) is topic.partitions[2]
        assert topic in host.topics.all()
        assert not topic.is_internal

    run(test)


def test_what_is_not_there_is_not_found() -> None:
    async def test() -> None:
        host = await started()
        await host.topics.create("orders", partitions=1, overrides={})
        with pytest.raises(UnknownTopic):
            host.topics.get("nope")
        with pytest.raises(UnknownTopicId):
            host.topics.by_id(bytes(16))
        with pytest.raises(UnknownTopic, match="no topic 'nope'"):
            host.topics.partition("nope", 0)
        for number in (1, -1):
            with pytest.raises(UnknownPartition, match=f"no partition {number}: it has 1"):
                host.topics.partition("orders", number)

    run(test)


def test_brokers_own_topic_is_there_from_the_start_and_internal() -> None:
    async def test() -> None:
        host = await started()
        topic = host.topics.get(OFFSETS_TOPIC)
        assert topic.is_internal
        assert len(topic.partitions) == 1
        assert topic.settings.cleanup_policy == {"compact"}
        state = host.topics.state_log(OFFSETS_TOPIC)
        state.append([(b"k", b"v")])
        assert [record.value for record in state.replay()] == [b"v"]
        again = await restarted(host)
        assert again.topics.get(OFFSETS_TOPIC).topic_id == topic.topic_id

    run(test)


def test_cluster_id_is_made_up_once() -> None:
    async def test() -> None:
        host = await started()
        cluster_id = host.topics.cluster_id
        assert len(cluster_id) == 22
        assert (await restarted(host)).topics.cluster_id == cluster_id

    run(test)


def test_brokers_own_topic_does_not_follow_the_defaults() -> None:
    async def test() -> None:
        host = await started(log=LogSettings(max_message_bytes=100, flush_ms=9))
        own = host.topics.partition(OFFSETS_TOPIC, 0).log
        assert own.settings.max_message_bytes > 1_000_000
        assert own.settings.flush_ms == LogSettings().flush_ms
        assert host.topics.state_log(OFFSETS_TOPIC).append([(b"k", b"v" * 1000)]) == 1

    run(test)


# --- creating


def test_topic_survives_a_restart_with_all_that_is_known_of_it() -> None:
    async def test() -> None:
        host = await started()
        own = {"segment.bytes": "1000", "cleanup.policy": "compact,delete"}
        topic = await host.topics.create("orders", partitions=2, overrides=own)
        append(topic.partitions[1].log, batch_of(b"a"))
        again = (await restarted(host)).topics.get("orders")
        assert again.topic_id == topic.topic_id
        assert again.overrides == own
        assert again.settings.segment_bytes == 1000
        assert again.partitions[1].log.settings == again.settings == topic.settings
        assert values_of(again.partitions[1].log) == [b"a"]

    run(test)


def test_topic_without_a_number_of_partitions_gets_the_brokers() -> None:
    async def test() -> None:
        host = await started(topics=TopicSettings(num_partitions=5))
        topic = await host.topics.create("orders", partitions=-1, overrides={})
        assert len(topic.partitions) == 5
        assert len((await host.topics.ensure("auto")).partitions) == 5

    run(test)


def test_two_creations_at_once_make_one_topic() -> None:
    async def test() -> None:
        host = await started()
        first, second = await asyncio.gather(
            host.topics.create("orders", partitions=1, overrides={}),
            host.topics.create("orders", partitions=2, overrides={}),
            return_exceptions=True,
        )
        assert isinstance(first, Topic)
        assert isinstance(second, AlreadyExists)
        assert len(host.topics.get("orders").partitions) == 1

    run(test)


def test_all_who_first_ask_for_a_topic_at_once_share_it() -> None:
    async def test() -> None:
        host = await started()
        found = await asyncio.gather(*(host.topics.ensure("orders") for _ in range(5)))
        assert {id(topic) for topic in found} == {id(host.topics.get("orders"))}
        assert await host.topics.ensure("orders") is found[0]

    run(test)


def test_creation_goes_on_when_the_client_has_gone() -> None:
    async def test() -> None:
        host = await started()
        creation = asyncio.create_task(host.topics.create("orders", partitions=1, overrides={}))
        await asyncio.sleep(0)
        creation.cancel()
        await host.topics.close()
        assert host.topics.get("orders").partitions

    run(test)


def test_refused_creation_changes_nothing() -> None:
    async def test() -> None:
        host = await started()
        for name, partitions, overrides, error in (
            ("a b", 1, {}, InvalidName),
            ("__transaction_state", 1, {}, InvalidName),
            ("a", 0, {}, InvalidPartitions),
            ("a", 1, {"x": "y"}, InvalidSetting),
        ):
            with pytest.raises(error):
                host.topics.check_create(name, partitions=partitions, overrides=overrides)
            with pytest.raises(error):
                await host.topics.create(name, partitions=partitions, overrides=overrides)
        assert host.shape() == {}
        assert (await restarted(host)).shape() == {}

    run(test)


def test_checked_creation_tells_the_settings_and_changes_nothing() -> None:
    async def test() -> None:
        host = await started(log=LogSettings(flush_ms=7))
        settings = host.topics.check_create("orders", partitions=1, overrides={"retention.ms": "5"})
        assert (settings.retention_ms, settings.flush_ms) == (5, 7)
        assert host.shape() == {}

    run(test)


def test_creation_that_the_disk_refuses_leaves_the_name_free() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        host = await started(disk)
        # In the way of the topic's directory.
        disk.open(f"{PATH}/topics/orders", create=True).close()
        with pytest.raises(StorageFailure):
            await host.topics.create("orders", partitions=1, overrides={})
        assert host.shape() == {}
        await host.topics.create("orders", partitions=1, overrides={})
        assert list((await restarted(host)).shape()) == ["orders"]

    run(test)


def test_listeners_hear_of_what_is_new() -> None:
    async def test() -> None:
        host = await started()
        heard: list[tuple[str, int]] = []
        host.topics.on_changed.append(lambda t: heard.append((t.name, len(t.partitions))))
        await host.topics.create("orders", partitions=1, overrides={})
        await host.topics.add_partitions("orders", 3)
        assert heard == [("orders", 1), ("orders", 3)]

    run(test)


# --- changing


def test_added_partitions_are_there_at_once_and_after_a_restart() -> None:
    async def test() -> None:
        host = await started()
        topic = await host.topics.create("orders", partitions=1, overrides={"flush.ms": "3"})
        await host.topics.add_partitions("orders", 3)
        assert [p.number for p in topic.partitions] == [0, 1, 2]
        assert topic.partitions[2].log.settings.flush_ms == 3
        assert len((await restarted(host)).topics.get("orders").partitions) == 3

    run(test)


def test_partitions_added_twice_at_once_come_in_order() -> None:
    async def test() -> None:
        host = await started()
        topic = await host.topics.create("orders", partitions=1, overrides={})
        await asyncio.gather(
            host.topics.add_partitions("orders", 3), host.topics.add_partitions("orders", 6)
        )
        assert [p.number for p in topic.partitions] == [0, 1, 2, 3, 4, 5]
        assert len({id(p.log) for p in topic.partitions}) == 6

    run(test)


def test_fewer_partitions_are_refused() -> None:
    async def test() -> None:
        host = await started()
        await host.topics.create("orders", partitions=2, overrides={})
        for total in (2, 1):
            with pytest.raises(InvalidPartitions):
                host.topics.check_add_partitions("orders", total)
            with pytest.raises(InvalidPartitions):
                await host.topics.add_partitions("orders", total)
        with pytest.raises(UnknownTopic):
            await host.topics.add_partitions("nope", 3)

    run(test)


def test_altered_settings_reach_the_logs_and_last() -> None:
    async def test() -> None:
        host = await started()
        topic = await host.topics.create("orders", partitions=2, overrides={"flush.ms": "3"})
        host.topics.check_alter("orders", {"retention.ms": "5"})
        assert topic.overrides == {"flush.ms": "3"}
        await host.topics.alter("orders", {"retention.ms": "5", "flush.ms": None})
        assert topic.overrides == {"retention.ms": "5"}
        assert topic.settings.retention_ms == 5
        assert {p.log.settings.retention_ms for p in topic.partitions} == {5}
        assert topic.settings.flush_ms == LogSettings().flush_ms
        again = (await restarted(host)).topics.get("orders")
        assert again.settings == again.partitions[0].log.settings == topic.settings

    run(test)


def test_settings_altered_while_partitions_are_added_are_theirs_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        host = await started()
        topic = await host.topics.create("orders", partitions=1, overrides={})
        is_opened, may_go_on = threading.Event(), threading.Event()
        open_new = host.directory.open_new

        def open_slowly(*arguments: Any) -> list[LocalLog]:
            logs = open_new(*arguments)
            is_opened.set()
            assert may_go_on.wait(HANG_S)
            return logs

        monkeypatch.setattr(host.directory, "open_new", open_slowly)
        addition = asyncio.create_task(host.topics.add_partitions("orders", 2))
        await asyncio.to_thread(is_opened.wait, HANG_S)
        await host.topics.alter("orders", {"max.message.bytes": "777"})
        may_go_on.set()
        await addition
        assert [p.log.settings.max_message_bytes for p in topic.partitions] == [777, 777]

    run(test)


def test_altered_segment_size_counts_from_the_next_append() -> None:
    async def test() -> None:
        host = await started()
        topic = await host.topics.create("orders", partitions=1, overrides={})
        log = topic.partitions[0].log
        append(log, batch_of(b"a" * 200), batch_of(b"b" * 200))
        assert len(log.segments()) == 1
        await host.topics.alter("orders", {"segment.bytes": "300"})
        append(log, batch_of(b"c" * 200))
        append(log, batch_of(b"d" * 200))
        assert len(log.segments()) == 3
        assert len(values_of(log)) == 4

    run(test)


def test_setting_that_this_version_does_not_take_is_left_out_with_a_note(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        host = await started()
        await host.topics.create("orders", partitions=1, overrides={"retention.ms": "5"})
        topic_id = host.topics.get("orders").topic_id.hex()
        value = f'{{"id":"{topic_id}","partitions":1,"settings":{{"retention.ms":"x","a":"1"}}}}'
        catalog = host.directory.log(CATALOG_TOPIC, 0)
        append(catalog, build([Record(0, 0, b"topic/orders", value.encode())]))
        again = await restarted(host)
        notes = [record.getMessage() for record in caplog.records]
        assert len(notes) == 2
        assert all("orders" in note for note in notes)
        assert again.topics.get("orders").settings == LogSettings()

    run(test)


# --- records


def test_records_are_deleted_up_to_an_offset() -> None:
    async def test() -> None:
        host = await started()
        topic = await host.topics.create("orders", partitions=1, overrides={})
        [partition] = topic.partitions
        append(partition.log, batch_of(b"a", b"b", b"c"))
        assert await host.topics.delete_records(partition, 2) == 2
        assert await host.topics.delete_records(partition, 1) == 2
        with pytest.raises(OffsetOutOfRange):
            await host.topics.delete_records(partition, 4)
        assert (await restarted(host)).topics.partition("orders", 0).log.start_offset == 2

    run(test)


# --- what other ways of making logs left behind


def data_directory(path: Path) -> DataDirectory:
    """One that no broker has written a catalog to."""
    return DataDirectory(
        LocalFilesystem(),
        str(path),
        storage=StorageSettings(),
        defaults=LogSettings(),
        clock=ManualClock(),
    )


def test_own_topic_that_the_catalog_lost_is_adopted_with_its_own_settings(tmp_path: Path) -> None:
    directory = data_directory(tmp_path)
    directory.create("__consumer_offsets", 0)
    directory.close()

    async def test() -> None:
        host = await FakeBroker(LocalFilesystem(), str(tmp_path)).start()
        adopted = host.topics.get("__consumer_offsets")
        assert adopted.settings.cleanup_policy == frozenset({"compact"})
        await host.stop()

    run(test)


def test_topic_that_no_catalog_knew_is_adopted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millstream")
    directory = data_directory(tmp_path)
    append(directory.create("orders", 2), batch_of(b"a"))
    directory.close()
    (tmp_path / "topics" / "not a name").mkdir()

    async def test() -> None:
        host = await FakeBroker(LocalFilesystem(), str(tmp_path)).start()
        assert "topic 'orders' was found on disk" in caplog.text
        assert "not a name" in caplog.text
        topic = host.topics.get("orders")
        assert [p.log.end_offset for p in topic.partitions] == [0, 0, 1]
        await host.stop()
        caplog.clear()
        again = await FakeBroker(LocalFilesystem(), str(tmp_path), first_id=1000).start()
        assert "found on disk" not in caplog.text
        assert again.topics.get("orders").topic_id == topic.topic_id
        assert values_of(again.topics.partition("orders", 2).log) == [b"a"]
        await again.stop()

    run(test)


def test_partition_that_the_disk_lost_is_created_again() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        host = await started(disk)
        await host.topics.create("orders", partitions=2, overrides={})
        await host.stop()
        for number in (0, 1):
            disk.remove_directory(f"{PATH}/topics/orders/{number}")
        again = await started(disk, first_id=1000)
        assert [p.log.end_offset for p in again.topics.get("orders").partitions] == [0, 0]

    run(test)


def test_log_that_cannot_be_opened_fails_alone() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        host = await started(disk)
        topic = await host.topics.create("orders", partitions=2, overrides={})
        for partition in topic.partitions:
            append(partition.log, batch_of(b"a", b"b"))
            partition.log.delete_records(1)
        await host.stop()
        disk.flip(f"{PATH}/topics/orders/0/log-start-offset", 3, 1)
        again = await started(disk, first_id=1000)
        broken, sound = again.topics.get("orders").partitions
        assert values_of(sound.log) == [b"b"]
        for _ in range(2):
            with pytest.raises(StorageFailure):
                _ = broken.log
        # It can still be altered, and deleted.
        await again.topics.alter("orders", {"flush.ms": "5"})
        await again.topics.delete("orders")
        created = await again.topics.create("orders", partitions=1, overrides={})
        assert created.partitions[0].log.end_offset == 0

    run(test)


# --- producer ids


def test_producer_ids_are_never_given_twice() -> None:
    async def test() -> None:
        disk = FakeFilesystem()
        host = await started(disk)
        ids = ProducerIds(host.topics.allocate_producer_ids)
        given = await asyncio.gather(*(ids.next() for _ in range(1500)))
        assert sorted(given) == list(range(1500))
        assert host.topics.next_producer_id == 2000
        crashed = await started(disk.after_crash("lost"), first_id=1000)
        assert await ProducerIds(crashed.topics.allocate_producer_ids).next() == 2000

    run(test)
