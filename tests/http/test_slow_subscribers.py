"""Clients that do not read, brokers that stop or die: nothing is lost, and memory stays bounded."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from millstream.gateways.http.door import HttpDoor
from millstream.settings.http import HttpSettings
from tests.clients.broker_process import BrokerProcess
from tests.fakes.open_door import run
from tests.fakes.patience import HANG_S
from tests.fakes.streaming_door import SocketClient, client_of, socket_client, streaming_door

pytestmark = pytest.mark.system

_MIB = 1 << 20


def anonymous_bytes(pid: int) -> int:
    """What a process has in memory that is in no file."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not tell")


async def subscribed(stack: AsyncExitStack, broker: BrokerProcess, **options: Any) -> SocketClient:
    client = await stack.enter_async_context(client_of(broker, **options))
    await client.result("subscribe", topic="t", create=True)
    return client


async def offsets(client: SocketClient, count: int) -> list[int]:
    return [each["offset"] for each in await client.messages(count)]


def test_stalled_clients_hold_up_nobody_cost_little_and_get_everything_later(
    tmp_path: Path,
) -> None:
    frames, per_frame, size = 30, 50, 10_000
    total = frames * per_frame

    async def main(broker: BrokerProcess) -> None:
        async with AsyncExitStack() as stack:
            # The library stops to read a socket when one frame waits.
            stalled = [await subscribed(stack, broker, max_queue=1) for _ in range(8)]
            others = [await subscribed(stack, broker) for _ in range(20)]
            sender = await stack.enter_async_context(client_of(broker))
            reading = [asyncio.ensure_future(offsets(each, total)) for each in others]
            before_bytes = anonymous_bytes(broker.pid)
            for _ in range(frames):
                many = [{"value": "x" * size} for _ in range(per_frame)]
                await sender.result("send", topic="t", messages=many)
            # All others have all of it, while the stalled ones have read nothing.
            assert await asyncio.gather(*reading) == [list(range(total))] * 20
            # In memory their messages would be 120 MB.
            assert anonymous_bytes(broker.pid) - before_bytes < 40 * _MIB
            for each in stalled:
                assert await offsets(each, total) == list(range(total))

    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        run(main(broker))
        assert broker.complaints() == []
        broker.stop()


