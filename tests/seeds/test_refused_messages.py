"""What becomes of messages that the broker cannot store, and of those around them."""

from __future__ import annotations

import select
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from millstream.client import Client
from millstream.errors import HungUp
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.seeds.conftest import StartBroker
from tests.seeds.raw_pylogstreams import RawClient, publish_frame

pytestmark = pytest.mark.system


_real_poll = select.poll


class BlindPoll:
    """Reports events only to callers that wait for them."""

    def __init__(self) -> None:
        self._poll = _real_poll()

    def register(self, connection: socket.socket, events: int) -> None:
        self._poll.register(connection, events)

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        return self._poll.poll(timeout_ms) if timeout_ms else []


@pytest.fixture
def strict(shared_broker: BrokerProcess) -> BrokerProcess:
    """A broker that may complain."""
    shared_broker.complaints()
    return shared_broker


@pytest.fixture
def compacted(strict: BrokerProcess, name: str) -> str:
    """A topic that takes nothing from this door, where messages have no keys."""
    return create(strict, f"{name}.compacted", {"cleanup.policy": "compact"})


def create(broker: BrokerProcess, topic: str, settings: dict[str, object]) -> str:
    wanted = {"name": topic, "settings": settings}
    httpx.post(
        f"{broker.url}/topics", json=wanted, trust_env=False, timeout=HANG_S
    ).raise_for_status()
    return topic


def registered(broker: BrokerProcess) -> RawClient:
    client = RawClient(broker.pylogstreams_port)
    client.register()
    return client


def stored(broker: BrokerProcess, topic: str) -> list[str]:
    answer = httpx.get(
        f"{broker.url}/topics/{topic}/messages?offset=0&limit=1000", trust_env=False, timeout=HANG_S
    )
    answer.raise_for_status()
    return [each["value"] for each in answer.json()["messages"]]


def is_reset(client: RawClient) -> bool:
    """Wait for the end; whether it says that not all was taken."""
    try:
        while client.receive() is not None:
            pass
    except ConnectionResetError:
        return True
    return False


def test_a_refused_message_takes_none_of_other_topics_with_it(
    strict: BrokerProcess, name: str, compacted: str
) -> None:
    with registered(strict) as client:
        client.publish(f"{name}.old", b"0")
        frames = [
            publish_frame(f"{name}.old", b"1"),
            publish_frame(compacted, b"refused"),
            publish_frame(f"{name}.new", b"2"),
            publish_frame(f"{name}.old", b"3"),
            publish_frame(compacted, b"also refused"),
            publish_frame(f"{name}.newer", b"4"),
        ]
        client.socket.sendall(b"".join(frames))
        assert is_reset(client)
    [complaint] = strict.complaints()
    assert compacted in complaint
    assert "needs a key" in complaint
    assert stored(strict, f"{name}.old") == ["0", "1", "3"]
    assert stored(strict, f"{name}.new") == ["2"]
    assert stored(strict, f"{name}.newer") == ["4"]
    assert stored(strict, compacted) == []


def test_what_came_before_a_message_that_is_too_large_is_stored(
    strict: BrokerProcess, name: str
) -> None:
    create(strict, name, {"max.message.bytes": 1000})
    with registered(strict) as client:
        client.socket.sendall(
            publish_frame(name, b"before")
            + publish_frame(name, b"x" * 2000)
            + publish_frame(name, b"after")
            + publish_frame(f"{name}.other", b"other")
        )
        assert is_reset(client)
    assert stored(strict, name) == ["before"]
    assert stored(strict, f"{name}.other") == ["other"]


def test_what_came_before_a_frame_that_says_nothing_is_stored_in_every_topic(
    strict: BrokerProcess, name: str
) -> None:
    with registered(strict) as client:
        client.socket.sendall(
            publish_frame(f"{name}.a", b"1")
            + publish_frame(f"{name}.b", b"2")
            + publish_frame(f"{name}.a", b"3", checksum=0)
            + publish_frame(f"{name}.c", b"4")
        )
        assert is_reset(client)
    assert stored(strict, f"{name}.a") == ["1"]
    assert stored(strict, f"{name}.b") == ["2"]
    topics = httpx.get(f"{strict.url}/topics", trust_env=False, timeout=HANG_S).text
    assert f"{name}.c" not in topics


