"""Reading messages by offset, id and time, and waiting for them."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S


def fill(web: httpx.Client, topic: str, count: int, **more: Any) -> None:
    some = [{"value": str(n), **more} for n in range(count)]
    web.post(f"/topics/{topic}/messages", json=some).raise_for_status()


def read(web: httpx.Client, topic: str, **query: Any) -> Any:
    answer = web.get(f"/topics/{topic}/messages", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def values(page: Any) -> list[str]:
    return [each["value"] for each in page["messages"]]


def test_pages_lead_from_the_first_message_to_the_last(web: httpx.Client, name: str) -> None:
    fill(web, name, 250)
    found: list[str] = []
    offset = 0
    while offset < 250:
        page = read(web, name, offset=offset, limit=99)
        assert len(page["messages"]) in {99, 52}
        found += values(page)
        offset = page["next_offset"]
    assert found == [str(n) for n in range(250)]
    assert read(web, name, offset=250)["messages"] == []


def test_bytes_of_an_answer_are_limited(web: httpx.Client, name: str) -> None:
    for _ in range(5):
        fill(web, name, 1, headers={"pad": "x" * 1000})
        web.post(f"/topics/{name}/messages", json={"value": "y" * 10_000}).raise_for_status()
    page = read(web, name, offset=0, max_bytes=15_000)
    assert 0 < len(page["messages"]) < 10
    assert page["next_offset"] == len(page["messages"])


def test_earliest_and_latest_are_places(web: httpx.Client, name: str) -> None:
    fill(web, name, 3)
    assert values(read(web, name, offset="earliest")) == ["0", "1", "2"]
    page = read(web, name, offset="latest")
    assert (page["messages"], page["next_offset"]) == ([], 3)


def test_time_leads_to_the_first_message_from_then_on(web: httpx.Client, name: str) -> None:
    for time_ms in (1000, 2000, 3000):
        message = {"value": str(time_ms), "timestamp": time_ms}
        web.post(f"/topics/{name}/messages", json=message).raise_for_status()
    assert values(read(web, name, timestamp=1001)) == ["2000", "3000"]
    assert values(read(web, name, timestamp=2000)) == ["2000", "3000"]
    assert values(read(web, name, timestamp=3001)) == []


@pytest.mark.parametrize("form", [str, lambda number: f"0:{number}"])
def test_message_is_read_by_its_id(web: httpx.Client, name: str, form: Any) -> None:
    fill(web, name, 5)
    assert web.get(f"/topics/{name}/messages/{form(3)}").json()["value"] == "3"
    missing = web.get(f"/topics/{name}/messages/{form(5)}")
    assert missing.status_code == 404
    assert missing.json()["detail"].startswith("there is no message")


def test_offset_past_the_end_is_told_with_the_ends(web: httpx.Client, name: str) -> None:
    fill(web, name, 2)
    answer = web.get(f"/topics/{name}/messages", params={"offset": 3})
    assert answer.status_code == 416
    problem = answer.json()
    assert (problem["offset"], problem["start_offset"], problem["end_offset"]) == (3, 0, 2)


@pytest.mark.parametrize(
    "query",
    [
        {"offset": "x"},
        {"offset": -1},
        {"offset": 0, "limit": 0},
        {"offset": 0, "limit": 10_001},
        {"offset": 0, "timestamp": 1},
        {"limit": 1},
        {"offset": 0, "encoding": "hex"},
        {"offset": "9" * 30},
    ],
)
def test_what_is_no_place_is_refused(web: httpx.Client, name: str, query: Any) -> None:
    fill(web, name, 1)
    answer = web.get(f"/topics/{name}/messages", params=query)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("offset=abc", "offset = 'abc': expected string that should match pattern"),
        ("offset=0&limit=0", "limit = '0': expected greater than or equal to 1"),
        ("offset=0&encoding=hex", "encoding = 'hex': expected 'text' or 'base64'"),
        ("offset=0&limit=" + "x" * 5000, "limit = 'xxx"),
    ],
)
def test_bad_value_is_named(web: httpx.Client, name: str, query: str, detail: str) -> None:
    told = web.get(f"/topics/{name}/messages?{query}").json()
    assert told["detail"].startswith(detail)
    assert len(told["detail"]) < 300
    assert (told["type"], told["title"]) == ("urn:millstream:invalid-request", "Invalid request")


def test_topic_of_several_partitions_wants_to_know_which(web: httpx.Client, name: str) -> None:
    web.post("/topics", json={"name": name, "partitions": 2}).raise_for_status()
    assert web.get(f"/topics/{name}/messages", params={"offset": 0}).status_code == 422
    assert read(web, name, offset=0, partition=1)["messages"] == []
    missing = web.get(f"/topics/{name}/messages", params={"offset": 0, "partition": 2})
    assert missing.status_code == 404
    assert missing.json()["type"] == "urn:millstream:unknown-partition"
    assert missing.json()["detail"] == f"topic {name!r} has no partition 2: it has 2 (0 to 1)"
    for path in (f"/topics/{name}?offset=0&partition=2", f"/topics/{name}/messages/2:0"):
        assert web.get(path).json() == missing.json()


def test_unknown_topic_is_not_created_by_reading(web: httpx.Client, name: str) -> None:
    for path in (
        f"/topics/{name}",
        f"/topics/{name}?offset=0",
        f"/topics/{name}/offsets",
        f"/topics/{name}/messages?offset=0",
        f"/topics/{name}/messages?consumer_id=c",
        f"/topics/{name}/messages/0",
    ):
        assert web.get(path).status_code == 404, path
    assert name not in [each["name"] for each in web.get("/topics").json()["topics"]]


def test_long_poll_is_answered_when_a_message_comes(http_broker: BrokerProcess, name: str) -> None:
    with httpx.Client(base_url=http_broker.url, timeout=HANG_S) as web:
        fill(web, name, 1)
        answers: list[Any] = []

        def wait() -> None:
            with httpx.Client(base_url=http_broker.url, timeout=HANG_S) as other:
                answers.append(read(other, name, offset=1, wait_ms=20_000))

        waiting = threading.Thread(target=wait)
        waiting.start()
        web.post(f"/topics/{name}/messages", json={"value": "late"}).raise_for_status()
        waiting.join(HANG_S)
        assert not waiting.is_alive()
    assert values(answers[0]) == ["late"]


def test_long_poll_ends_empty_when_nothing_comes(web: httpx.Client, name: str) -> None:
    fill(web, name, 1)
    page = read(web, name, offset=1, wait_ms=50)
    assert (page["messages"], page["next_offset"]) == ([], 1)


def test_client_that_hangs_up_while_it_waits_leaves_nothing_behind(
    http_broker: BrokerProcess, web: httpx.Client, name: str
) -> None:
    fill(web, name, 1)
    hasty_limits = httpx.Timeout(HANG_S, read=0.1)
    for _ in range(3):
        with (
            httpx.Client(base_url=http_broker.url, timeout=hasty_limits) as hasty,
            pytest.raises(httpx.ReadTimeout),
        ):
            hasty.get(f"/topics/{name}/messages", params={"offset": 1, "wait_ms": 20_000})
    fill(web, name, 1)
    assert values(read(web, name, offset=1)) == ["0"]
