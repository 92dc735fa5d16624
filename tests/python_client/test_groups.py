"""Members of a group share the partitions of a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millstream.client import AsyncConnection, AsyncSubscription
from millstream.client.kafka import Cluster
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.fakes.patient_client import connect, connect_async
from tests.python_client.conftest import StartBroker


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_S):
        while not is_so():  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0.02)


async def fill(client: AsyncConnection, name: str, *, partitions: int, each: int) -> list[str]:
    await client.topics.create(name, partitions=partitions)
    values = []
    for partition in range(partitions):
        for number in range(each):
            values.append(f"{partition}/{number}")
            await client.send(name, values[-1], partition=partition)
    return values


async def collect(subscription: AsyncSubscription, seen: list[str]) -> None:
    async for message in subscription:
        seen.append(message.text)
        message.ack()


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(2 * HANG_S):
            await main()

    asyncio.run(limited())


def test_members_share_partitions_and_each_message_comes_to_one(
    broker: BrokerProcess, name: str
) -> None:
    async def main() -> None:
        async with connect_async(broker.url) as first, connect_async(broker.url) as second:
            await first.topics.create(name, partitions=4)
            members = [
                await client.subscribe(name, group=name, start="earliest")
                for client in (first, second)
            ]
            await until(lambda: [len(each.assigned) for each in members] == [2, 2])
            assert {*members[0].assigned, *members[1].assigned} == {0, 1, 2, 3}
            seen: list[list[str]] = [[], []]
            tasks = [
                asyncio.create_task(collect(*pair)) for pair in zip(members, seen, strict=True)
            ]
            values = [f"{number % 4}/{number}" for number in range(40)]
            for number, value in enumerate(values):
                await first.send(name, value, partition=number % 4)
            await until(lambda: sum(map(len, seen)) >= 40)
            for member, got in zip(members, seen, strict=True):
                assert {int(each[0]) for each in got} == set(member.assigned)
            assert sorted(seen[0] + seen[1]) == sorted(values)
            described = await first.groups.describe(name)
            assert (described.type, len(described.members)) == ("consumer", 2)
            # Whoever leaves gives its partitions to the others.
            await members[1].close()
            await until(lambda: members[0].assigned == (0, 1, 2, 3))
            for number in range(4):
                await first.send(name, f"{number}/after", partition=number)
            await until(lambda: len(seen[0] + seen[1]) >= 44)
            assert sorted(seen[0][-4:]) == [f"{number}/after" for number in range(4)]
            await members[0].close()
            await asyncio.gather(*tasks)

    run(main)


def test_group_goes_on_where_it_has_acknowledged(broker: BrokerProcess, name: str) -> None:
    async def main() -> None:
        async with connect_async(broker.url) as client:
            values = await fill(client, name, partitions=2, each=10)
            seen: list[str] = []
            async with await client.subscribe(name, group=name) as member:
                while len(seen) < 12:
                    message = await member.receive(timeout_s=HANG_S)
                    assert message is not None
                    seen.append(message.text)
                    await message.ack()
            async with await client.subscribe(name, group=name) as member:
                while len(seen) < 20:
                    message = await member.receive(timeout_s=HANG_S)
                    assert message is not None
                    seen.append(message.text)
                    await message.ack()
                assert await member.receive(timeout_s=0.2) is None
            assert sorted(seen) == sorted(values)

    run(main)
    with Cluster(broker.address, timeout_s=HANG_S) as cluster:
        assert cluster.groups.offsets(name) == {(name, 0): 10, (name, 1): 10}


def test_cursor_reads_everything_alone_and_goes_on(broker: BrokerProcess, name: str) -> None:
    with connect(broker.url) as client:
        client.send_many(name, ["0", "1", "2"])
        with (
            client.subscribe(name, cursor=name) as first,
            client.subscribe(name, cursor=name) as second,
        ):
            assert [next(first).text, next(second).text] == ["0", "0"]
            next(first).ack()
        with client.subscribe(name, cursor=name) as third:
            assert next(third).text == "2"


def test_acknowledgement_of_a_partition_that_was_given_back_moves_nothing(
    broker: BrokerProcess, name: str
) -> None:
    async def main() -> None:
        async with connect_async(broker.url) as client:
            await fill(client, name, partitions=2, each=5)
            first = await client.subscribe(name, group=name)
            held = [await first.receive(timeout_s=HANG_S) for _ in range(10)]
            second = await client.subscribe(name, group=name)
            await until(lambda: len(first.assigned) == len(second.assigned) == 1)
            for message in held:
                assert message is not None
                await message.ack()
            [kept], [given] = first.assigned, second.assigned
            offsets = {
                each.partition: each.offset for each in (await client.groups.describe(name)).offsets
            }
            assert offsets == {kept: 5, given: None}
            again = [await second.receive(timeout_s=HANG_S) for _ in range(5)]
            assert {each.partition for each in again if each is not None} == {given}

    run(main)


@pytest.mark.system
def test_group_outlives_the_broker(start_broker: StartBroker) -> None:
    broker = start_broker()

    async def main() -> None:
        async with connect_async(broker.url) as client:
            values = await fill(client, "t", partitions=2, each=20)
            member = await client.subscribe("t", group="g")
            seen: list[str] = []
            for _ in range(15):
                message = await member.receive(timeout_s=HANG_S)
                assert message is not None
                seen.append(message.text)
                await message.ack()
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            while set(seen) != set(values):
                message = await member.receive(timeout_s=HANG_S)
                assert message is not None
                seen.append(message.text)
                await message.ack()
            # What was acknowledged while the broker ran does not come again.
            assert set(seen[:15]).isdisjoint(seen[15:])

    run(main)


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": "g", "cursor": "c"},
        {"group": "g", "subscription": "s"},
        {"group": "g", "type": "shared"},
    ],
)
def test_forms_of_subscribing_exclude_each_other(
    broker: BrokerProcess, name: str, wrong: dict[str, str]
) -> None:
    with connect(broker.url) as client, pytest.raises(ValueError, match="give"):
        client.subscribe(name, **wrong)  # type: ignore[arg-type]
    with connect(broker.url) as client, pytest.raises(ValueError, match="partitions="):
        client.subscribe(name, group="g", partitions=[0])