def test_what_counts_as_delivered_can_be_read_although_the_connection_was_reset(
    strict: BrokerProcess, name: str, compacted: str
) -> None:
    sent = [b"%d %s" % (number, b"x" * 1000) for number in range(3_000)]
    with registered(strict) as client:
        client.publish(name, *sent)
        client.finish()
    seen: list[bytes] = []
    with RawClient(strict.pylogstreams_port) as client:
        client_id = client.register()
        client.subscribe(name)
        seen += client.payloads(name, 1)
        client.publish(compacted, b"refused")
        with pytest.raises(ConnectionResetError):  # noqa: PT012 - it is read to the end
            while frame := client.receive():
                seen.append(frame.partition(b" ")[2])
    with RawClient(strict.pylogstreams_port) as client:
        client.login(client_id)
        client.subscribe(name)
        seen += client.payloads(name, len(sent) - len(seen))
    assert seen == sent


def test_close_tells_that_a_message_was_refused(
    strict: BrokerProcess, name: str, compacted: str
) -> None:
    client = Client("127.0.0.1", strict.pylogstreams_port)
    client.register()
    client.produce(name, "taken")
    client.produce(compacted, "refused")
    with pytest.raises(HungUp, match=r"may not be stored; the broker's log says why"):
        client.close()
    assert stored(strict, name) == ["taken"]


def test_close_tells_it_also_when_another_thread_was_told_first(
    strict: BrokerProcess, name: str, compacted: str
) -> None:
    client = Client("127.0.0.1", strict.pylogstreams_port)
    client.register()
    client.subscribe(name)
    consuming = threading.Thread(target=client.consume)
    consuming.start()
    client.produce(compacted, "refused")
    consuming.join(HANG_S)
    assert not consuming.is_alive()
    with pytest.raises(HungUp):
        client.flush(HANG_S)
    with pytest.raises(HungUp):
        client.produce(name, "too late")
    with pytest.raises(HungUp):
        client.close()


def test_close_tells_it_when_the_broker_has_hung_up_before_the_last_messages_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such an end looks in order, but for what is never confirmed."""
    # The connection ends just after the client has looked for it.
    monkeypatch.setattr(select, "poll", BlindPoll)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = Client("127.0.0.1", server.getsockname()[1])
        connection, _ = server.accept()
        connection.close()
        client.produce("topic", "lost")
        with pytest.raises(HungUp):
            client.close()


@pytest.mark.parametrize("answer", [b"", struct.pack(">I", 7) + b"flush-0"])
def test_orderly_end_without_an_answer_is_no_proof(answer: bytes) -> None:
    """The system hangs up like that for a broker that was killed, when it had read all."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = Client("127.0.0.1", server.getsockname()[1])
        connection, _ = server.accept()
        with connection:
            client.produce("topic", "lost")
            closing = ThreadPoolExecutor(1).submit(client.close)
            received = b""
            while b"SYN flush-1" not in received:
                received += connection.recv(1000)
            connection.sendall(answer)
        with pytest.raises(HungUp):
            closing.result(HANG_S)


def test_flush_returns_when_the_broker_has_answered(broker: BrokerProcess, name: str) -> None:
    with Client("127.0.0.1", broker.pylogstreams_port) as client:
        client.flush(HANG_S)
        client.register()
        client.flush(HANG_S)
        for number in range(100):
            client.produce(name, f"{number}")
        client.flush(HANG_S)
        assert stored(broker, name) == [f"{number}" for number in range(100)]


def test_flush_and_consume_share_a_connection(broker: BrokerProcess, name: str) -> None:
    with Client("127.0.0.1", broker.pylogstreams_port) as client:
        client.register()
        client.subscribe(name)
        expected = [f"{name} {number}" for number in range(50)]
        with ThreadPoolExecutor(1) as pool:
            consuming = pool.submit(lambda: [client.consume(HANG_S) for _ in expected])
            for number in range(50):
                client.produce(name, f"{number}")
                client.flush(HANG_S)
            assert consuming.result(HANG_S) == expected
        client.produce(name, "while nobody consumes")
        client.flush(HANG_S)
        assert client.consume(HANG_S) == f"{name} while nobody consumes"
        with pytest.raises(TimeoutError):
            client.consume(0.01)


