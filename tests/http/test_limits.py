"""What a client can make the door hold, and for how long: heads, silence, connections, frames."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from tests.clients.broker_process import BrokerProcess
from tests.fakes.open_door import run, until
from tests.fakes.patience import HANG_S
from tests.fakes.streaming_door import SocketClient, StreamingDoor, socket_client, streaming_door
from tests.fuzz.broker_load import own_memory_bytes

pytestmark = pytest.mark.system

PROBLEM = "application/problem+json"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def answer_to(port: int, request: bytes) -> tuple[int, dict[str, Any]]:
    """What is answered to somebody who sends and waits for the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
        connection.sendall(request)
        return told(_all(connection))


def told(answer: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert PROBLEM.encode() in head
    assert b"connection: close" in head
    problem = json.loads(body)
    assert int(head.split()[1]) == problem["status"]
    return problem["status"], problem


def _all(connection: socket.socket) -> bytes:
    answer = b""
    while chunk := connection.recv(65536):
        answer += chunk
    return answer


@pytest.mark.parametrize(
    "headers",
    [{"x": "y" * 70_000}, {f"x-{n}": "y" * 1000 for n in range(70)}, {"x": "y" * 3_000_000}],
    ids=["one", "many", "megabytes"],
)
def test_headers_over_the_limit_are_refused(
    http_broker: BrokerProcess, headers: dict[str, str]
) -> None:
    answer = httpx.get(f"{http_broker.url}/health", headers=headers, timeout=HANG_S)
    assert (answer.status_code, answer.headers["content-type"]) == (431, PROBLEM)
    assert answer.headers["connection"] == "close"
    assert "http.request.header.max.bytes" in answer.json()["detail"]


def test_long_path_is_refused_as_headers_are(http_broker: BrokerProcess) -> None:
    port = http_broker.http_port
    status, _ = answer_to(port, b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"x" * 70_000))
    assert status == 431


def test_headers_that_never_end_are_refused_while_they_come(http_broker: BrokerProcess) -> None:
    port = http_broker.http_port
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nx: ")
        try:
            for _ in range(1000):
                connection.sendall(b"y" * 10_000)
        except (BrokenPipeError, ConnectionResetError):
            # It was told why, and has gone on for too long.
            return
        assert told(_all(connection))[0] == 431


def test_headers_up_to_the_limit_are_taken_also_before_a_large_body(web: httpx.Client) -> None:
    body = {"value": "x" * 500_000}
    answer = web.post("/topics/large/messages", json=body, headers={"x": "y" * 60_000})
    assert answer.status_code == 200
    assert web.get("/health", headers={"x": "y" * 60_000}).status_code == 200


def test_head_after_a_large_body_in_one_stream_of_bytes_is_taken(
    http_broker: BrokerProcess,
) -> None:
    body = json.dumps({"value": "x" * 300_000}).encode()
    post = (
        b"POST /topics/pipelined/messages HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(
        ("127.0.0.1", http_broker.http_port), timeout=HANG_S
    ) as connection:
        connection.sendall(post * 3 + last)
        assert _all(connection).count(b"HTTP/1.1 200 OK") == 4


def test_what_is_no_request_is_told_as_a_problem(http_broker: BrokerProcess) -> None:
    for nonsense in (b"\x00" * 100, b"PUB topic payload\r\n\r\n"):
        assert answer_to(http_broker.http_port, nonsense)[0] == 400


