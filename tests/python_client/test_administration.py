"""Topics and groups, administered by both clients of a running broker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, TopicPartition

from millstream.errors import (
    InvalidName,
    InvalidPartitions,
    InvalidRequest,
    InvalidSetting,
    NonEmptyGroup,
    NotFound,
    OffsetOutOfRange,
    UnknownGroup,
    UnknownTopic,
)
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patient_client import connect, connect_async


def test_group_is_listed_described_moved_and_deleted(broker: BrokerProcess, name: str) -> None:
    group = f"{name} ü?#%"
    with connect(broker.url) as connection:
        connection.topics.create(name, partitions=2)
        for number in range(10):
            connection.send(name, f"{number}", partition=number % 2, timestamp=1000 + number)
        with connection.subscribe(name, cursor=group, partitions=[0]) as reader:
            next(reader).ack()
        groups = connection.groups
        assert group in [each.name for each in groups.list()]

        described = groups.describe(group)
        assert (described.name, described.members, described.lag) == (group, (), 9)
        place, other = described.offsets
        assert (other.partition, other.offset, other.lag, other.never_read) == (1, None, 5, True)
        assert (place.topic, place.partition, place.offset) == (name, 0, 1)
        assert (place.end_offset, place.lag) == (5, 4)

        places = groups.commit(group, name, {0: 3, 1: 4}, metadata="by hand")
        assert [(each.partition, each.offset, each.lag) for each in places] == [
            (0, 3, 2),
            (1, 4, 1),
        ]
        assert {each.metadata for each in places} == {"by hand"}
        with connection.subscribe(name, cursor=group, partitions=[1]) as reader:
            assert next(reader).text == "9"

        assert offsets(groups.reset(group, name, "earliest")) == [0, 0]
        assert offsets(groups.reset(group, name, "latest", partitions=[1])) == [0, 5]
        assert offsets(groups.reset(group, name, 2)) == [2, 2]
        then = datetime.fromtimestamp(1.006, UTC)
        assert offsets(groups.reset(group, name, then)) == [3, 3]

        groups.delete(group)
        assert group not in [each.name for each in groups.list()]
        with pytest.raises(UnknownGroup):
            groups.describe(group)


def offsets(places: tuple[object, ...]) -> list[int]:
    return [each.offset for each in places]  # type: ignore[attr-defined]


def test_group_that_cannot_be_moved_says_why_and_stays(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.send(name, "v")
            await client.groups.commit(name, name, {0: 1})
            with pytest.raises(OffsetOutOfRange, match="5"):
                await client.groups.commit(name, name, {0: 5})
            with pytest.raises(OffsetOutOfRange):
                await client.groups.reset(name, name, 5)
            with pytest.raises(UnknownTopic):
                await client.groups.reset(name, f"{name}.none", "earliest")
            with pytest.raises(NotFound):
                await client.groups.commit(name, name, {7: 0})
            with pytest.raises(UnknownGroup):
                await client.groups.delete(f"{name}.none")
            with pytest.raises(ValueError, match="offsets begin at 0"):
                await client.groups.reset(name, name, -1)
            with pytest.raises(TypeError, match="use commit"):
                await client.groups.reset(name, name, {0: 0})  # type: ignore[arg-type]
            for no_name in ("", ".", ".."):
                with pytest.raises(InvalidName):
                    await client.groups.describe(no_name)
            assert (await client.groups.describe(name)).lag == 0

    asyncio.run(run())


def test_group_with_members_is_described_and_not_moved(broker: BrokerProcess, name: str) -> None:
    with connect(broker.url) as connection:
        connection.send(name, "v")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": name,
                "client.id": "me",
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.subscribe([name])
            while consumer.poll(0.1) is None:
                pass
            consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
            described = connection.groups.describe(name)
            assert described.state == "Stable"
            assert [each.client_id for each in described.members] == ["me"]
            for move in (
                lambda: connection.groups.commit(name, name, {0: 0}),
                lambda: connection.groups.reset(name, name, "earliest"),
                lambda: connection.groups.delete(name),
            ):
                with pytest.raises(NonEmptyGroup):
                    move()
            assert connection.groups.describe(name).offsets[0].offset == 1
        finally:
            consumer.close()


def test_topic_is_configured(broker: BrokerProcess, name: str) -> None:
    async def run() -> None:
        async with connect_async(broker.url) as client:
            await client.topics.create(name, settings={"retention.ms": 1000})
            changed = await client.topics.configure(
                name, settings={"retention.ms": None, "max.message.bytes": 5000}, partitions=3
            )
            assert changed == await client.topics.describe(name)
            assert changed.settings == {"max.message.bytes": "5000"}
            assert len(changed.partitions) == 3
            with pytest.raises(InvalidSetting):
                await client.topics.configure(name, settings={"max.message.bytes": "many"})
            with pytest.raises(InvalidPartitions):
                await client.topics.configure(
                    name, settings={"max.message.bytes": 6000}, partitions=1
                )
            with pytest.raises(InvalidRequest, match="nothing is to be changed"):
                await client.topics.configure(name)
            with pytest.raises(UnknownTopic):
                await client.topics.configure(f"{name}.none", partitions=2)
            assert await client.topics.describe(name) == changed

    asyncio.run(run())


def test_topic_is_configured_without_an_event_loop(broker: BrokerProcess, name: str) -> None:
    with connect(broker.url) as connection:
        connection.topics.create(name)
        changed = connection.topics.configure(name, settings={"retention.ms": 2000})
        assert changed.settings == {"retention.ms": "2000"}
