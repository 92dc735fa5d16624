"""Topics and groups by HTTP: what is created, changed, moved and deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S


def create(web: httpx.Client, topic: str, **more: Any) -> Any:
    answer = web.post("/topics", json={"name": topic, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def send(web: httpx.Client, topic: str, count: int) -> None:
    some = [{"value": str(n), "timestamp": 1000 * n} for n in range(count)]
    web.post(f"/topics/{topic}/messages", json=some).raise_for_status()


def names(web: httpx.Client, **query: Any) -> list[str]:
    return [each["name"] for each in web.get("/topics", params=query).json()["topics"]]


def test_topic_is_created_shown_and_deleted(web: httpx.Client, name: str) -> None:
    created = create(web, name, partitions=3, settings={"retention.ms": 86_400_000})
    assert created["own_settings"] == {"retention.ms": "86400000"}
    assert created["settings"]["retention.ms"] == "86400000"
    assert created["settings"]["cleanup.policy"] == "delete"
    assert [each["partition"] for each in created["details"]] == [0, 1, 2]
    assert web.get(f"/topics/{name}").json() == created
    assert name in names(web)
    assert web.delete(f"/topics/{name}").json() == {"status": "ok"}
    assert name not in names(web)
    assert web.delete(f"/topics/{name}").status_code == 404


def test_topic_is_created_by_its_path_too(web: httpx.Client, name: str) -> None:
    assert web.put(f"/topics/{name}", json={"partitions": 2}).status_code == 201
    assert web.put(f"/topics/{name}", json={"partitions": 2}).status_code == 409
    assert web.get(f"/topics/{name}").json()["partitions"] == 2


def test_topics_of_the_broker_are_shown_when_asked_for(web: httpx.Client) -> None:
    assert "__consumer_offsets" not in names(web)
    assert "__consumer_offsets" in names(web, internal=True)
    assert web.delete("/topics/__consumer_offsets").status_code == 422
    answer = web.post("/topics/__consumer_offsets/messages", json={"value": "x"})
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        ({"name": "../x"}, "expected 1 to 249"),
        ({"name": "a", "partitions": 0}, "greater than or equal to 1"),
        ({"name": "a", "partitions": 10**9}, "less than or equal to"),
        ({"name": "a", "settings": {"retention.m": 1}}, "did you mean retention.ms?"),
        ({"name": "a", "settings": {"retention.ms": "soon"}}, "retention.ms = 'soon'"),
        ({"name": "a", "partition": 1}, "partition"),
        ({}, "name"),
    ],
)
def test_topic_that_cannot_be_is_refused(web: httpx.Client, wanted: Any, what: str) -> None:
    before = names(web)
    answer = web.post("/topics", json=wanted)
    assert answer.status_code == 422
    assert what in answer.json()["detail"]
    assert names(web) == before


def test_settings_are_changed_and_given_back(web: httpx.Client, name: str) -> None:
    create(web, name, settings={"retention.ms": 1000})
    changed = web.patch(
        f"/topics/{name}",
        json={"partitions": 2, "settings": {"retention.ms": None, "segment.bytes": 1 << 20}},
    ).json()
    assert changed["own_settings"] == {"segment.bytes": "1048576"}
    assert changed["settings"]["retention.ms"] == "604800000"
    assert changed["partitions"] == 2


@pytest.mark.parametrize(
    "change",
    [{}, {"partitions": 1}, {"settings": {"x": 1}}, {"settings": {"x": 1}, "partitions": 9}],
)
def test_change_that_cannot_be_changes_nothing(web: httpx.Client, name: str, change: Any) -> None:
    created = create(web, name, partitions=2)
    assert web.patch(f"/topics/{name}", json=change).status_code == 422
    assert web.get(f"/topics/{name}").json() == created


def test_segments_show_their_stage_of_life(web: httpx.Client, name: str) -> None:
    create(web, name, settings={"segment.bytes": 1 << 20})
    for _ in range(6):
        some = [{"value": "x" * 1000} for _ in range(500)]
        web.post(f"/topics/{name}/messages", json=some).raise_for_status()
    [partition] = web.get(f"/topics/{name}").json()["details"]
    segments = partition["segments"]
    assert [each["state"] for each in segments[-1:]] == ["Active"]
    assert {each["state"] for each in segments[:-1]} <= {"Full", "Archived"}
    assert len(segments) > 2
    ends = [each["next_offset"] for each in segments]
    assert ends[:-1] == [each["base_offset"] for each in segments[1:]]
    assert sum(each["size_bytes"] for each in segments) == partition["size_bytes"] > 3_000_000
    assert partition["end_offset"] == 3000


def test_partition_without_a_committed_offset_counts_as_lag(web: httpx.Client, name: str) -> None:
    web.post("/topics", json={"name": name, "partitions": 3}).raise_for_status()
    for number, count in enumerate((10, 7, 5)):
        messages = [{"value": "v", "partition": number}] * count
        web.post(f"/topics/{name}/messages", json=messages).raise_for_status()
    wanted = {"offsets": [{"topic": name, "partition": 0, "offset": 4}]}
    web.post(f"/groups/{name}/offsets", json=wanted).raise_for_status()
    described = web.get(f"/groups/{name}").json()
    assert described["lag"] == 6 + 7 + 5
    told = [(each["offset"], each["lag"], each["never_read"]) for each in described["offsets"]]
    assert told == [(4, 6, False), (None, 7, True), (None, 5, True)]
    metrics = web.get("/metrics").text
    for number, lag in ((1, 7), (2, 5)):
        labels = f'{{group="{name}",topic="{name}",partition="{number}"}}'
        assert f"millstream_group_lag{labels} {lag}\n" in metrics
        assert f"millstream_group_never_read{labels} {lag}\n" in metrics


def test_group_is_committed_described_and_deleted(web: httpx.Client, name: str) -> None:
    send(web, name, 10)
    wanted = {"offsets": [{"topic": name, "offset": 4, "metadata": "so far"}]}
    committed = web.post(f"/groups/{name}/offsets", json=wanted).json()
    expected = {
        "topic": name,
        "partition": 0,
        "offset": 4,
        "metadata": "so far",
        "end_offset": 10,
        "lag": 6,
        "never_read": False,
    }
    assert committed == {"group": name, "offsets": [expected]}
    assert web.get(f"/groups/{name}/offsets").json() == committed
    described = web.get(f"/groups/{name}").json()
    assert (described["state"], described["lag"], described["members"]) == ("Empty", 6, [])
    assert name in [each["group"] for each in web.get("/groups").json()["groups"]]
    assert web.delete(f"/groups/{name}").json() == {"status": "ok"}
    for path in ("", "/offsets"):
        assert web.get(f"/groups/{name}{path}").status_code == 404


@pytest.mark.parametrize("path", ["team/shop", "replay/orders/workers", "a/offsets/b", "/"])
def test_group_may_have_slashes_in_its_name(web: httpx.Client, name: str, path: str) -> None:
    group = f"{name}/{path}"
    address = f"/groups/{quote(group, safe='')}"
    web.post(f"/topics/{name}/messages", json=[{"value": "x"}] * 3).raise_for_status()
    wanted = {"offsets": [{"topic": name, "partition": 0, "offset": 1}]}
    assert web.post(f"{address}/offsets", json=wanted).json()["group"] == group
    assert web.get(address).json()["lag"] == 2
    assert web.get(f"{address}/offsets").json()["offsets"][0]["offset"] == 1
    moved = web.post(f"{address}/reset", json={"topic": name, "to": "latest"}).json()
    assert moved["offsets"][0]["offset"] == 3
    assert web.delete(address).json() == {"status": "ok"}
    assert web.get(address).status_code == 404


@pytest.mark.parametrize(
    ("reset", "offset"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 10),
        ({"to": "offset", "offset": 7}, 7),
        ({"to": "timestamp", "timestamp": 2500}, 3),
        ({"to": "timestamp", "timestamp": 99_000}, 10),
        ({"to": "latest", "partitions": [0]}, 10),
    ],
)
def test_group_is_moved(web: httpx.Client, name: str, reset: Any, offset: int) -> None:
    send(web, name, 10)
    moved = web.post(f"/groups/{name}/reset", json={"topic": name, **reset})
    assert moved.status_code == 200, moved.text
    assert [each["offset"] for each in moved.json()["offsets"]] == [offset]
    found = web.get(f"/topics/{name}/messages", params={"consumer_id": name})
    assert found.status_code == (404 if offset == 10 else 200)
    if offset < 10:
        assert found.json()["offset"] == offset


@pytest.mark.parametrize(
    ("reset", "status"),
    [
        ({"to": "offset"}, 422),
        ({"to": "earliest", "offset": 1}, 422),
        ({"to": "timestamp"}, 422),
        ({"to": "middle"}, 422),
        ({"to": "offset", "offset": 11}, 416),
        ({"to": "latest", "partitions": [1]}, 404),
        ({"to": "latest", "topic": "no-such-topic"}, 404),
    ],
)
def test_group_is_not_moved_to_nowhere(
    web: httpx.Client, name: str, reset: Any, status: int
) -> None:
    send(web, name, 10)
    answer = web.post(f"/groups/{name}/reset", json={"topic": name, **reset})
    assert answer.status_code == status
    assert web.get(f"/groups/{name}").status_code == 404


def test_commits_of_one_request_are_made_together_or_not_at_all(
    web: httpx.Client, name: str
) -> None:
    send(web, name, 3)
    wanted = {"offsets": [{"topic": name, "offset": 1}, {"topic": name, "offset": 4}]}
    assert web.post(f"/groups/{name}/offsets", json=wanted).status_code == 416
    assert web.get(f"/groups/{name}").status_code == 404


def test_topics_can_be_kept_from_deletion_and_creation(tmp_path: Path) -> None:
    settings = "[topics]\ndelete.topic.enable = false\nauto.create.topics.enable = false\n"
    with BrokerProcess(tmp_path, settings=settings, http="127.0.0.1:0") as broker:
        with httpx.Client(base_url=broker.url, timeout=HANG_S) as web:
            create(web, "t")
            assert web.delete("/topics/t").status_code == 422
            assert web.get("/topics/t").status_code == 200
            assert web.post("/topics/u/messages", json={"value": "x"}).status_code == 404
            lines = {"content-type": "application/x-ndjson"}
            answer = web.post("/topics/u/messages", content=b'{"value":"x"}\n', headers=lines)
            assert answer.status_code == 404
        broker.stop()
        assert broker.complaints() == []
