"""One client's connection: frames, order, flow, and what ends it. Real sockets, real files."""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path
from typing import Any

import pytest

from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.messages.metadata import MetadataRequest
from tests.fakes.open_door import OpenDoor, open_door, run
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import (
    fetch_request,
    fetched,
    framed,
    header,
    produce_request,
    produced,
    read_answer,
    request_frame,
)

PRODUCE, FETCH, METADATA, API_VERSIONS = 9, 12, 9, 3


def _closed(caplog: pytest.LogCaptureFixture) -> str:
    """Why the one connection was closed, by a line that names its peer."""
    [said] = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert said.startswith("kafka: 127.0.0.1:")
    return said.partition(": the connection is closed: ")[2]


async def _is_served(opened: OpenDoor) -> None:
    """Another client notices nothing."""
    client = await opened.connect()
    answer = await client.ask(ApiVersionsRequest(), API_VERSIONS)
    assert answer.error_code == 0


def test_answers_come_in_order_past_a_parked_fetch_and_a_sync(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await client.begin(fetch_request("t", 0, max_wait_ms=60_000, min_bytes=1), FETCH)
            await client.begin(MetadataRequest(topics=[]), METADATA)
            await client.begin(produce_request("t", batch_of(b"a"), acks=-1), PRODUCE)
            await client.begin(produce_request("t", batch_of(b"b"), acks=1), PRODUCE)
            await client.begin(ApiVersionsRequest(), API_VERSIONS)
            # The produce behind the fetch is what it waits for. Each answer checks its id.
            assert fetched(await client.receive()).records
            await client.receive()
            assert produced(await client.receive()).base_offset == 0
            assert produced(await client.receive()).base_offset == 1
            await client.receive()

    run(main())


def test_acks_0_gets_no_answer_and_what_is_behind_it_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            for value in (b"a", b"b"):
                request = produce_request("t", batch_of(value), acks=0)
                await client.begin(request, PRODUCE, answered=False)
            assert (await client.produce("t", batch_of(b"c"))).base_offset == 2

    run(main())


def test_acks_0_that_fails_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            client = await opened.connect()
            request = produce_request("missing", batch_of(b"a"), acks=0)
            await client.begin(request, PRODUCE, answered=False)
            assert await client.ended() == b""
            assert "acks=0 failed: there is no topic 'missing'" in _closed(caplog)

    run(main())


def _conversation() -> list[bytes]:
    """Requests of all shapes whose answers do not depend on time."""
    batch = batch_of(b"v" * 30)
    return [
        request_frame(ApiVersionsRequest(), API_VERSIONS, 1),
        request_frame(produce_request("t", batch), PRODUCE, 2),
        request_frame(produce_request("t", batch), PRODUCE, 3),
        request_frame(fetch_request("t", 0, min_bytes=0), FETCH, 4),
        request_frame(produce_request("t", batch), 7, 5),
        request_frame(MetadataRequest(topics=[]), METADATA, 6),
    ]


async def _answers_to(opened: OpenDoor, pieces: list[bytes], expected: int) -> list[bytes]:
    client = await opened.connect()
    for piece in pieces:
        await client.send(piece)
        # A turn of the loop for the broker to receive this much and no more.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    answers = [await client.receive_raw() for _ in range(expected)]
    await client.close()
    await opened.broker.topics.delete("t")
    await opened.topic("t")
    return answers


def test_frames_cut_at_every_byte_get_the_same_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            frames = _conversation()
            sent = b"".join(frames)
            whole = await _answers_to(opened, [sent], len(frames))
            one_by_one = [sent[n : n + 1] for n in range(len(sent))]
            assert await _answers_to(opened, one_by_one, len(frames)) == whole
            for cut in range(0, len(sent), 7):
                pieces = [sent[:cut], sent[cut:]]
                assert await _answers_to(opened, pieces, len(frames)) == whole

    run(main())


def test_many_requests_in_one_segment_are_all_answered_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            frames = [
                client.asked.frame(produce_request("t", batch_of(b"%d" % n)), PRODUCE)
                for n in range(3000)
            ]
            await client.send(b"".join(frames))
            for n in range(3000):
                assert produced(await client.receive()).base_offset == n

    run(main())


def test_buffer_boundary_at_any_byte_of_a_frame_loses_nothing(tmp_path: Path) -> None:
    """Long streams of small frames of odd sizes cross the ends of buffers everywhere."""

    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            # A large request leaves the connection with a buffer of its own.
            await client.produce("t", batch_of(b"x" * 100_000))
            for size in (17, 18, 19, 101):
                count = 1_500_000 // (size + 130)
                frames = [
                    client.asked.frame(produce_request("t", batch_of(bytes(size))), PRODUCE)
                    for _ in range(count)
                ]
                sending = asyncio.get_running_loop().create_task(client.send(b"".join(frames)))
                for _ in range(count):
                    assert produced(await client.receive()).error_code == 0
                await sending

    run(main())


def test_api_versions_of_the_future_are_answered_in_version_0(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            client = await opened.connect()
            await client.send(framed(header(18, 99, 5) + b"whatever comes in that version"))
            _, answer = read_answer(await client.receive_raw(), 18, 0)
            assert isinstance(answer, ApiVersionsResponse)
            assert answer.error_code == 35
            [own] = answer.api_keys
            assert (own.api_key, own.min_version, own.max_version) == (18, 0, 4)
            await client.ask(ApiVersionsRequest(), API_VERSIONS)

    run(main())


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (framed(header(3, 99, 1)), "there is no version 99 of API 3 here"),
        (framed(header(71, 0, 1)), "there is no version 0 of API 71 here"),
        (framed(header(0, 14, 1)), "there is no version 14 of API 0 here"),
        (framed(header(1, 3, 1)), "there is no version 3 of API 1 here"),
        (struct.pack(">i", 7) + bytes(7), "a request of 7 bytes cannot hold a header"),
        (struct.pack(">i", -1), "a request of -1 bytes, where socket.request.max.bytes is"),
        (struct.pack(">i", 101 << 20), "where socket.request.max.bytes is 104857600"),
        (framed(header(3, 9, 1) + b"\xff\xff\xff\xff\x07"), "MetadataRequest.topics has size"),
        (b"GET / HTTP/1.1\r\n\r\n", "a request of 1195725856 bytes"),
    ],
)
def test_request_that_cannot_be_understood_ends_that_one_connection(
    sent: bytes, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            client = await opened.connect()
            await client.begin(ApiVersionsRequest(), API_VERSIONS)
            await client.send(sent)
            assert (await client.receive()).error_code == 0, "what came before is answered"
            assert await client.ended() == b""
            assert reason in _closed(caplog)
            await _is_served(opened)

    run(main())


def test_bug_in_a_handler_ends_that_one_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()

            def broken(*_: Any) -> None:
                raise ZeroDivisionError

            with monkeypatch.context() as patch:
                patch.setattr("millstream.gateways.kafka.handlers.fetch.parse_request", broken)
                stored = client.asked.frame(produce_request("t", batch_of(b"a")), PRODUCE)
                fetch = client.asked.frame(fetch_request("t", 0), FETCH)
                await client.send(stored + fetch)
                await client.ended()
            [record] = [r for r in caplog.records if r.exc_info]
            assert "a request failed; the connection is closed" in record.getMessage()
            other = await opened.connect()
            assert (await other.produce("t", batch_of(b"b"))).base_offset == 1

    run(main())


@pytest.mark.parametrize("known_bytes", [4, 5, 6, 12])
def test_large_request_without_records_is_refused_before_memory_is_kept_for_it(
    known_bytes: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(tmp_path, control_request_max_bytes=1 << 20) as opened:
            client = await opened.connect()
            announced = struct.pack(">i", 50 << 20) + header(3, 9, 1)
            await client.send(announced[:known_bytes])
            if known_bytes < 6:
                await _is_served(opened)
                kept = sum(each._own_bytes for each in opened.door.pool.holders)
                assert kept <= 64 * 1024
                await client.send(announced[known_bytes:])
            await client.ended()
            assert "52428800 bytes for API 3, where millstream.control.request.max" in _closed(
                caplog
            )

    run(main())


def test_large_request_without_records_is_refused_when_all_of_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(tmp_path, control_request_max_bytes=1024) as opened:
            client = await opened.connect()
            await client.send(framed(header(3, 9, 1) + bytes(2000)))
            await client.ended()
            assert "for API 3, where millstream.control.request.max.bytes is 1024" in _closed(
                caplog
            )

    run(main())


def test_produce_request_may_be_larger_than_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, control_request_max_bytes=1024) as opened:
            await opened.topic("t")
            client = await opened.connect()
            assert (await client.produce("t", batch_of(b"x" * 500_000))).error_code == 0

    run(main())


def test_client_that_half_closes_gets_what_was_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await client.begin(produce_request("t", batch_of(b"a")), PRODUCE)
            await client.begin(fetch_request("t", 5, max_wait_ms=60_000), FETCH)
            client.half_close()
            assert produced(await client.receive()).base_offset == 0
            await client.ended()

    run(main())


def test_client_that_leaves_takes_its_parked_requests_along(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            [partition] = opened.broker.topics.get("t").partitions
            client = await opened.connect()
            await client.begin(fetch_request("t", 0, max_wait_ms=60_000), FETCH)
            while not partition.waiters:
                await asyncio.sleep(0.001)
            client.abort()
            while opened.door.connections:
                await asyncio.sleep(0.001)
            assert not partition.waiters

    run(main())


def test_connection_over_the_limit_is_closed_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(tmp_path, max_connections=1) as opened:
            first = await opened.connect()
            await first.ask(ApiVersionsRequest(), API_VERSIONS)
            second = await opened.connect()
            assert await second.ended() == b""
            assert "max.connections" in _closed(caplog)
            await first.close()
            while opened.door.connections:
                await asyncio.sleep(0.001)
            await _is_served(opened)

    run(main())


def test_idle_connection_is_closed_and_one_that_waits_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, connection_max_idle_ms=1000) as opened:
            await opened.topic("t")
            [partition] = opened.broker.topics.get("t").partitions
            idle, waiting = await opened.connect(), await opened.connect()
            await idle.ask(ApiVersionsRequest(), API_VERSIONS)
            await waiting.begin(fetch_request("t", 0, max_wait_ms=60_000), FETCH)
            while not partition.waiters:
                await asyncio.sleep(0.001)
            opened.door.look(opened.broker.clock.now_ms() + 2000)
            assert await idle.ended() == b""
            other = await opened.connect()
            await other.produce("t", batch_of(b"a"))
            assert fetched(await waiting.receive()).records

    run(main())
