"""One client's connection: frames, order, flow, and what ends it. Real sockets, real files."""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path
from typing import Any

import pytest

from millstream.gateways.receive_buffer import SHARED_BYTES
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millstream.telemetry.client_log import LINES_PER_MINUTE
from tests.fakes.direct_transport import DirectTransport
from tests.fakes.open_door import OpenDoor, Runner, open_door, run, run_plainly, until
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

PRODUCE, FETCH, METADATA, API_VERSIONS, JOIN = 9, 12, 9, 3, 3


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


@pytest.mark.parametrize("on_loop", [run, run_plainly])
def test_answers_come_in_order_past_a_parked_fetch_and_a_sync(
    on_loop: Runner, tmp_path: Path
) -> None:
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

    on_loop(main())


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


@pytest.mark.parametrize("on_loop", [run, run_plainly])
def test_frames_cut_at_every_byte_get_the_same_answers(on_loop: Runner, tmp_path: Path) -> None:
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

    on_loop(main())


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


# After as many frames of such a size as fit, 1, 2 or 3 bytes of a buffer of 64 KiB are left.
@pytest.mark.parametrize(("size", "left"), [(255, 1), (217, 2), (923, 3)])
def test_buffer_that_ends_inside_the_size_of_a_frame_loses_nothing(
    size: int, left: int, tmp_path: Path
) -> None:
    assert 65_536 % size == left

    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            transport, _ = DirectTransport.connect(opened.door, "peer")
            frame = next(found for n in range(size) if len(found := _produce_frame(n)) == size)
            # A request in pieces leaves the connection with a buffer of its own.
            transport.feed(frame[:50])
            transport.feed(frame[50:] + frame * 2000)
            assert len(transport.answers) == 2001
            transport.hang_up()
            await asyncio.sleep(0)

    run(main())


def _produce_frame(value_bytes: int) -> bytes:
    return request_frame(produce_request("t", batch_of(bytes(value_bytes))), PRODUCE, 1)


def test_request_that_ends_with_the_buffer_where_its_records_should_begin_is_malformed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            transport, _ = DirectTransport.connect(opened.door, "peer")
            batch = batch_of(b"a")
            first = request_frame(produce_request("t", batch), PRODUCE, 1)
            cut = framed(first[4 : first.index(batch) - 1])
            padding, fillers = SHARED_BYTES - len(first) - len(cut), list[bytes]()
            while padding:
                size = min(padding, 15_000)
                size = size if padding - size == 0 or padding - size > 100 else padding - 200
                fillers.append(framed(header(18, 0, 2) + bytes(size - 18)))
                padding -= size
            transport.feed(first + b"".join(fillers) + cut)
            assert len(transport.answers) == 1 + len(fillers)
            assert transport.is_closed
            [said] = [r.getMessage() for r in caplog.records]
            assert "malformed message: a produce request" in said
            await asyncio.sleep(0)

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


def test_bytes_after_a_request_are_let_be(tmp_path: Path) -> None:
    # Metadata of all topics as librdkafka 2.16 sends it: an array's count of four bytes, not one.
    raw = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")

    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await client.send(framed(raw))
            _, answer = read_answer(await client.receive_raw(), 3, 13)
            assert isinstance(answer, MetadataResponse)
            assert "t" in [topic.name for topic in answer.topics]

    run(main())


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (framed(header(3, 99, 1)), "version 99 of API 3 is not supported"),
        (framed(header(71, 0, 1)), "version 0 of API 71 is not supported"),
        (framed(header(0, 14, 1)), "version 14 of API 0 is not supported"),
        (framed(header(1, 3, 1)), "version 3 of API 1 is not supported"),
        (struct.pack(">i", 7) + bytes(7), "a request of 7 bytes cannot hold a header"),
        (struct.pack(">i", -1), "a request of -1 bytes, where socket.request.max.bytes is"),
        (struct.pack(">i", 101 << 20), "where socket.request.max.bytes is 104857600"),
        (framed(header(3, 9, 1) + b"\xff\xff\xff\xff\x07"), "MetadataRequest.topics has size"),
        (b"GET / HTTP/1.1\r\n\r\n", "this looks like HTTP; this listener speaks Kafka's"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "this looks like TLS; this listener has none"),
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


def test_tls_is_recognised_where_requests_may_be_that_large(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(
            tmp_path, request_max_bytes=2**31 - 1, buffered_max_bytes=2**31
        ) as opened:
            client = await opened.connect()
            await client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
            assert await client.ended() == b""
            assert _closed(caplog) == "this looks like TLS; this listener has none"

    run(main())


def test_client_that_is_refused_in_a_loop_leaves_few_lines_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            for version in range(90, 140):
                client = await opened.connect()
                await client.send(framed(header(3, version, 1)))
                assert await client.ended() == b""
            assert len(_warnings(caplog)) == LINES_PER_MINUTE
            caplog.clear()
            opened.broker.client_log.close()
            [summary] = _warnings(caplog)
            assert summary.startswith("45 more of these in the last minute: kafka: 127.0.0.1:")
            assert summary.endswith("version 139 of API 3 is not supported")

    run(main())


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


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


@pytest.mark.parametrize("topics", [1, 60])
@pytest.mark.parametrize("api_key", [0, 1])
def test_request_for_more_places_than_anyone_needs_ends_the_connection(
    api_key: int, topics: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            client = await opened.connect()
            count = 120_000 // topics
            if api_key == 0:
                fields, place = struct.pack(">hhi", -1, 1, 1000), struct.pack(">ii", 0, -1)
            else:
                fields, place = struct.pack(">iiiib", -1, 0, 0, 1, 0), struct.pack(">iqi", 0, 0, 1)
            topic = b"\0\1t" + struct.pack(">i", count) + place * count
            body = fields + struct.pack(">i", topics) + topic * topics
            await client.send(framed(header(api_key, 4, 1) + body))
            await client.ended()
            assert "more than 50000 topics and partitions" in _closed(caplog)

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
            await until(lambda: partition.waiters)
            client.abort()
            await until(lambda: not opened.door.connections)
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
            await until(lambda: not opened.door.connections)
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
            await until(lambda: partition.waiters)
            opened.door.look(opened.broker.clock.now_ms() + 2000)
            assert await idle.ended() == b""
            other = await opened.connect()
            await other.produce("t", batch_of(b"a"))
            assert fetched(await waiting.receive()).records

    run(main())


def test_member_whose_connection_closes_while_it_joins_is_not_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            killed, other = await opened.connect(), await opened.connect()
            await killed.begin(_join(), JOIN)

            def members() -> int:
                return len(opened.broker.groups.describe("g").members)

            await until(lambda: members() == 1)
            await killed.close()
            await until(lambda: members() == 0)
            joined = await other.ask(_join(), JOIN)
            assert (joined.error_code, joined.leader) == (0, joined.member_id)
            assert len(joined.members) == 1

    run(main())


def _join() -> JoinGroupRequest:
    """Of a version whose members need no second request."""
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_api_versions_of_many_bytes_ends_the_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            transport, _ = DirectTransport.connect(opened.door, "peer")
            transport.feed(framed(header(18, 3, 1) + bytes(20_000)))
            assert transport.answers == []
            assert transport.is_closed

    run(main())
