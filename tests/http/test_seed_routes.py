"""The routes of Mini Pulsar and FastQueue2, called as their own clients call them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S


class MiniPulsarConsumer:
    """A consumer as Mini Pulsar has it, over its three routes."""

    def __init__(self, web: httpx.Client, topic: str, consumer_id: str) -> None:
        self._web = web
        self._path = f"/topics/{topic}/messages"
        self._query = {"consumer_id": consumer_id}

    def receive(self) -> dict[str, Any] | None:
        answer = self._web.get(self._path, params=self._query)
        if answer.status_code == 404:
            assert answer.json()["detail"] == "No new messages"
            return None
        assert answer.status_code == 200
        message: dict[str, Any] = answer.json()
        return message

    def acknowledge(self, message_id: int) -> httpx.Response:
        return self._web.post(f"{self._path}/{message_id}/ack", params=self._query)


def send(web: httpx.Client, topic: str, data: str) -> int:
    answer = web.post(f"/topics/{topic}/messages", json={"data": data})
    assert answer.status_code == 200
    message_id: int = answer.json()["message_id"]
    return message_id


def drain(consumer: MiniPulsarConsumer) -> list[str]:
    found = []
    while (message := consumer.receive()) is not None:
        found.append(message["data"])
        assert consumer.acknowledge(message["message_id"]).json() == {"status": "ok"}
    return found


def test_every_message_is_received_once_it_is_acknowledged(web: httpx.Client, name: str) -> None:
    ids = [send(web, name, str(n)) for n in range(50)]
    assert len(set(ids)) == 50
    for who in ("one", "two"):
        assert drain(MiniPulsarConsumer(web, name, f"{name}-{who}")) == [str(n) for n in range(50)]


def test_message_is_received_again_until_it_is_acknowledged(web: httpx.Client, name: str) -> None:
    consumer = MiniPulsarConsumer(web, name, name)
    first, second = send(web, name, "a"), send(web, name, "b")
    for _ in range(3):
        message = consumer.receive()
        assert message is not None
        assert (message["message_id"], message["data"]) == (first, "a")
    consumer.acknowledge(first)
    consumer.acknowledge(first)
    again = MiniPulsarConsumer(web, name, name).receive()
    assert again is not None
    assert again["message_id"] == second


def test_ack_moves_a_cursor_up_and_never_back(web: httpx.Client, name: str) -> None:
    consumer = MiniPulsarConsumer(web, name, name)
    ids = [send(web, name, str(n)) for n in range(3)]
    consumer.acknowledge(ids[1])
    consumer.acknowledge(ids[0])
    message = consumer.receive()
    assert message is not None
    assert message["data"] == "2"


def test_ack_of_an_unknown_id_is_refused(web: httpx.Client, name: str) -> None:
    consumer = MiniPulsarConsumer(web, name, name)
    send(web, name, "a")
    for unknown in (1, 2**46, 2**63 - 1):
        assert consumer.acknowledge(unknown).status_code == 404
    assert consumer.receive() is not None
    assert MiniPulsarConsumer(web, f"{name}-no", name).acknowledge(0).status_code == 404
    assert web.get(f"/groups/{name}").status_code == 404


def test_consumer_must_say_who_it_is(web: httpx.Client, name: str) -> None:
    send(web, name, "a")
    assert web.get(f"/topics/{name}/messages").status_code == 422
    assert web.get(f"/topics/{name}/messages?consumer_id=").status_code == 422
    assert web.post(f"/topics/{name}/messages/0/ack").status_code == 422


def test_cursor_walks_through_all_partitions(web: httpx.Client, name: str) -> None:
    web.post("/topics", json={"name": name, "partitions": 3}).raise_for_status()
    for n in range(30):
        send(web, name, str(n))
    found = drain(MiniPulsarConsumer(web, name, name))
    assert sorted(found, key=int) == [str(n) for n in range(30)]


@pytest.mark.system
def test_cursor_survives_kill_9(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        with httpx.Client(base_url=broker.url, timeout=HANG_S) as web:
            ids = [send(web, "t", str(n)) for n in range(10)]
            MiniPulsarConsumer(web, "t", "c").acknowledge(ids[6])
        broker.kill_and_restart()
        with httpx.Client(base_url=broker.url, timeout=HANG_S) as web:
            assert drain(MiniPulsarConsumer(web, "t", "c")) == ["7", "8", "9"]
        broker.stop()


def test_cursor_is_a_group_of_kafka(
    http_broker: BrokerProcess, web: httpx.Client, name: str
) -> None:
    ids = [send(web, name, str(n)) for n in range(5)]
    MiniPulsarConsumer(web, name, name).acknowledge(ids[2])
    admin = AdminClient({"bootstrap.servers": http_broker.address})
    [future] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]).values()
    [position] = future.result(timeout=HANG_S).topic_partitions
    assert (position.topic, position.offset) == (name, 3)
    moved = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 1)])
    [altered] = admin.alter_consumer_group_offsets([moved]).values()
    altered.result(timeout=HANG_S)
    message = MiniPulsarConsumer(web, name, name).receive()
    assert message is not None
    assert message["data"] == "1"


def test_message_of_kafka_is_received_and_the_other_way_round(
    http_broker: BrokerProcess, web: httpx.Client, name: str
) -> None:
    send(web, name, "through http")
    consumer = Consumer(
        {
            "bootstrap.servers": http_broker.address,
            "group.id": f"{name}-kafka",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([name])
    message = consumer.poll(HANG_S)
    assert message is not None
    assert message.value() == b"through http"
    # The group has a member now, which alone may move it.
    answer = web.post(f"/groups/{name}-kafka/reset", json={"topic": name, "to": "earliest"})
    assert answer.status_code == 409
    assert "has members" in answer.json()["detail"]
    consumer.close()


def test_fastqueue_takes_and_gives_messages(web: httpx.Client, name: str) -> None:
    for number in range(5):
        answer = web.post(f"/topics/{name}", json={"message": f"Message {number}"})
        assert answer.status_code == 200
        assert answer.json()["offset"] == number
        assert answer.json()["timestamp"] > 0
    for number in range(5):
        found = web.get(f"/topics/{name}", params={"offset": number}).json()
        assert (found["offset"], found["message"]) == (number, f"Message {number}")
        assert found["timestamp"] > 0
    assert web.get(f"/topics/{name}", params={"offset": 5}).status_code == 404


def test_fastqueue_readme_routes(web: httpx.Client, name: str) -> None:
    for number in range(5):
        web.post(f"/topics/{name}/messages", json={"message": str(number)}).raise_for_status()
    page = web.get(f"/topics/{name}/messages", params={"offset": 1, "limit": 2}).json()
    assert [each["value"] for each in page["messages"]] == ["1", "2"]
    offsets = web.get(f"/topics/{name}/offsets").json()
    assert (offsets["start_offset"], offsets["end_offset"]) == (0, 5)
    health = web.get("/health").json()
    assert health["status"] == "ok"
    assert "is running" in health["message"]
    assert name in [each["name"] for each in web.get("/topics").json()["topics"]]


@pytest.mark.parametrize("wait_ms", [0, 50])
def test_receive_may_wait(web: httpx.Client, name: str, wait_ms: int) -> None:
    message_id = send(web, name, "a")
    consumer = MiniPulsarConsumer(web, name, name)
    consumer.acknowledge(message_id)
    query: dict[str, str | int] = {"consumer_id": name, "wait_ms": wait_ms}
    answer = web.get(f"/topics/{name}/messages", params=query)
    assert answer.status_code == 404
    assert answer.json()["detail"] == "No new messages"
