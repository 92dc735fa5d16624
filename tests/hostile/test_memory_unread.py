"""Clients that never read, or never finish what they send, on every listener."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.fakes.sample_batches import batch_of
from tests.fakes.streaming_door import client_of
from tests.fakes.wire_client import BlockingClient, header
from tests.fuzz.broker_load import MIB, clients, create_topic, many_files
from tests.hostile.siege import besieged, open_broker
from tests.seeds.raw_pylogstreams import RawClient

pytestmark = [pytest.mark.system, pytest.mark.hostile]

TOPIC = "full"
READERS = 100
QUEUES = 300
SILENT = 10_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with open_broker(tmp_path_factory.mktemp("unread")) as broker:
        create_topic(broker.port, TOPIC)
        fill(broker, TOPIC)
        yield broker


def fill(broker: BrokerProcess, topic: str) -> None:
    with closing(BlockingClient(broker.port)) as client:
        for _ in range(32):
            assert client.produce(topic, batch_of(b"x" * (MIB - 1000))).error_code == 0


def silent_socket(port: int) -> socket.socket:
    """One whose system takes little, so that the rest is the broker's matter."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    return made


def is_served(broker: BrokerProcess) -> None:
    """All that was asked before on other connections has been looked at by then."""
    for _ in range(3):
        assert httpx.get(f"{broker.url}/topics", timeout=HANG_S).is_success


def test_http_clients_that_read_no_answers_cost_bounded_memory(broker: BrokerProcess) -> None:
    path = f"/topics/{TOPIC}/messages?offset=0&limit=100&max_bytes={16 * MIB}"
    one = f"/topics/{TOPIC}/messages/0:0"
    with ExitStack() as stack, besieged(broker):
        for number in range(READERS):
            client = stack.enter_context(closing(silent_socket(broker.http_port)))
            asked = path if number % 2 else one
            request = f"GET {asked} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            client.sendall(request * 20)
        is_served(broker)
    assert broker.complaints() == []


def test_event_streams_that_are_not_read_hold_one_event_each(broker: BrokerProcess) -> None:
    with ExitStack() as stack, besieged(broker) as siege:
        for _ in range(READERS):
            client = stack.enter_context(closing(silent_socket(broker.http_port)))
            client.sendall(
                f"GET /topics/{TOPIC}/stream?from=earliest HTTP/1.1\r\n"
                "Host: localhost\r\n\r\n".encode()
            )
        is_served(broker)
    assert siege.growth_bytes < 2 * READERS * MIB, str(siege)


def test_kafka_and_pylogstreams_clients_that_do_not_read_cost_bounded_memory(
    broker: BrokerProcess,
) -> None:
    with ExitStack() as stack, besieged(broker):
        for _ in range(READERS):
            client = stack.enter_context(RawClient(broker.pylogstreams_port))
            client.register()
            client.subscribe(TOPIC)
        # ApiVersions in its oldest version, whose answers are left unread.
        asked = header(18, 0, 1)
        request = struct.pack(">i", len(asked)) + asked
        for _ in range(READERS):
            made = stack.enter_context(closing(silent_socket(broker.port)))
            made.setblocking(False)  # noqa: FBT003 - it takes no keyword
            try:
                while made.send(request * 1000):
                    pass
            except BlockingIOError:
                continue
        is_served(broker)


def test_queues_of_a_websocket_that_is_not_read_cost_bounded_memory(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with client_of(broker, max_queue=1) as client:
            for number in range(QUEUES):
                await client.result("queue", topic="later", name=f"q{number}")
            # From now on nothing is read.
            await asyncio.to_thread(fill, broker, "later")
            await asyncio.to_thread(is_served, broker)
            client.connection.transport.abort()

    create_topic(broker.port, "later")
    with besieged(broker):
        asyncio.run(main())


def test_websocket_messages_that_come_in_halves_cost_bounded_memory(broker: BrokerProcess) -> None:
    half = b"x" * (15 * MIB)
    announced = b"\x81\xff" + struct.pack(">Q", 16 * MIB - 1) + bytes(4)
    with ExitStack() as stack, besieged(broker):
        for _ in range(60):
            made = stack.enter_context(
                closing(socket.create_connection(("127.0.0.1", broker.http_port), timeout=HANG_S))
            )
            made.sendall(
                b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            assert made.recv(4096).startswith(b"HTTP/1.1 101")
            made.setblocking(False)  # noqa: FBT003 - it takes no keyword
            rest = memoryview(announced + half)
            while rest:
                try:
                    rest = rest[made.send(rest) :]
                except BlockingIOError:
                    break
                is_over = len(rest) < MIB
                if is_over:
                    break
        is_served(broker)


def test_connections_that_say_nothing_cost_bounded_memory(broker: BrokerProcess) -> None:
    with many_files(), ExitStack() as stack, besieged(broker):
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        count = min(SILENT, allowed // 2)
        stack.enter_context(clients(broker.port, count))
        create_topic(broker.port, "after")


def test_topics_are_not_created_without_end(tmp_path: Path) -> None:
    with (
        open_broker(tmp_path, "[topics]\nauto.create.topics.max = 50\n") as limited,
        httpx.Client(base_url=limited.url, timeout=HANG_S) as web,
        besieged(limited),
    ):
        answers = [
            web.post(f"/topics/t{number}/messages", json={"value": "x"}) for number in range(80)
        ]
        refused = [each for each in answers if not each.is_success]
        assert 30 <= len(refused) < 40
        assert {each.status_code for each in refused} == {422}
        assert "auto.create.topics.max" in refused[0].json()["detail"]
        assert web.put("/topics/wanted", json={}).is_success
        assert json.loads(web.post("/topics/wanted/messages", json={"value": "x"}).text)
