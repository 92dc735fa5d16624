"""The PyLogStreams protocol, spoken over a raw socket with a running broker."""

from __future__ import annotations

import struct

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S, wait_until
from tests.seeds.conftest import StartBroker
from tests.seeds.raw_pylogstreams import RawClient, publish_frame

MIB = 1024**2


def connect(broker: BrokerProcess) -> RawClient:
    return RawClient(broker.pylogstreams_port)


def registered(broker: BrokerProcess) -> RawClient:
    client = connect(broker)
    client.register()
    return client


def test_every_registration_gives_another_id(broker: BrokerProcess) -> None:
    with connect(broker) as one, connect(broker) as other:
        ids = {one.register(), other.register(), other.register()}
    assert len(ids) == 3
    assert all(" " not in client_id for client_id in ids)


def test_published_messages_are_delivered_in_order(broker: BrokerProcess, name: str) -> None:
    sent = [f"message {number}".encode() for number in range(5_000)]
    with registered(broker) as client:
        client.subscribe(name)
        client.publish(name, *sent)
        assert client.payloads(name, len(sent)) == sent


def test_three_subscribers_each_get_everything_in_order(broker: BrokerProcess, name: str) -> None:
    sent = [str(number).encode() for number in range(3_000)]
    with registered(broker) as producer:
        subscribers = [registered(broker) for _ in range(3)]
        for number, subscriber in enumerate(subscribers):
            # One comes before the topic exists, the others while it grows.
            subscriber.subscribe(name)
            producer.publish(name, *sent[number * 1000 : (number + 1) * 1000])
        for subscriber in subscribers:
            with subscriber:
                assert subscriber.payloads(name, len(sent)) == sent


def test_a_subscription_does_not_create_the_topic_and_gets_it_when_it_comes(
    broker: BrokerProcess, name: str
) -> None:
    with registered(broker) as subscriber, registered(broker) as producer:
        subscriber.subscribe(name)
        assert subscriber.is_quiet()
        assert broker.segments(name) == []
        producer.publish(name, b"first")
        assert subscriber.payloads(name, 1) == [b"first"]


def test_a_new_subscription_begins_with_the_oldest_message(
    broker: BrokerProcess, name: str
) -> None:
    with registered(broker) as producer:
        producer.publish(name, b"1", b"2")
        producer.finish()
    with registered(broker) as subscriber:
        subscriber.subscribe(name)
        assert subscriber.payloads(name, 2) == [b"1", b"2"]


def test_topics_are_kept_apart(broker: BrokerProcess, name: str) -> None:
    with registered(broker) as client:
        client.subscribe(f"{name}.a")
        client.socket.sendall(
            b"".join(publish_frame(f"{name}.{n}", n.encode()) for n in ("a", "b", "a", "b"))
        )
        assert client.payloads(f"{name}.a", 2) == [b"a", b"a"]
        assert client.is_quiet()
        client.subscribe(f"{name}.b")
        assert client.payloads(f"{name}.b", 2) == [b"b", b"b"]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b" ",
        b"with some spaces ",
        bytes(range(256)),
        b"\xff\xfe\xfd",
        b"PUB x y",
        bytes(4),
        b"\r\n" * 1000,
    ],
    ids=["empty", "space", "spaces", "all-bytes", "no-utf-8", "command", "zeros", "lines"],
)
def test_any_payload_is_delivered_as_it_was(
    broker: BrokerProcess, name: str, payload: bytes
) -> None:
    with registered(broker) as client:
        client.subscribe(name)
        client.publish(name, b"before", payload, b"after")
        assert client.payloads(name, 3) == [b"before", payload, b"after"]


def test_a_message_of_5_mb_is_delivered(broker: BrokerProcess, name: str) -> None:
    large = bytes(range(250)) * 20_000
    with registered(broker) as client:
        client.subscribe(name)
        client.publish(name, b"before", large, large, b"after")
        assert client.payloads(name, 4) == [b"before", large, large, b"after"]


def test_a_frame_may_arrive_byte_by_byte(broker: BrokerProcess, name: str) -> None:
    with registered(broker) as client:
        client.subscribe(name)
        for byte in publish_frame(name, b"slow") + publish_frame(name, b""):
            client.socket.sendall(bytes([byte]))
        assert client.payloads(name, 2) == [b"slow", b""]


# Positions


def test_set_moves_the_position_to_an_offset_the_oldest_or_the_latest(
    broker: BrokerProcess, name: str
) -> None:
    with registered(broker) as client:
        client.subscribe(name)
        client.publish(name, b"0", b"1", b"2", b"3")
        assert client.payloads(name, 4) == [b"0", b"1", b"2", b"3"]
        client.seek(name, 2)
        assert client.payloads(name, 2) == [b"2", b"3"]
        client.seek(name, 0)
        assert client.payloads(name, 4) == [b"0", b"1", b"2", b"3"]
        client.seek(name, -1)
        client.publish(name, b"4")
        assert client.payloads(name, 1) == [b"4"]
        client.seek(name, 1_000_000)
        client.publish(name, b"5")
        assert client.payloads(name, 1) == [b"5"]