def test_message_in_flight_when_the_broker_is_killed_is_not_flushed(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(http="off")
    client = Client("127.0.0.1", broker.pylogstreams_port)
    client.register()
    client.produce("t", "kept")
    client.flush(HANG_S)
    client.produce("t", "unknown")
    broker.kill()
    with pytest.raises(HungUp):
        client.flush(HANG_S)
    with pytest.raises(HungUp):
        client.close()


def test_sync_on_the_wire_is_answered_with_its_word(broker: BrokerProcess, name: str) -> None:
    with registered(broker) as client:
        client.publish(name, b"0")
        client.send_frame(b"SYN word")
        assert client.receive() == b"word"
        assert stored(broker, name) == ["0"]


@pytest.mark.parametrize("command", [b"SYN", b"SYN a b", b"SYN " + b"x" * 256])
def test_malformed_sync_ends_the_connection(strict: BrokerProcess, command: bytes) -> None:
    with registered(strict) as client:
        client.send_frame(command)
        assert is_reset(client)


def test_answers_that_nobody_reads_are_bounded(strict: BrokerProcess) -> None:
    with registered(strict) as client:
        try:
            while True:
                client.send_frame(b"SYN " + b"x" * 255)
        except ConnectionError:
            pass


def test_an_end_that_was_asked_for_is_in_good_order(broker: BrokerProcess, name: str) -> None:
    with registered(broker) as client:
        client.publish(name, b"0")
        client.socket.sendall(bytes(4))
        assert not is_reset(client)
    with registered(broker) as client:
        client.publish(name, b"1")
        client.socket.shutdown(socket.SHUT_WR)
        assert not is_reset(client)
    assert stored(broker, name) == ["0", "1"]


def test_a_broker_that_stops_resets_who_may_have_published_more_and_nobody_else(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(http="off")
    with registered(broker) as producer, registered(broker) as subscriber:
        producer.publish("t", b"0")
        subscriber.subscribe("t")
        assert subscriber.payloads("t", 1) == [b"0"]
        broker.stop()
        assert is_reset(producer)
        assert not is_reset(subscriber)


# What grows with every command


def test_a_connection_that_becomes_ever_more_clients_or_subscribes_ever_more_is_ended(
    start_broker: StartBroker,
) -> None:
    broker = start_broker("[pylogstreams]\nmax.logins = 3\nmax.subscriptions = 3\n", http="off")
    for commands in ([b"REG"] * 4, [b"CID %d" % n for n in range(4)]):
        with RawClient(broker.pylogstreams_port) as client:
            for command in commands[:3]:
                client.send_frame(command)
            # To be the same client again is nothing new.
            client.send_frame(commands[2] if commands[2].startswith(b"CID") else b"PNG")
            client.send_frame(commands[3])
            assert is_reset(client)
        [complaint] = broker.complaints()
        assert "max.logins is 3" in complaint
    with registered(broker) as client:
        for topic in ("a", "b", "c", "a", "b"):
            client.subscribe(topic)
        client.publish("c", b"message")
        assert client.payloads("c", 1) == [b"message"]
        client.subscribe("d")
        assert is_reset(client)
    [complaint] = broker.complaints()
    assert "max.subscriptions is 3" in complaint


@pytest.mark.parametrize("command", [b"SUB ", b"CID ", b"XYZ "])
def test_a_command_of_many_bytes_is_refused_at_its_first(
    strict: BrokerProcess, command: bytes
) -> None:
    with registered(strict) as client:
        client.socket.sendall(struct.pack(">I", 60_000_000) + command)
        assert is_reset(client)
    [complaint] = strict.complaints()
    assert "60000000 bytes" in complaint


def test_a_topic_of_many_bytes_is_not_repeated_in_the_log(strict: BrokerProcess) -> None:
    with registered(strict) as client:
        client.publish("x" * 1_000_000, b"payload")
        assert is_reset(client)
    [complaint] = strict.complaints()
    assert len(complaint) < 1000
