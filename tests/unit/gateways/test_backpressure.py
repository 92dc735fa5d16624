"""Clients that ask for more than they take, or announce more than they send."""

from __future__ import annotations

import asyncio
import struct
from itertools import chain
from pathlib import Path

import pytest

from millstream.errors import InvalidSetting
from millstream.gateways.kafka.connection import Connection
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.settings.kafka import KafkaSettings
from tests.fakes.direct_transport import DirectTransport
from tests.fakes.open_door import OpenDoor, Runner, open_door, run, run_plainly, until
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import (
    WireClient,
    fetch_request,
    fetched,
    header,
    produce_request,
    produced,
    request_frame,
)

MIB = 1 << 20
PRODUCE, FETCH, METADATA = 9, 12, 9
BIG = 40 * MIB


async def _only_connection(opened: OpenDoor) -> Connection:
    await until(lambda: len(opened.door.connections) == 1)
    [connection] = opened.door.connections
    return connection


async def _filled(opened: OpenDoor) -> None:
    """A topic with a batch that takes its time to be sent."""
    await opened.topic("t")
    writer = await opened.connect()
    assert (await writer.produce("t", batch_of(b"x" * (MIB - 1000)))).error_code == 0
    await writer.close()
    await until(lambda: not opened.door.connections)


@pytest.mark.parametrize("on_loop", [run, run_plainly])
def test_client_that_takes_no_answers_is_not_read_until_it_does(
    on_loop: Runner, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_door(tmp_path, unsent_max_bytes=MIB) as opened:
            await _filled(opened)
            stalled = await opened.connect()
            connection = await _only_connection(opened)
            frames = [stalled.asked.frame(fetch_request("t", 0), FETCH) for _ in range(100)]
            sending = asyncio.get_running_loop().create_task(stalled.send(b"".join(frames)))
            await until(lambda: not connection._is_reading)
            unsent_bytes = connection._transport.get_write_buffer_size()
            assert MIB < unsent_bytes < 3 * MIB, "the limit, and one answer over it"

            other = await opened.connect()
            for n in range(20):
                assert (await other.produce("t", batch_of(b"y"))).base_offset == n + 1
            assert connection._transport.get_write_buffer_size() < 3 * MIB

            # Each answer checks that it is the one that is due.
            for _ in range(100):
                assert len(fetched(await stalled.receive()).records or b"") >= MIB - 1000
            await sending
            assert connection._is_reading

    on_loop(main())


def test_client_with_too_many_unanswered_requests_is_not_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, pipelined_max_requests=10) as opened:
            await opened.topic("t")
            client, other = await opened.connect(), await opened.connect()
            for _ in range(50):
                await client.begin(fetch_request("t", 0, max_wait_ms=60_000), FETCH)
            [partition] = opened.broker.topics.get("t").partitions
            await until(lambda: len(partition.waiters) >= 10)
            await other.ask(ApiVersionsRequest(), 3)
            assert len(partition.waiters) == 10, "no more than allowed are begun"
            await other.produce("t", batch_of(b"a"))
            for _ in range(50):
                assert fetched(await client.receive()).records

    run(main())


def test_client_that_asks_for_much_at_once_lets_others_have_their_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            eager, connection = DirectTransport.connect(opened.door, "eager")
            other, _ = DirectTransport.connect(opened.door, "other")
            eager.feed(b"".join(_question(number) for number in range(1000)))
            assert len(eager.answers) == 20
            assert not connection._is_reading
            other.feed(_question(0))
            assert len(other.answers) == 1
            await until(lambda: len(eager.answers) == 1000)
            numbers = [struct.unpack_from(">i", answer, 4)[0] for answer in eager.answers]
            assert numbers == list(range(1000))
            assert eager.takes_input

            eager.feed(b"".join(_question(number) for number in range(1000)))
            connection.finish()
            await asyncio.sleep(0.05)
            assert len(eager.answers) == 1020, "a door that closes begins no more"
            for transport in (eager, other):
                transport.hang_up()

    run(main())


def _question(number: int) -> bytes:
    return request_frame(MetadataRequest(topics=[]), METADATA, number)


def test_requests_that_wait_count_by_their_size(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, unsent_max_bytes=10_000) as opened:
            await opened.topic("t")
            client, other = await opened.connect(), await opened.connect()
            # The same partition a hundred times over.
            request = fetch_request("t", 0, partitions=(0,) * 100, max_wait_ms=60_000)
            size = len(client.asked.frame(request, FETCH, answered=False))
            for _ in range(50):
                await client.begin(request, FETCH)
            [partition] = opened.broker.topics.get("t").partitions
            await until(lambda: partition.waiters)
            await other.ask(ApiVersionsRequest(), 3)
            assert len(partition.waiters) * (size - 4) <= 10_000 + size
            await other.produce("t", batch_of(b"a"))
            for _ in range(50):
                await client.receive()

    run(main())


async def _announce(client: WireClient, size: int = BIG) -> None:
    """The first bytes of a large produce request."""
    await client.send(struct.pack(">i", size) + header(0, PRODUCE, 1))


def test_announced_requests_get_no_more_memory_than_there_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(
            tmp_path, request_max_bytes=50 * MIB, buffered_max_bytes=100 * MIB
        ) as opened:
            await opened.topic("t")
            liars = [await opened.connect() for _ in range(40)]
            for liar in liars:
                await _announce(liar)
            await until(lambda: opened.door.pool.waiting >= 38)
            assert sum(each._own_bytes for each in opened.door.pool.holders) <= 100 * MIB

            # Small requests go on, in pieces, too.
            other = await opened.connect()
            for _ in range(5):
                frame = other.asked.frame(produce_request("t", batch_of(b"a")), PRODUCE)
                await other.send(frame[:50])
                await asyncio.sleep(0.002)
                await other.send(frame[50:])
                assert produced(await other.receive()).error_code == 0

            for liar in liars:
                await liar.close()
            await until(lambda: len(opened.door.connections) <= 1)
            assert not opened.door.pool.is_tight
            assert opened.door.pool.take(99 * MIB), "all memory was given back"

    run(main())


