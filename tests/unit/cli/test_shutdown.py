"""A broker that is told to stop does so cleanly, and waits for no client."""

from __future__ import annotations

import json
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect as connect_socket

from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import BlockingClient, fetch_request

pytestmark = pytest.mark.system

# Everything that clients wait for, and every limit of theirs, takes longer than any test does: a
# broker that waited for one of them would not stop.
WAIT_MS = 3_600_000
SETTINGS = f"""
[groups]
group.initial.rebalance.delay.ms = {WAIT_MS}
[http]
http.long.poll.max.ms = {WAIT_MS}
http.request.header.timeout.seconds = 3600
http.request.body.timeout.seconds = 3600
[pylogstreams]
heartbeat.ms = {WAIT_MS}
"""
IDLE = 1000
FREE = "127.0.0.1:0"

Connect = Callable[[int], socket.socket]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, settings=SETTINGS, http=FREE, pylogstreams=FREE) as started:
        yield started


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connections that are there until the test is over."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as open_ones:

        def connected(port: int) -> socket.socket:
            sock = socket.create_connection(("127.0.0.1", port), timeout=HANG_S)
            return open_ones.enter_context(sock)

        yield connected


def ask_http(sock: socket.socket, text: str) -> None:
    sock.sendall(text.replace("\n", "\r\n").encode())


def head_of(sock: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += sock.recv(4096)
    return received


def hold_up_kafka(broker: BrokerProcess, connect: Connect) -> BlockingClient:
    """Clients that wait, stop in the middle, or do not read; returns one whose fetch waits."""
    waiting = BlockingClient(broker.port)
    batch = batch_of(b"x" * 500_000)
    for _ in range(40):
        waiting.produce("wide", batch)
    for content in (b"\0\0\x10\0", struct.pack(">ihhi", 1 << 20, 0, 9, 1) + b"half of a request"):
        connect(broker.port).sendall(content)
    deaf = connect(broker.port)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = fetch_request("wide", 0, partition_bytes=1 << 26, max_bytes=1 << 26)
    deaf.sendall(waiting.asked.frame(request, 12, answered=False) * 20)
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    joining = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=600_000,
        rebalance_timeout_ms=WAIT_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    connect(broker.port).sendall(waiting.asked.frame(joining, 3, answered=False))
    waiting.begin(fetch_request("quiet", 1, max_wait_ms=WAIT_MS, min_bytes=1), 12)
    return waiting


def hold_up_http(broker: BrokerProcess, connect: Connect) -> socket.socket:
    """The same; returns one that is at the end of a stream of events."""
    port = broker.http_port
    for text in (
        "GET /topics/wide/messages?offset=0 HT",
        "POST /topics/quiet/messages HTTP/1.1\nHost: localhost\nContent-Length: 1000\n\n[",
        f"GET /topics/quiet/messages?offset=1&wait_ms={WAIT_MS} HTTP/1.1\nHost: localhost\n\n",
    ):
        ask_http(connect(port), text)
    deaf = connect(port)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    ask_http(deaf, "GET /topics/wide/stream?from=earliest HTTP/1.1\nHost: localhost\n\n")
    stream = connect(port)
    ask_http(stream, "GET /topics/quiet/stream?from=latest HTTP/1.1\nHost: localhost\n\n")
    assert b" 200 " in head_of(stream)
    return stream


def test_stuck_clients_and_a_thousand_idle_ones_do_not_hold_up_the_end(
    broker: BrokerProcess, connect: Connect, tmp_path: Path
) -> None:
    for topic in ("wide", "quiet"):
        sent = httpx.post(
            f"{broker.url}/topics/{topic}/messages", json={"value": "only"}, timeout=HANG_S
        )
        assert sent.status_code == httpx.codes.OK
    waiting = hold_up_kafka(broker, connect)
    stream = hold_up_http(broker, connect)
    connect(broker.pylogstreams_port).sendall(b"\0\0\0\x40half of a frame")
    for number in range(IDLE):
        connect((broker.port, broker.http_port)[number % 2])
    with connect_socket(f"ws://127.0.0.1:{broker.http_port}/ws", open_timeout=HANG_S) as chat:
        chat.send(json.dumps({"id": 1, "op": "subscribe", "topic": "quiet", "from": "latest"}))
        chat.recv(timeout=HANG_S)
        broker.stop()
        # The fetch that waited is answered, the stream ends as a stream does, and all hang up.
        assert waiting.receive().error_code == 0
        waiting.close()
        rest = b""
        while chunk := stream.recv(65536):
            rest += chunk
        assert rest.endswith(b"0\r\n\r\n")
    broker.start()
    again = BlockingClient(broker.port)
    assert again.fetch("quiet", 0).high_watermark == 1
    assert again.fetch("wide", 0).high_watermark == 41
    again.close()
    assert broker.complaints() == []
    # Had the stop not been marked as clean, the start would have had to tell of its recovery.
    assert "not stopped cleanly" not in (tmp_path / "broker.err").read_text()
