"""What the dashboard is made of: its files, its stream of changes, and the answers it asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess

pytestmark = pytest.mark.system

Frames = Iterator[tuple[str, dict[str, Any]]]


@contextmanager
def stream(web: httpx.Client, **parameters: str) -> Iterator[Frames]:
    """The events of a page, as they come."""
    with web.stream("GET", "/api/events", params=parameters) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _frames(answer)


def _frames(answer: httpx.Response) -> Frames:
    event = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield event, json.loads(line.removeprefix("data: "))


def until(frames: Frames, event: str) -> dict[str, Any]:
    return next(told for name, told in frames if name == event)


def test_page_is_our_own_and_guarded(web: httpx.Client) -> None:
    page = web.get("/", headers={"accept": "text/html"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    for rule in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-cache"
    again = web.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_files_are_kept_for_good_and_load_nothing_from_elsewhere(web: httpx.Client) -> None:
    page = web.get("/").text
    wanted = set(re.findall(r'(?:src|href)="(dashboard/[^"]+)"', page))
    seen: set[str] = set()
    while wanted:
        path = wanted.pop()
        seen.add(path)
        answer = web.get(f"/{path}")
        assert answer.status_code == 200, path
        assert "immutable" in answer.headers["cache-control"]
        folder = path.rpartition("/")[0]
        if path.endswith(".js"):
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", answer.text), path
            assert not re.search(r"innerHTML|insertAdjacent|document\.write|\beval\(", answer.text)
            names = re.findall(r'(?:from|import\() ?"\./([\w.]+)"', answer.text)
            wanted |= {f"{folder}/{name}" for name in names} - seen
        elif path.endswith(".css"):
            assert not re.search(r"@import|url\(", answer.text)
    assert len([path for path in seen if path.endswith(".js")]) > 15
    old = web.get("/dashboard/0123456789abcdef/main.js")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    assert web.get("/dashboard/x/..%2fpage.py").status_code == 404
    assert web.get("/dashboard/x/none.js").status_code == 404


def test_stream_begins_with_all_and_goes_on_with_changes(web: httpx.Client, topic: str) -> None:
    web.put(f"/topics/{topic}", json={"partitions": 2}).raise_for_status()
    with stream(web, view="topics") as frames:
        told = until(frames, "topics")
        assert told["all"]
        assert told["set"][topic] == [2, 0, 0, 0, 0, 0]
        web.post(f"/topics/{topic}/messages", json=[{"value": "x"}] * 5).raise_for_status()
        told = until(frames, "topics")
        assert "all" not in told
        assert list(told["set"]) == [topic]
        assert told["set"][topic][:2] == [2, 5]
        web.delete(f"/topics/{topic}").raise_for_status()
        while not told["gone"]:
            told = until(frames, "topics")
        assert told["gone"] == [topic]
        pulse = until(frames, "pulse")["set"]
        assert pulse["at"] > 0


def test_two_viewers_are_told_the_same(web: httpx.Client, topic: str) -> None:
    web.post(f"/topics/{topic}/messages", json={"value": "x"}).raise_for_status()
    with stream(web, view="topic", name=topic) as one, stream(web, view="topic", name=topic) as two:
        first, second = until(one, "topic"), until(two, "topic")
        assert first == second
        assert first["set"]["partition/0"]["end_offset"] == 1


def test_what_is_not_there_is_told_and_comes_when_it_is(web: httpx.Client, topic: str) -> None:
    with stream(web, view="topic", name=topic) as frames:
        assert until(frames, "topic")["problem"]["status"] == 404
        # Who comes later is told the same.
        with stream(web, view="topic", name=topic) as others:
            assert until(others, "topic")["problem"]["status"] == 404
        web.put(f"/topics/{topic}", json={}).raise_for_status()
        assert until(frames, "topic")["set"]["name"] == topic
    refused = web.get("/api/events", params={"view": "nonsense"})
    assert refused.status_code == 422
    assert "expected overview, topics" in refused.json()["detail"]


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("limit", [1, 7, 200])
def test_search_over_all_partitions_comes_in_the_order_of_time(
    web: httpx.Client, topic: str, order: str, limit: int
) -> None:
    web.put(f"/topics/{topic}", json={"partitions": 3}).raise_for_status()
    random = Random(limit)
    sent: dict[int, list[dict[str, Any]]] = {0: [], 1: [], 2: []}
    for n in range(300):
        value = f"grain {n:03}" if n % 3 else "flour"
        number = random.choice((0, 0, 0, 1, 1, 2))
        sent[number].append({"value": value, "partition": number, "timestamp": 1000 + n})
    for messages in sent.values():
        # In batches, which each have messages of many times.
        for at in range(0, len(messages), 20):
            web.post(f"/topics/{topic}/messages", json=messages[at : at + 20]).raise_for_status()
    found: list[str] = []
    place: dict[str, str] | None = {}
    while place is not None:
        wanted: dict[str, str | int] = {"topic": topic, "text": "grain", "order": order}
        told = web.get("/api/search", params={**wanted, "limit": limit, **place}).json()
        found += [each["value"] for each in told["messages"]]
        assert len(told["messages"]) <= limit
        assert told["scanned"] <= told["total"] == 300
        following = told["next"]
        place = following and {"at": ",".join(f"{n}:{at}" for n, at in following.items())}
    expected = [f"grain {n:03}" for n in range(300) if n % 3]
    assert found == (expected if order == "oldest" else expected[::-1])


def test_search_goes_on_where_it_says(web: httpx.Client, topic: str) -> None:
    web.put(f"/topics/{topic}", json={"partitions": 2}).raise_for_status()
    sent = [
        {"value": f"grain {n}", "key": f"k{n}", "partition": n % 2, "timestamp": 1000 + n}
        for n in range(10)
    ]
    for each in sent:
        web.post(f"/topics/{topic}/messages", json=each).raise_for_status()
    found: list[str] = []
    place: dict[str, str] | None = {}
    while place is not None:
        wanted: dict[str, str | int] = {"topic": topic, "text": "GRAIN", "order": "oldest"}
        told = web.get("/api/search", params={**wanted, "limit": 2, **place}).json()
        found += [each["value"] for each in told["messages"]]
        assert told["total"] == 10
        following = told["next"]
        place = following and {"at": ",".join(f"{n}:{at}" for n, at in following.items())}
    assert found == [f"grain {n}" for n in range(10)]
    (one,) = web.get("/api/search", params={"topic": topic, "key": "k7"}).json()["messages"]
    assert (one["value"], one["partition"], one["offset"]) == ("grain 7", 1, 3)
    assert web.get("/api/search", params={"topic": "none-such"}).status_code == 404
    refused = web.get("/api/search", params={"topic": topic, "partition": 9})
    assert refused.status_code == 404


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_answers_are_bounded_where_messages_are_large(
    web: httpx.Client, topic: str, order: str
) -> None:
    for number in range(20):
        sent = web.post(f"/topics/{topic}/messages", json={"value": f"{number:02}" + "x" * 700_000})
        sent.raise_for_status()
    found: list[int] = []
    place: dict[str, str] | None = {}
    while place is not None:
        answer = web.get("/api/search", params={"topic": topic, "order": order, **place})
        assert len(answer.content) < 6_000_000
        told = answer.json()
        found += [each["offset"] for each in told["messages"]]
        following = told["next"]
        place = following and {"at": ",".join(f"{n}:{at}" for n, at in following.items())}
    assert sorted(found) == list(range(20))
    assert found == sorted(found, reverse=order == "newest")


def test_settings_say_where_they_come_from(web: httpx.Client, broker: BrokerProcess) -> None:
    told = {
        f"{section['section']}.{each['name']}": each
        for section in web.get("/api/settings").json()["sections"]
        for each in section["settings"]
    }
    assert told["storage.data.dir"]["value"] == str(broker.data)
    assert told["storage.data.dir"]["origin"] != "default"
    assert told["log.segment.bytes"]["origin"] == "default"
    names = [each["name"] for each in web.get("/api/topic-settings").json()["settings"]]
    assert {f"log.{name}" for name in names} <= set(told)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_pages_of_others_can_do_nothing_that_the_dashboard_does(
    web: httpx.Client, topic: str, method: str
) -> None:
    path = f"/topics/{quote(topic)}"
    refused = web.request(method, path, json={}, headers={"origin": "http://elsewhere.example"})
    assert refused.status_code == 403
    refused = web.get("/", headers={"host": "elsewhere.example"})
    assert refused.status_code == 403