def test_stalled_event_streams_cost_little_and_get_everything_later(tmp_path: Path) -> None:
    total, size, streams = 1500, 10_000, 6

    async def main(broker: BrokerProcess) -> None:
        async with client_of(broker) as sender:
            await sender.result("create_topic", topic="t")
            opened = []
            for _ in range(streams):
                # What is not read stays in the socket.
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", broker.http_port, limit=100_000
                )
                writer.write(b"GET /topics/t/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b"200 OK" in await reader.readline()
                opened.append((reader, writer))
            before_bytes = anonymous_bytes(broker.pid)
            for start in range(0, total, 50):
                many = [{"value": f"{n:05} {'x' * size}"} for n in range(start, start + 50)]
                await sender.result("send", topic="t", messages=many)
            # In memory their messages would be 90 MB.
            assert anonymous_bytes(broker.pid) - before_bytes < 30 * _MIB
            for reader, writer in opened:
                assert await numbers_of_events(reader, total) == list(range(total))
                writer.close()

    async def numbers_of_events(reader: asyncio.StreamReader, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            line = await asyncio.wait_for(reader.readline(), HANG_S)
            if line.startswith(b"id: 0:"):
                found.append(int(line[6:]))
        return found

    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        run(main(broker))
        assert broker.complaints() == []
        broker.stop()


def test_client_that_reads_no_answers_is_not_read(tmp_path: Path) -> None:
    total = 8_000
    asked = 0

    async def ask_all(client: SocketClient) -> None:
        nonlocal asked
        for number in range(total):
            # More than sockets hold.
            await client.say(id=number, op="describe_topic", topic="t", padding="x" * 2000)
            asked = number

    async def until_held_back() -> None:
        """When nothing more is taken for a while."""
        before, still = -1, 0
        while still < 10:
            still = still + 1 if asked == before else 0
            before = asked
            await asyncio.sleep(0.03)

    async def main(broker: BrokerProcess) -> None:
        async with client_of(broker, max_queue=1) as client:
            await client.result("create_topic", topic="t", partitions=50)
            before_bytes = anonymous_bytes(broker.pid)
            asking = asyncio.ensure_future(ask_all(client))
            await until_held_back()
            assert not asking.done()
            # In memory requests and answers would be more than 40 MB.
            assert anonymous_bytes(broker.pid) - before_bytes < 20 * _MIB
            async with client_of(broker) as other:
                assert "result" in await other.ask("ping")
            found = {(await client.hear())["id"] for _ in range(total)}
            assert found == set(range(total))
            await asking

    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        run(main(broker))
        assert broker.complaints() == []


def test_held_back_client_is_told_what_retention_took(tmp_path: Path) -> None:
    async def main() -> None:
        async with streaming_door(tmp_path) as door, door.client() as client:
            many = [{"value": str(n)} for n in range(10)]
            await client.result("send", topic="t", messages=many)
            await client.say(id="s", op="subscribe", topic="t", prefetch=2, **{"from": 0})
            await client.hear()
            assert await offsets(client, 2) == [0, 1]
            await door.broker.topics.delete_records(door.broker.topics.partition("t", 0), 8)
            # It stands in a page that it has begun, of which it gets the rest.
            await client.say(op="credit", subscription="s", messages=1)
            assert await offsets(client, 1) == [2]
            sought = await client.result("seek", subscription="s", to=1)
            assert sought["positions"] == {"0": 1}
            skipped = await client.hear()
            assert skipped["skipped"] == {"partition": 0, "from": 1, "to": 8}
            assert await offsets(client, 2) == [8, 9]

    run(main())


def test_stopping_broker_says_goodbye_also_to_stalled_clients(tmp_path: Path) -> None:
    async def main(broker: BrokerProcess) -> None:
        async with AsyncExitStack() as stack:
            clients = [await subscribed(stack, broker) for _ in range(5)]
            stalled = await subscribed(stack, broker, max_queue=1)
            many = [{"value": "x" * 100_000} for _ in range(100)]
            await clients[0].say(op="send", topic="t", messages=many)
            for each in clients:
                await each.messages(100)
            await asyncio.to_thread(broker.stop)
            for each in clients:
                assert await each.end() == (1001, "the broker stops")
            stalled.connection.transport.abort()

    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        run(main(broker))
        assert broker.complaints() == []


def test_stopping_broker_does_not_tell_queues_of_an_end(tmp_path: Path) -> None:
    async def main(broker: BrokerProcess) -> None:
        async with client_of(broker) as client:
            await client.result("create_topic", topic="t")
            await client.result("queue", topic="t", name="q")
            await asyncio.to_thread(broker.stop)
            with pytest.raises(ConnectionClosed, match="the broker stops"):
                raise AssertionError(await client.hear())
            assert await client.end() == (1001, "the broker stops")

    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        run(main(broker))
        assert broker.complaints() == []


def test_killed_broker_knows_every_ack_that_it_answered(tmp_path: Path) -> None:
    async def before(broker: BrokerProcess) -> None:
        async with client_of(broker) as client:
            await client.result("send", topic="t", messages=[{"value": "x"}] * 100)
            await client.say(id="g", op="subscribe", topic="t", group="g")
            await client.hear()
            await client.messages(100)
            await client.result("ack", subscription="g", ids=["0:41"])
            await client.result("unsubscribe", subscription="g")
            await client.say(id="q", op="queue", topic="t", name="q")
            await client.hear()
            await client.messages(100)
            await client.result("ack", subscription="q", ids=[f"0:{n}" for n in range(0, 100, 2)])
            await asyncio.to_thread(broker.kill)
            await client.end()

    async def after(broker: BrokerProcess) -> None:
        async with client_of(broker) as client:
            subscribed = await client.result("subscribe", topic="t", group="g")
            assert subscribed["positions"] == {"0": 42}
            assert await offsets(client, 58) == list(range(42, 100))
            await client.say(id="q", op="queue", topic="t", name="q")
            await client.hear()
            assert await offsets(client, 50) == list(range(1, 100, 2))
            assert await client.is_silent()

    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        run(before(broker))
        broker.start()
        run(after(broker))


def test_starting_broker_asks_to_come_again() -> None:
    async def main() -> None:
        door = HttpDoor(HttpSettings(listener="127.0.0.1:0"))
        address = door.open()
        try:
            for path in ("/ws", "/topics/t/ws"):
                async with socket_client(address, path) as client:
                    code, reason = await client.end()
                    assert code == 1013
                    assert reason is not None
                    assert "starting" in reason
        finally:
            await door.close()

    run(main())
