"""Dead letters that are sent back: by many at once, over and over, and where some cannot be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.clients.client_shape import eventually

LARGE = "x" * 5000


class Dead:
    """A topic whose subscription `s` has dead letters, one for each value."""

    def __init__(self, web: httpx.Client, topic: str, *values: str) -> None:
        self.web = web
        self.topic = f"/topics/{topic}"
        self.path = f"{self.topic}/subscriptions/s"
        settings = {"max_deliveries": 1, "ack_timeout_ms": 60_000}
        web.put(self.path, json=settings).raise_for_status()
        web.post(
            f"{self.topic}/messages", json=[{"value": value} for value in values]
        ).raise_for_status()
        got: list[str] = []
        while len(got) < len(values):
            wanted = {"max_messages": 1000, "wait_ms": 10_000}
            found = web.post(f"{self.path}/receive", json=wanted).json()["messages"]
            got += [each["message_id"] for each in found]
        web.post(f"{self.path}/nack", json={"message_ids": got}).raise_for_status()
        eventually(lambda: web.get(self.path).json()["dead"] == len(values), "all are dead")
        self.sent = len(values)

    def replay(self, **body: Any) -> Any:
        answer = self.web.post(f"{self.path}/dlq/replay", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def sent_back(self) -> list[str]:
        """What is in the topic since."""
        found = self.web.get(
            f"{self.topic}/messages", params={"offset": self.sent, "limit": 10_000}
        )
        return [each["value"] for each in found.json()["messages"]]

    def take_only(self, size_bytes: int) -> None:
        settings = {"settings": {"max.message.bytes": size_bytes}}
        self.web.patch(self.topic, json=settings).raise_for_status()


def test_many_who_send_letters_back_at_once_send_each_once(web: httpx.Client, name: str) -> None:
    values = [str(number) for number in range(50)]
    dead = Dead(web, name, *values)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: dead.replay(limit=20), range(8)))
    assert sorted(each["count"] for each in answers) == [0, 0, 0, 0, 0, 10, 20, 20]
    assert sorted(dead.sent_back()) == sorted(values)


def test_letter_that_cannot_be_sent_back_is_named_and_holds_up_no_other(
    web: httpx.Client, name: str
) -> None:
    dead = Dead(web, name, "a", LARGE, "b")
    dead.take_only(1000)
    answer = dead.replay()
    assert (answer["count"], answer["has_more"]) == (2, False)
    [failed] = answer["failed"]
    assert failed["message_id"] == "0:1"
    assert "1000" in failed["reason"]
    assert dead.sent_back() == ["a", "b"]
    # It is passed over from now on, and none is sent back twice.
    assert dead.replay() == {"count": 0, "failed": [], "has_more": False}
    dead.take_only(100_000)
    assert dead.replay(message_ids=["0:1"])["count"] == 1
    assert dead.sent_back() == ["a", "b", LARGE]


def test_letters_that_were_sent_back_are_marked_counted_and_not_sent_twice_unasked(
    web: httpx.Client, name: str
) -> None:
    dead = Dead(web, name, "a", LARGE, "b", "c")

    def seen(state: str) -> list[tuple[str, bool]]:
        page = web.get(f"{dead.path}/dlq", params={"state": state, "counts": "true"}).json()
        counts.update(page["counts"])
        return [(each["message_id"], each["replayed"]) for each in page["messages"]]

    counts: dict[str, Any] = {}
    assert dead.replay(message_ids=["0:2"])["count"] == 1
    assert seen("replayed") == [("0:2", True)]
    assert seen("outstanding") == [("0:0", False), ("0:1", False), ("0:3", False)]
    assert counts == {"outstanding": 3, "replayed": 1, "is_complete": True}
    # What was sent back by its id is passed over, and what the topic does not take is not done.
    dead.take_only(1000)
    assert dead.replay()["count"] == 2
    assert dead.sent_back() == ["b", "a", "c"]
    assert seen("outstanding") == [("0:1", False)]
    assert counts == {"outstanding": 1, "replayed": 3, "is_complete": True}
    answer = web.post(f"{dead.path}/dlq/replay", json={"message_ids": ["0:0", "0:2"]})
    assert answer.status_code == 409
    assert "has sent back 2 of these letters before (0:0, 0:2)" in answer.text
    assert dead.replay(message_ids=["0:0"], again=True)["count"] == 1
    dead.take_only(100_000)
    assert dead.replay(message_ids=["0:1"])["count"] == 1
    assert dead.sent_back() == ["b", "a", "c", "a", LARGE]
    assert seen("outstanding") == []
    assert web.post(f"{dead.path}/dlq/replay", json={"again": True}).status_code == 422


def test_letter_that_is_named_often_is_sent_back_once(web: httpx.Client, name: str) -> None:
    dead = Dead(web, name, "a", "b")
    assert dead.replay(message_ids=["0:1"] * 5000 + ["0:0"])["count"] == 2
    assert sorted(dead.sent_back()) == ["a", "b"]


def test_wrong_id_among_others_changes_nothing(web: httpx.Client, name: str) -> None:
    dead = Dead(web, name, "a", "b")
    for wrong in ("0:2", "7:0", "0:99"):
        answer = web.post(f"{dead.path}/dlq/replay", json={"message_ids": ["0:0", "0:1", wrong]})
        assert answer.status_code == 422
        assert wrong in answer.text
    assert dead.sent_back() == []


def test_letters_are_looked_at_in_bounded_pieces(web: httpx.Client, name: str) -> None:
    values = [f"{number}-" + "x" * 900_000 for number in range(14)]
    dead = Dead(web, name, *values)
    page = web.get(f"{dead.path}/dlq").json()
    assert 1 <= len(page["messages"]) < 14
    seen = list(page["messages"])
    [(partition, offset)] = page["next_offsets"].items()
    while page["messages"]:
        where = {"partition": partition, "offset": offset}
        page = web.get(f"{dead.path}/dlq", params=where).json()
        seen += page["messages"]
        offset = page["next_offsets"][partition]
    assert [each["value"] for each in seen] == values
    assert dead.replay()["count"] == 14
    assert len(dead.sent_back()) >= 1