def test_connection_that_waits_goes_on_when_memory_is_given_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(
            tmp_path, request_max_bytes=2 * MIB, buffered_max_bytes=2 * MIB
        ) as opened:
            await opened.topic("t", max_message_bytes=str(4 * MIB))
            batch = batch_of(b"x" * (3 * MIB // 2))
            first, second = await opened.connect(), await opened.connect()
            frames = [
                client.asked.frame(produce_request("t", batch), PRODUCE)
                for client in (first, second)
            ]
            await first.send(frames[0][:MIB])
            await until(lambda: opened.door.pool.holders)
            sending = asyncio.get_running_loop().create_task(second.send(frames[1]))
            await until(lambda: opened.door.pool.is_tight)
            await first.send(frames[0][MIB:])
            assert produced(await first.receive()).base_offset == 0
            await sending
            assert produced(await second.receive()).base_offset == 1

    run(main())


def test_more_large_requests_than_fit_in_are_all_served(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, request_max_bytes=MIB, buffered_max_bytes=2 * MIB) as opened:
            await opened.topic("t")
            batch = batch_of(b"x" * (MIB - 10_000))

            async def talk() -> list[int]:
                client = await opened.connect()
                return [(await client.produce("t", batch)).base_offset for _ in range(4)]

            offsets = await asyncio.gather(*(talk() for _ in range(12)))
            assert sorted(chain.from_iterable(offsets)) == list(range(48))

    run(main())


def test_largest_request_fits_in_however_little_memory_is_allowed(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, request_max_bytes=MIB, buffered_max_bytes=MIB) as opened:
            await opened.topic("t", max_message_bytes=str(2 * MIB))
            client = await opened.connect()
            overhead = len(client.asked.frame(produce_request("t", None), PRODUCE, answered=False))
            batch = batch_of(b"x" * (MIB - 200))
            assert MIB - 120 < len(batch) + overhead - 4 <= MIB
            assert (await client.produce("t", batch)).error_code == 0

    run(main())


def test_slow_request_gives_way_when_others_wait_for_its_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(
            tmp_path, request_max_bytes=2 * MIB, buffered_max_bytes=2 * MIB, receive_max_ms=100
        ) as opened:
            await opened.topic("t", max_message_bytes=str(4 * MIB))
            slow, honest = await opened.connect(), await opened.connect()
            await _announce(slow, 3 * MIB // 2)
            await until(lambda: opened.door.pool.holders)
            # It sends, now and then, but its request does not get done.
            await asyncio.sleep(0.15)
            await slow.send(b"\0")
            stored = await honest.produce("t", batch_of(b"x" * (3 * MIB // 2)))
            assert stored.error_code == 0
            assert await slow.ended() == b""
            [said] = [r.getMessage() for r in caplog.records if "memory for requests" in r.msg]
            assert said.startswith("kafka: 127.0.0.1:")

    run(main())


def test_slow_request_is_left_alone_while_nobody_waits(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, receive_max_ms=100) as opened:
            await opened.topic("t")
            client = await opened.connect()
            frame = client.asked.frame(produce_request("t", batch_of(b"x" * 1000)), PRODUCE)
            await client.send(frame[:-1])
            connection = await _only_connection(opened)
            await until(lambda: connection._buffer.is_hoarding)
            later_ms = opened.broker.clock.now_ms() + 60_000
            opened.door.look(later_ms)
            assert not opened.door.pool.is_tight
            await client.send(frame[-1:])
            assert produced(await client.receive()).error_code == 0

    run(main())


def test_closing_door_begins_no_more_requests(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, pipelined_max_requests=2) as opened:
            await opened.topic("t")
            client = await opened.connect()
            for _ in range(5):
                await client.begin(fetch_request("t", 0, max_wait_ms=60_000), FETCH)
            [partition] = opened.broker.topics.get("t").partitions
            await until(lambda: len(partition.waiters) >= 2)
            connection = await _only_connection(opened)
            connection.finish()
            await asyncio.sleep(0.05)
            assert not partition.waiters, "those behind are not begun"
            await opened.door.close()
            # Those that waited are answered with what there is.
            for _ in range(2):
                assert fetched(await client.receive()).error_code == 0
            assert await client.ended() == b""

    run(main())


def test_client_that_never_takes_its_last_answers_is_let_go(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, unsent_max_bytes=MIB) as opened:
            await _filled(opened)
            stalled = await opened.connect()
            connection = await _only_connection(opened)
            for _ in range(20):
                await stalled.send(stalled.asked.frame(fetch_request("t", 0), FETCH))
            await until(lambda: not connection._is_reading)
            now_ms = opened.broker.clock.now_ms()
            opened.door.look(now_ms + 6000)
            assert opened.door.connections, "it may be slow"
            opened.door.look(now_ms + 700_000)
            await until(lambda: not opened.door.connections)

    run(main())


def test_memory_for_less_than_one_request_is_no_setting() -> None:
    with pytest.raises(InvalidSetting, match=r"at least socket\.request\.max\.bytes"):
        KafkaSettings(request_max_bytes=MIB, buffered_max_bytes=MIB - 1)
