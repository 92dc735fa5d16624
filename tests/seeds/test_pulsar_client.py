"""Mini Pulsar's routes with a raw HTTP client, and its own client, with a running broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from millstream.client import PulsarClient
from millstream.errors import Unreachable
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.seeds.conftest import StartBroker

# What the example of Mini Pulsar does: send a message, receive it, acknowledge it.
EXAMPLE = """
from millstream.client import PulsarClient

client = PulsarClient("{url}")
producer = client.create_producer("my-topic")
message_id = producer.send("Hello, Mini Pulsar!")
consumer = client.subscribe("my-topic", "my-consumer")
message = consumer.receive()
assert message["message_id"] == message_id
print("Received:", message["data"])
consumer.acknowledge(message["message_id"])
assert consumer.receive() is None
"""


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=HANG_S, trust_env=False) as client:
        yield client


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[PulsarClient]:
    with PulsarClient(broker.url) as client:
        yield client


# Raw


def test_a_message_is_sent_received_until_acknowledged_and_then_the_next(
    raw: httpx.Client, name: str
) -> None:
    route = f"/topics/{name}/messages"
    ids = []
    for number in range(3):
        answer = raw.post(route, json={"data": f"message {number}"})
        assert answer.status_code == 200
        assert isinstance(answer.json()["message_id"], int)
        ids.append(answer.json()["message_id"])
    assert ids == sorted(set(ids))
    for number, message_id in enumerate(ids):
        for _ in range(2):
            got = raw.get(route, params={"consumer_id": "c"})
            assert got.status_code == 200
            assert got.json()["message_id"] == message_id
            assert got.json()["data"] == f"message {number}"
        acked = raw.post(f"{route}/{message_id}/ack", params={"consumer_id": "c"})
        assert acked.status_code == 200
        assert acked.json()["status"] == "ok"
    nothing = raw.get(route, params={"consumer_id": "c"})
    assert nothing.status_code == 404
    assert nothing.json()["detail"] == "No new messages"


def test_every_message_is_delivered_to_every_consumer(raw: httpx.Client, name: str) -> None:
    route = f"/topics/{name}/messages"
    sent = [f"message {number}" for number in range(100)]
    for data in sent:
        raw.post(route, json={"data": data}).raise_for_status()
    for consumer in ("one", "other"):
        seen = []
        while (got := raw.get(route, params={"consumer_id": consumer})).status_code == 200:
            seen.append(got.json()["data"])
            message_id = got.json()["message_id"]
            ack = raw.post(f"{route}/{message_id}/ack", params={"consumer_id": consumer})
            ack.raise_for_status()
        assert seen == sent


def test_receiving_without_a_consumer_id_or_an_unknown_message_is_refused(
    raw: httpx.Client, name: str
) -> None:
    route = f"/topics/{name}/messages"
    raw.post(route, json={"data": "message"}).raise_for_status()
    assert raw.get(route).status_code == 422
    unknown = raw.post(f"{route}/999/ack", params={"consumer_id": "c"})
    assert unknown.status_code == 404
    assert raw.post(f"{route}/0/ack").status_code == 422


def test_receiving_from_an_unknown_topic_does_not_create_it(
    raw: httpx.Client, broker: BrokerProcess, name: str
) -> None:
    got = raw.get(f"/topics/{name}/messages", params={"consumer_id": "c"})
    assert got.status_code == 404
    assert name not in raw.get("/topics").text


# The client


def test_the_example_of_mini_pulsar_runs(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    program = tmp_path / "example.py"
    program.write_text(EXAMPLE.format(url=broker.url))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (done.stdout, done.stderr) == ("Received: Hello, Mini Pulsar!\n", "")
    assert broker.complaints() == []


def test_what_is_not_acknowledged_is_received_again(client: PulsarClient, name: str) -> None:
    producer = client.create_producer(name)
    ids = [producer.send(text) for text in ("0", "1", "ünï 🌀", "")]
    consumer = client.subscribe(name, "me")
    for message_id, text in zip(ids, ("0", "1", "ünï 🌀", ""), strict=True):
        for again in (consumer, client.subscribe(name, "me")):
            message = again.receive()
            assert message is not None
            assert (message["message_id"], message["data"]) == (message_id, text)
        consumer.acknowledge(message_id)
    assert consumer.receive() is None


def test_there_is_nothing_to_receive_where_there_is_no_topic(
    client: PulsarClient, name: str
) -> None:
    assert client.subscribe(name, "me").receive() is None


@pytest.mark.system
def test_cursors_are_restored_after_the_broker_was_killed(
    start_broker: StartBroker, name: str
) -> None:
    broker = start_broker()
    with PulsarClient(broker.url) as client:
        producer = client.create_producer(name)
        ids = [producer.send(str(number)) for number in range(5)]
        consumer = client.subscribe(name, "me")
        for message_id in ids[:2]:
            consumer.receive()
            consumer.acknowledge(message_id)
    broker.kill_and_restart()
    with PulsarClient(broker.url) as client:
        message = client.subscribe(name, "me").receive()
        assert message is not None
        assert (message["message_id"], message["data"]) == (ids[2], "2")
        newcomer = client.subscribe(name, "newcomer").receive()
        assert newcomer is not None
        assert newcomer["data"] == "0"
        assert client.create_producer(name).send("5") > ids[-1]


def test_what_the_broker_refuses_is_raised(client: PulsarClient, name: str) -> None:
    with pytest.raises(httpx.HTTPStatusError):
        client.create_producer("no topic/at all").send("message")
    client.create_producer(name).send("message")
    with pytest.raises(httpx.HTTPStatusError):
        client.subscribe(name, "me").acknowledge(999)


def test_nobody_answers_at_the_address() -> None:
    with PulsarClient("http://127.0.0.1:1") as client, pytest.raises(Unreachable, match="start"):
        client.create_producer("topic").send("message")


def test_a_message_goes_from_one_door_to_the_other(
    client: PulsarClient, broker: BrokerProcess, name: str
) -> None:
    from millstream.client import Client

    with Client("127.0.0.1", broker.pylogstreams_port) as other:
        other.register()
        other.subscribe(name)
        client.create_producer(name).send("from HTTP")
        assert other.consume(20) == f"{name} from HTTP"
        other.produce(name, "from TCP")
        assert other.consume(20) == f"{name} from TCP"
        consumer = client.subscribe(name, "me")
        first = consumer.receive()
        assert first is not None
        consumer.acknowledge(first["message_id"])
        second = consumer.receive()
        assert second is not None
        assert (first["data"], second["data"]) == ("from HTTP", "from TCP")