def test_connections_that_waste_time_are_ended(tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"request_header_timeout_s": 1, "keep_alive_s": 1}
        async with streaming_door(tmp_path, **settings) as door:
            await asyncio.gather(
                begin_a_head(door, b"GET /health HTTP/1.1\r\nHost: loc", drop=b"x"),
                begin_a_head(door, b"\r\n", drop=b"\r\n"),
                begin_a_head(door, b"G", drop=b""),
                be_silent(door, b""),
                be_silent(door, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            )

    run(main())


async def begin_a_head(door: StreamingDoor, begun: bytes, *, drop: bytes) -> None:
    """Whoever goes on in drops gains nothing."""
    async with connected(door) as (reader, writer):
        writer.write(begun)
        answer = b""
        while not answer:
            writer.write(drop)
            try:
                answer = await asyncio.wait_for(reader.read(65536), 0.05)
            except TimeoutError:
                continue
        status, problem = told(answer)
        assert status == 408
        assert "http.request.header.timeout.seconds" in problem["detail"]


async def be_silent(door: StreamingDoor, request: bytes) -> None:
    """With nothing asked, or nothing more."""
    async with connected(door) as (reader, writer):
        writer.write(request)
        assert (await reader.read()).count(b"200 OK") == bool(request)


def test_one_connection_too_many_is_told_and_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with streaming_door(tmp_path, max_connections=2) as door:
            async with door.client() as client, httpx.AsyncClient(base_url=door.url) as web:
                assert (await web.get("/health", timeout=HANG_S)).status_code == 200
                # Whether it asks for something or not.
                for request in (b"GET /health HTTP/1.1\r\n\r\n", b""):
                    async with connected(door) as (reader, writer):
                        writer.write(request)
                        status, problem = told(await reader.read())
                    assert status == 503
                    assert "http.max.connections" in problem["detail"]
                with pytest.raises(InvalidStatus) as refused:
                    async with door.client():
                        pass
                assert refused.value.response.status_code == 503
                # Those who were there before are served as ever.
                assert (await client.result("ping"))["time"] > 0
            await until(lambda: len(server_connections(door)) == 0)
            async with door.client() as client:
                assert (await client.result("ping"))["time"] > 0

    run(main())


@asynccontextmanager
async def connected(
    door: StreamingDoor,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = door.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


def server_connections(door: StreamingDoor) -> set[Any]:
    assert door.door._server is not None
    found: set[Any] = door.door._server.server_state.connections
    return found


@pytest.mark.parametrize(
    "handshake",
    [
        UPGRADE + b"x: " + b"y" * 9000 + b"\r\n\r\n",
        UPGRADE + b"Content-Length: 5\r\n\r\nhello",
    ],
    ids=["long line", "body"],
)
def test_handshake_that_cannot_be_read_is_answered(
    http_broker: BrokerProcess, handshake: bytes
) -> None:
    status, problem = answer_to(http_broker.http_port, handshake)
    assert status == 400
    assert "WebSocket" in problem["detail"]


def test_message_in_too_many_pieces_ends_the_connection(http_broker: BrokerProcess) -> None:
    async def main() -> None:
        address = http_broker.url.removeprefix("http://")
        async with socket_client(address) as client:
            first = Frame(Opcode.TEXT, b"{", fin=False)
            empty = Frame(Opcode.CONT, b"", fin=False)
            pieces = [each.serialize(mask=True) for each in (first, *[empty] * 10_100)]
            client.connection.transport.write(b"".join(pieces))
            code, _ = await client.end()
            assert code == 1009

    run(main())


def test_pings_of_a_client_that_does_not_read_take_bounded_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with streaming_door(tmp_path) as door, door.client() as client:
            await client.result("ping")
            (connection,) = server_connections(door)
            client.connection.transport.pause_reading()
            # As if the client's buffers were full.
            connection.pause_writing()
            ping = Frame(Opcode.PING, b"x" * 125).serialize(mask=True)
            client.connection.transport.write(ping * 5000)
            await client.say(id="last", op="create_topic", topic="t")
            await until(lambda: any(each.name == "t" for each in door.broker.topics.all()))
            assert connection.transport.get_write_buffer_size() == 0
            assert 0 < sum(map(len, connection._late_pongs)) < 5000 * 127 / 2
            connection.resume_writing()
            client.connection.transport.resume_reading()
            assert (await client.hear())["id"] == "last"

    run(main())


def test_requests_under_way_are_bounded_in_bytes_and_none_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            streaming_door(tmp_path, socket_requests_max_bytes=200_000) as door,
            door.client() as client,
        ):
            await door.topic("t")
            held = Held(door)
            sending = asyncio.get_running_loop().create_task(send_many(client, 100))
            await until(lambda: held.begun == 3)
            # Nothing more is begun, however long it takes.
            await asyncio.sleep(0.1)
            assert held.begun == 3
            held.go_on.set()
            answers = [await client.hear() for _ in range(100)]
            await sending
            offsets = {each["result"]["places"][0]["offset"] for each in answers}
            assert offsets == set(range(100))

    run(main())


class Held:
    """A broker that takes messages and stores none until it is told to."""

    def __init__(self, door: StreamingDoor) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()
        self._send = door.broker.sender.send
        door.broker.sender.send = self.send  # type: ignore[assignment,method-assign]

    async def send(self, *message: Any) -> Any:
        self.begun += 1
        await self.go_on.wait()
        return await self._send(*message)


async def send_many(client: SocketClient, count: int) -> None:
    for number in range(count):
        await client.say(id=number, op="send", topic="t", value="x" * 60_000)


def test_request_larger_than_the_room_for_requests_goes_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            streaming_door(tmp_path, socket_requests_max_bytes=1024) as door,
            door.client() as client,
        ):
            for number in range(3):
                sent = await client.result("send", topic="t", value="x" * 100_000)
                assert sent["places"][0]["offset"] == number

    run(main())


def test_more_headers_than_any_client_needs_are_refused(broker: BrokerProcess) -> None:
    head = b"GET /topics HTTP/1.1\r\nHost: localhost\r\n" + b"a:b\r\n" * 200
    status, problem = answer_to(broker.http_port, head + b"\r\n")
    assert (status, problem["detail"]) == (431, "more than 128 headers")


def test_trailers_are_not_kept(broker: BrokerProcess) -> None:
    request = (
        b"POST /topics/trailers/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'd\r\n{"value":"x"}\r\n0\r\n' + b"a:\r\n" * 1_000_000 + b"\r\n"
    )
    before = own_memory_bytes(broker.pid)
    with socket.create_connection(("127.0.0.1", broker.http_port), timeout=HANG_S) as connection:
        connection.sendall(request)
        assert _all(connection).startswith(b"HTTP/1.1 20")
    assert own_memory_bytes(broker.pid) - before < 50 << 20


def test_client_that_sends_very_many_requests_at_once_is_hung_up_on(broker: BrokerProcess) -> None:
    wait = b"GET /topics/quiet/messages?offset=0&wait_ms=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert httpx.put(f"{broker.url}/topics/quiet", json={}, timeout=HANG_S).is_success
    with socket.create_connection(("127.0.0.1", broker.http_port), timeout=HANG_S) as connection:
        connection.sendall(wait + b"GET / HTTP/1.1\r\n\r\n" * 1000)
        with suppress(ConnectionError):
            assert _all(connection) == b""