def test_set_before_subscribing_decides_where_the_subscription_begins(
    broker: BrokerProcess, name: str
) -> None:
    with registered(broker) as client:
        client.seek(name, -1)
        client.publish(name, b"0", b"1")
        client.seek(name, -1)
        client.subscribe(name)
        client.publish(name, b"2")
        assert client.payloads(name, 1) == [b"2"]


def test_who_logs_in_again_goes_on_where_it_was(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as client:
        client_id = client.register()
        client.subscribe(name)
        client.publish(name, b"0", b"1")
        assert client.payloads(name, 2) == [b"0", b"1"]
        client.finish()
    with registered(broker) as producer:
        producer.publish(name, b"2")
        producer.finish()
    with connect(broker) as client:
        client.login(client_id)
        client.subscribe(name)
        assert client.payloads(name, 1) == [b"2"]


def test_an_id_that_was_never_given_out_is_simply_new(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as client:
        client.login(f"somebody {name}")
        client.publish(name, b"0")
        client.subscribe(name)
        assert client.payloads(name, 1) == [b"0"]


def test_a_second_login_ends_the_first_connection_and_takes_over(
    broker: BrokerProcess, name: str
) -> None:
    with connect(broker) as first, connect(broker) as second, registered(broker) as producer:
        client_id = first.register()
        first.subscribe(name)
        producer.publish(name, b"0")
        assert first.payloads(name, 1) == [b"0"]
        second.login(client_id)
        second.subscribe(name)
        assert first.is_closed()
        producer.publish(name, b"1")
        assert second.payloads(name, 1) == [b"1"]


def wait_until_committed(broker: BrokerProcess, client_id: str, offset: int) -> None:
    """What was delivered is committed a few times a second."""
    url = f"{broker.url}/groups/pylogstreams.{client_id}/offsets"

    def is_committed() -> bool:
        answer = httpx.get(url, trust_env=False, timeout=HANG_S)
        return answer.status_code == 200 and answer.json()["offsets"][0]["offset"] == offset

    wait_until(is_committed, f"a commit of offset {offset}")


@pytest.mark.system
def test_positions_are_restored_after_the_broker_was_killed(
    start_broker: StartBroker, name: str
) -> None:
    broker = start_broker()
    ids: list[str] = []
    for number in range(3):
        with connect(broker) as client:
            ids.append(client.register())
            client.subscribe(name)
            client.publish(name, f"{number}".encode())
            client.payloads(name, number + 1)
            client.finish()
    for number, client_id in enumerate(ids):
        wait_until_committed(broker, client_id, number + 1)
    broker.kill_and_restart()
    for number, client_id in enumerate(ids):
        with connect(broker) as client:
            client.login(client_id)
            client.subscribe(name)
            left = [b"0", b"1", b"2"][number + 1 :]
            assert client.payloads(name, len(left)) == left
            assert client.is_quiet()
    assert broker.complaints() == []


@pytest.mark.system
def test_nothing_is_left_out_when_the_broker_is_killed_while_it_delivers(
    start_broker: StartBroker, name: str
) -> None:
    broker = start_broker()
    sent = [str(number).encode() for number in range(20_000)]
    with registered(broker) as producer:
        producer.publish(name, *sent)
        producer.finish()
    with connect(broker) as client:
        client_id = client.register()
        client.subscribe(name)
        seen = client.payloads(name, 1_500)
        broker.kill()
        # What the socket had taken counts as delivered; it is still there to be read.
        try:
            while (frame := client.receive()) is not None:
                seen.append(frame.partition(b" ")[2])
        except ConnectionResetError:
            pass
    broker.start()
    with connect(broker) as client:
        client.login(client_id)
        client.subscribe(name)
        [first] = client.payloads(name, 1)
        assert int(first) <= len(seen), "something was left out"
        assert seen == sent[: len(seen)]
        rest = sent[int(first) + 1 :]
        assert client.payloads(name, len(rest)) == rest


@pytest.mark.system
def test_messages_outlive_the_broker_that_took_them(start_broker: StartBroker, name: str) -> None:
    broker = start_broker()
    sent = [str(number).encode() for number in range(10_000)]
    with registered(broker) as producer:
        producer.publish(name, *sent)
        producer.finish()
    broker.kill_and_restart()
    with registered(broker) as client:
        client.subscribe(name)
        assert client.payloads(name, len(sent)) == sent


@pytest.mark.system
def test_positions_survive_an_orderly_stop_at_once(start_broker: StartBroker, name: str) -> None:
    broker = start_broker()
    with connect(broker) as client:
        client_id = client.register()
        client.subscribe(name)
        client.publish(name, b"0", b"1")
        client.payloads(name, 2)
        broker.restart()
    with connect(broker) as client:
        client.login(client_id)
        client.subscribe(name)
        assert client.is_quiet()
        client.publish(name, b"2")
        assert client.payloads(name, 1) == [b"2"]


# What is refused


@pytest.fixture
def strict(shared_broker: BrokerProcess) -> BrokerProcess:
    """A broker that may complain."""
    shared_broker.complaints()
    return shared_broker


@pytest.mark.parametrize(
    "frame", [b"SUB x", b"PUB x y", b"SET x 0", b"PNG", b"", b"XYZ", b"\xff\xff\xff"]
)
def test_any_other_command_before_reg_or_cid_ends_the_connection(
    strict: BrokerProcess, frame: bytes
) -> None:
    with connect(strict) as client:
        client.send_frame(frame)
        if frame.startswith(b"PUB"):
            client.socket.sendall(bytes(4))
        assert client.is_closed()
    with registered(strict) as client:
        client.ping()
        assert client.is_quiet()


def test_a_length_of_0_ends_the_connection(broker: BrokerProcess) -> None:
    with registered(broker) as client:
        client.socket.sendall(bytes(4))
        assert client.is_closed()


def test_nothing_is_taken_after_a_length_of_0(broker: BrokerProcess, name: str) -> None:
    with registered(broker) as client:
        client.socket.sendall(
            publish_frame(name, b"before") + bytes(4) + publish_frame(name, b"after")
        )
        assert client.is_closed()
    with registered(broker) as client:
        client.subscribe(name)
        assert client.payloads(name, 1) == [b"before"]
        assert client.is_quiet()


def test_a_wrong_checksum_ends_the_connection_and_stores_nothing_of_it(
    strict: BrokerProcess, name: str
) -> None:
    with registered(strict) as client:
        client.socket.sendall(
            publish_frame(name, b"good")
            + publish_frame(name, b"bad", checksum=0)
            + publish_frame(name, b"after")
        )
        assert client.is_closed()
    [complaint] = strict.complaints()
    assert "CRC-32" in complaint
    assert name in complaint
    with registered(strict) as client:
        client.subscribe(name)
        client.publish(name, b"next")
        assert client.payloads(name, 2) == [b"good", b"next"]


@pytest.mark.parametrize(
    "topic", ["../../x", "..", ".", "/etc/x", "a/b", "x" * 250, "é", "__consumer_offsets", ""]
)
@pytest.mark.parametrize("command", ["PUB", "SUB", "SET"])
def test_what_is_no_topic_is_refused_and_leaves_no_trace(
    strict: BrokerProcess, topic: str, command: str
) -> None:
    home = strict.data.parent
    before = {path for path in home.rglob("*") if path.is_dir()}
    with registered(strict) as client:
        if command == "PUB":
            client.publish(topic, b"payload")
        else:
            client.send_frame(f"{command} {topic}{' 0' * (command == 'SET')}".encode())
        assert client.is_closed()
    assert {path for path in home.rglob("*") if path.is_dir()} == before
    assert len(strict.complaints()) == 1


@pytest.mark.parametrize(
    "frame",
    [b"XYZ", b"SET x", b"SET x y", b"SET x -2", b"SET x 1 2", b"SUB", b"CID ", b"PUB", b"\xff"],
)
def test_a_frame_that_says_nothing_ends_its_connection_alone(
    strict: BrokerProcess, frame: bytes
) -> None:
    with registered(strict) as other, registered(strict) as client:
        client.send_frame(frame)
        assert client.is_closed()
        other.subscribe("others")
        other.publish("others", b"fine")
        assert other.payloads("others", 1) == [b"fine"]
    assert len(strict.complaints()) == 1


@pytest.mark.parametrize("start", [b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02"])
def test_a_frame_that_is_too_large_is_refused_at_its_first_bytes(
    strict: BrokerProcess, start: bytes
) -> None:
    with registered(strict) as client:
        client.socket.sendall(start)
        assert client.is_closed()
    [complaint] = strict.complaints()
    assert "frame" in complaint or "HTTP" in complaint or "TLS" in complaint


def test_a_message_that_a_topic_does_not_take_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker("[pylogstreams]\nframe.max.bytes = 2000\n", http="off")
    with registered(broker) as client:
        client.publish("topic", b"x" * 1900)
        client.subscribe("topic")
        assert client.payloads("topic", 1) == [b"x" * 1900]
        client.socket.sendall(struct.pack(">I", 2001))
        assert client.is_closed()
    [complaint] = broker.complaints()
    assert "frame.max.bytes is 2000" in complaint
