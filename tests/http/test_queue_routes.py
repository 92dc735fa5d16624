"""Subscriptions by HTTP: receive, ack, nack, extend, and what becomes of dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S

SOON: dict[str, Any] = {"max_deliveries": 2, "redelivery_min_ms": 0, "redelivery_max_ms": 0}


class Queue:
    """One subscription, over its routes."""

    def __init__(self, web: httpx.Client, topic: str, name: str = "workers", **more: Any) -> None:
        self.web = web
        self.path = f"/topics/{topic}/subscriptions/{name}"
        self.messages = f"/topics/{topic}/messages"
        self.created = web.put(self.path, json=more)

    def send(self, *values: str, **more: Any) -> None:
        some = [{"value": value, **more} for value in values]
        self.web.post(self.messages, json=some).raise_for_status()

    def receive(self, most: int = 10, wait_ms: int = 0, **more: Any) -> list[dict[str, Any]]:
        answer = self.post("receive", max_messages=most, wait_ms=wait_ms, **more)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["messages"]
        return found

    def post(self, what: str, **body: Any) -> httpx.Response:
        return self.web.post(f"{self.path}/{what}", json=body)

    def described(self) -> Any:
        return self.web.get(self.path).json()


def ids(messages: list[dict[str, Any]]) -> list[str]:
    return [each["message_id"] for each in messages]


def test_message_is_received_by_one_and_is_gone_when_acknowledged(
    web: httpx.Client, name: str
) -> None:
    queue = Queue(web, name)
    assert queue.created.status_code == 200
    queue.send("a", "b", key="k", headers={"h": "1"})
    first = queue.receive(1)
    second = queue.receive(1)
    assert queue.receive() == []
    assert [each["value"] for each in first + second] == ["a", "b"]
    assert (first[0]["key"], first[0]["headers"]) == ("k", {"h": "1"})
    assert (first[0]["delivery_count"], first[0]["message_id"]) == (1, "0:0")
    done = {"status": "ok", "ignored": []}
    assert queue.post("ack", message_ids=ids(first + second)).json() == done
    described = queue.described()
    assert (described["backlog"], described["in_flight"]) == (0, 0)


def test_message_not_acknowledged_in_time_comes_again(web: httpx.Client, name: str) -> None:
    queue = Queue(web, name)
    queue.send("a")
    assert queue.receive(visibility_timeout_ms=50)
    [again] = queue.receive(wait_ms=10_000)
    assert (again["value"], again["delivery_count"]) == ("a", 2)


def test_more_time_is_had_for_the_asking(web: httpx.Client, name: str) -> None:
    queue = Queue(web, name)
    queue.send("a")
    [message] = queue.receive()
    asked = {"message_ids": [message["message_id"]], "timeout_ms": 60_000}
    assert queue.post("extend", **asked).status_code == 200
    queue.post("ack", message_ids=[message["message_id"]])
    assert queue.post("extend", **asked).status_code == 409


def test_refused_message_dies_and_is_sent_back(web: httpx.Client, name: str) -> None:
    queue = Queue(web, name, **SOON)
    queue.send("bad", key="k", headers={"h": "1"})
    for _ in range(2):
        received = queue.receive(wait_ms=10_000)
        assert queue.post("nack", message_ids=ids(received), reason="no good").status_code == 200
    letters: list[Any] = []
    while not letters:
        letters = web.get(f"{queue.path}/dlq").json()["messages"]
    [letter] = letters
    assert (letter["value"], letter["reason"], letter["delivery_count"]) == ("bad", "no good", 2)
    assert (letter["source_partition"], letter["source_offset"]) == (0, 0)
    assert letter["headers"]["millstream-source-topic"] == name
    assert queue.post("dlq/replay").json()["count"] == 1
    [again] = queue.receive(wait_ms=10_000)
    assert (again["value"], again["key"], again["headers"]) == ("bad", "k", {"h": "1"})
    assert queue.post("dlq/replay").json()["count"] == 0
    one = [letter["message_id"]]
    assert queue.post("dlq/replay", message_ids=one).status_code == 409
    assert queue.post("dlq/replay", message_ids=one, again=True).json()["count"] == 1
    assert queue.post("dlq/replay", message_ids=["0:99"]).status_code == 422
    assert len(queue.receive(wait_ms=10_000)) == 1


def test_letters_are_sent_back_once_each_and_in_order(web: httpx.Client, name: str) -> None:
    web.post("/topics", json={"name": name, "partitions": 2}).raise_for_status()
    queue = Queue(web, name, max_deliveries=1, redelivery_min_ms=0, redelivery_max_ms=0)
    for number in range(5):
        queue.send(str(number), partition=number % 2)
    queue.post("nack", message_ids=ids(queue.receive()))
    while queue.described()["dead"] < 5:
        pass
    page = web.get(f"{queue.path}/dlq", params={"limit": 3}).json()
    assert [each["value"] for each in page["messages"]] == [
        each["value"] for each in web.get(f"{queue.path}/dlq").json()["messages"][:3]
    ]
    partition, offset = next(iter(page["next_offsets"].items()))
    rest = web.get(f"{queue.path}/dlq", params={"partition": partition, "offset": offset}).json()
    assert len(page["messages"]) + len(rest["messages"]) == 5
    assert [queue.post("dlq/replay", limit=2).json()["count"] for _ in range(4)] == [2, 2, 1, 0]
    again = queue.receive(wait_ms=10_000)
    while len(again) < 5:
        again += queue.receive(wait_ms=10_000)
    found = {number: [m["value"] for m in again if m["partition"] == number] for number in (0, 1)}
    assert found == {0: ["0", "2", "4"], 1: ["1", "3"]}
    assert web.get(f"{queue.path}/dlq", params={"offset": 1}).status_code == 422


def test_letters_of_another_subscription_are_not_shown(web: httpx.Client, name: str) -> None:
    queue, other = Queue(web, name, **SOON), Queue(web, name, "other", **SOON)
    queue.send("bad")
    for _ in range(2):
        queue.post("nack", message_ids=ids(queue.receive(wait_ms=10_000)))
    while not web.get(f"{queue.path}/dlq").json()["messages"]:
        pass
    assert web.get(f"{other.path}/dlq").json()["messages"] == []
    assert other.post("dlq/replay").json()["count"] == 0


def test_delayed_message_waits_for_its_time(web: httpx.Client, name: str) -> None:
    queue = Queue(web, name)
    queue.send("late", deliver_after=400)
    queue.send("now")
    assert [each["value"] for each in queue.receive()] == ["now"]
    assert [each["value"] for each in queue.receive(wait_ms=10_000)] == ["late"]


def test_no_body_is_as_good_as_an_empty_one(web: httpx.Client, name: str) -> None:
    path = f"/topics/{name}/subscriptions/workers"
    assert web.put(path).json()["type"] == "shared"
    web.post(f"/topics/{name}/messages", json={"value": "a"}).raise_for_status()
    assert [m["value"] for m in web.post(f"{path}/receive").json()["messages"]] == ["a"]
    assert web.post(f"{path}/dlq/replay").json()["count"] == 0


def test_message_is_called_by_its_number_too(web: httpx.Client, name: str) -> None:
    web.post("/topics", json={"name": name, "partitions": 2}).raise_for_status()
    queue = Queue(web, name)
    sent = [
        web.post(queue.messages, json={"value": "a", "partition": 1}).json()["message_id"]
        for _ in range(3)
    ]
    # Each answer has what is ready by then.
    received = queue.receive()
    while len(received) < 3:
        received += queue.receive(wait_ms=10_000)
    assert queue.post("ack", message_ids=[sent[0], str(sent[1])]).status_code == 200
    assert queue.post("extend", message_ids=sent[2:], timeout_ms=60_000).status_code == 200
    assert queue.post("extend", message_ids=sent[:1], timeout_ms=60_000).status_code == 409
    assert queue.post("nack", message_ids=sent[2:], delay_ms=0).status_code == 200
    [again] = queue.receive(wait_ms=10_000)
    assert again["message_id"] == "1:2"
    for wrong in (-1, True, 1.5, None, 2**63, "1:", "9" * 30):
        assert queue.post("ack", message_ids=[wrong]).status_code == 422, wrong


def test_subscription_is_created_once(web: httpx.Client, name: str) -> None:
    assert Queue(web, name, ack_timeout_ms=5000).created.status_code == 200
    assert Queue(web, name, ack_timeout_ms=5000).created.status_code == 200
    assert Queue(web, name, ack_timeout_ms=6000).created.status_code == 409
    listed = web.get(f"/topics/{name}/subscriptions").json()["subscriptions"]
    assert [(each["name"], each["ack_timeout_ms"]) for each in listed] == [("workers", 5000)]
    everywhere = web.get("/subscriptions").json()["subscriptions"]
    assert listed[0] in everywhere


def test_deleted_subscription_is_gone(web: httpx.Client, name: str) -> None:
    queue = Queue(web, name)
    assert web.delete(queue.path).json() == {"status": "ok"}
    assert web.get(queue.path).status_code == 404
    assert web.delete(queue.path).status_code == 404
    for what in ("receive", "dlq/replay"):
        assert queue.post(what).status_code == 404
    assert queue.post("ack", message_ids=["0:0"]).status_code == 404


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("receive", {"max_messages": 0}),
        ("receive", {"wait_ms": -1}),
        ("ack", {}),
        ("ack", {"message_ids": []}),
        ("ack", {"message_ids": ["7"]}),
        ("ack", {"message_ids": ["0:99"]}),
        ("nack", {"message_ids": ["9:0"]}),
        ("extend", {"message_ids": ["0:0"]}),
    ],
)
def test_bad_request_is_refused(web: httpx.Client, name: str, what: str, body: Any) -> None:
    queue = Queue(web, name)
    queue.send("a")
    assert queue.post(what, **body).status_code == 422
    assert len(queue.receive()) == 1


def test_one_that_needs_a_consumer_says_so(web: httpx.Client, name: str) -> None:
    queue = Queue(web, name, type="exclusive")
    answer = queue.post("receive")
    assert answer.status_code == 409
    assert "attach a consumer" in answer.json()["detail"]


@pytest.mark.system
def test_acknowledged_stays_so_after_kill_9(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, http="127.0.0.1:0") as broker:
        with httpx.Client(base_url=broker.url, timeout=HANG_S) as web:
            queue = Queue(web, "t")
            queue.send(*map(str, range(10)))
            queue.send("delayed", deliver_after=1500)
            received = queue.receive()
            while len(received) < 4:
                received += queue.receive(wait_ms=10_000)
            assert queue.post("ack", message_ids=ids(received[:4])).status_code == 200
        broker.kill_and_restart()
        with httpx.Client(base_url=broker.url, timeout=HANG_S) as web:
            queue = Queue(web, "t")
            left: list[dict[str, Any]] = []
            while len(left) < 7:
                left += queue.receive(wait_ms=10_000)
            values = [each["value"] for each in left]
            assert values == [*(str(n) for n in range(4, 10)), "delayed"]
            assert queue.post("ack", message_ids=ids(left)).status_code == 200
            assert queue.described()["backlog"] == 0
        broker.stop()
