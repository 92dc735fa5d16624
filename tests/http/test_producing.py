"""Sending messages in every shape that a request may have."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

LINES = {"content-type": "application/x-ndjson"}
BYTES = {"content-type": "application/octet-stream"}


def messages(web: httpx.Client, topic: str, **query: Any) -> list[dict[str, Any]]:
    answer = web.get(f"/topics/{topic}/messages", params={"offset": 0, "limit": 10_000, **query})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["messages"]
    return found


def send(web: httpx.Client, topic: str, body: Any, **query: Any) -> Any:
    answer = web.post(f"/topics/{topic}/messages", json=body, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("field", ["value", "data", "message"])
def test_message_is_sent_by_each_of_its_names(web: httpx.Client, name: str, field: str) -> None:
    stored = send(web, name, {field: "hello"})
    assert (stored["message_id"], stored["offset"], stored["partition"]) == (0, 0, 0)
    [message] = messages(web, name)
    assert message["value"] == "hello"
    assert message["timestamp"] == stored["timestamp"]


def test_all_that_a_message_has_comes_back(web: httpx.Client, name: str) -> None:
    headers = {"text": "a", "none": None, "many": ["1", "2"], "bytes": {"base64": "/w=="}}
    sent = {"value": "v", "key": "k", "headers": headers, "timestamp": 1234567}
    send(web, name, sent)
    [message] = messages(web, name)
    assert {field: message[field] for field in sent} == sent


@pytest.mark.parametrize(
    ("value", "stored"),
    [({"a": [1, None]}, '{"a":[1,null]}'), (7, "7"), (None, None), ("", ""), ("ü€😀", "ü€😀")],
)
def test_value_may_be_any_json(web: httpx.Client, name: str, value: Any, stored: str) -> None:
    send(web, name, {"value": value})
    assert messages(web, name)[0]["value"] == stored


def test_bytes_go_and_come_as_base64(web: httpx.Client, name: str) -> None:
    raw = bytes(range(256))
    text = base64.b64encode(raw).decode()
    send(web, name, {"value": text, "key": text, "encoding": "base64"})
    send(web, name, {"value": text}, encoding="base64")
    send(web, name, {"value": "plain"})
    first, second, third = messages(web, name)
    # It is not UTF-8, so it is told in base64 although nobody asked for that.
    assert (first["value"], first["encoding"]) == (text, "base64")
    assert (first["key"], first["key_encoding"]) == (text, "base64")
    assert (second["value"], second["encoding"]) == (text, "base64")
    assert "encoding" not in third
    asked = messages(web, name, encoding="base64")[2]
    assert base64.b64decode(asked["value"]) == b"plain"
    assert asked["encoding"] == "base64"


@pytest.mark.parametrize("wrap", [lambda some: some, lambda some: {"messages": some}])
def test_many_are_sent_at_once(web: httpx.Client, name: str, wrap: Any) -> None:
    answer = send(web, name, wrap([{"value": str(n)} for n in range(500)]))
    assert answer["count"] == 500
    assert [each["message_id"] for each in answer["messages"]] == list(range(500))
    assert [each["value"] for each in messages(web, name)] == [str(n) for n in range(500)]


def test_one_bad_message_among_many_stops_all(web: httpx.Client, name: str) -> None:
    send(web, name, {"value": "before"})
    answer = web.post(f"/topics/{name}/messages", json=[{"value": "x"}, {"valu": "x"}])
    assert answer.status_code == 422
    assert "message 1" in answer.json()["detail"]
    assert "'valu'" in answer.json()["detail"]
    assert len(messages(web, name)) == 1


def test_one_too_large_among_many_is_told_in_its_place(web: httpx.Client, name: str) -> None:
    some = [{"value": "x"}, {"value": "x" * (2 << 20)}, {"value": "y"}]
    answer = web.post(f"/topics/{name}/messages", json=some)
    assert answer.status_code == 207
    first, second, third = answer.json()["messages"]
    assert (first["offset"], third["offset"]) == (0, 1)
    assert second["error"]["status"] == 413


def test_lines_are_sent_as_they_come(web: httpx.Client, name: str) -> None:
    def body() -> Any:
        for n in range(25_000):
            yield json.dumps({"value": str(n)}).encode() + b"\n"

    answer = web.post(f"/topics/{name}/messages", content=body(), headers=LINES)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "count": 25_000,
        "partitions": [{"partition": 0, "count": 25_000, "first_offset": 0, "last_offset": 24_999}],
    }
    found = messages(web, name, offset=24_990)
    assert [each["value"] for each in found] == [str(n) for n in range(24_990, 25_000)]


def test_more_than_a_request_may_hold_are_refused(web: httpx.Client, name: str) -> None:
    answer = web.post(f"/topics/{name}/messages", json=[{"value": ""}] * 10_001)
    assert answer.status_code == 422
    assert "application/x-ndjson" in answer.json()["detail"]


def test_lines_may_come_in_any_pieces(web: httpx.Client, name: str) -> None:
    lines = [json.dumps({"value": "x" * 3000 * n}).encode() for n in range(40)]
    body = b"\n".join(lines)
    pieces = (body[at : at + 1009] for at in range(0, len(body), 1009))
    answer = web.post(f"/topics/{name}/messages", content=pieces, headers=LINES)
    assert answer.json()["count"] == 40
    sizes = [len(each["value"]) for each in messages(web, name, max_bytes=1 << 24)]
    assert sizes == [3000 * n for n in range(40)]


def test_few_lines_are_told_one_by_one(web: httpx.Client, name: str) -> None:
    body = b'{"value":"a","key":"k"}\r\n\n  \n{"value":"b"}'
    answer = web.post(f"/topics/{name}/messages", content=body, headers=LINES).json()
    assert answer["count"] == 2
    assert [each["offset"] for each in answer["messages"]] == [0, 1]


@pytest.mark.parametrize(
    ("line", "status"), [(b"{", 400), (b"[]", 422), (b'{"value":"x","partition":9}', 404)]
)
def test_bad_line_is_named_and_those_before_it_are_stored(
    web: httpx.Client, name: str, line: bytes, status: int
) -> None:
    body = b'{"value":"a"}\n{"value":"b"}\n' + line + b'\n{"value":"c"}\n'
    answer = web.post(f"/topics/{name}/messages", content=body, headers=LINES)
    assert answer.status_code == status
    stored = [each["value"] for each in messages(web, name)]
    assert stored[:2] == ["a", "b"]
    assert answer.json()["stored"]["count"] == len(stored)
    if status != 404:
        assert answer.json()["line"] == 3
        assert stored == ["a", "b"]


def test_raw_bytes_are_the_value(web: httpx.Client, name: str) -> None:
    raw = bytes(range(256)) * 100
    answer = web.post(
        f"/topics/{name}/messages",
        params={"key": "k", "header": ["a:1", "b:x:y"], "timestamp": 77},
        content=raw,
        headers={**BYTES, "millstream-header-source": "test"},
    )
    assert answer.status_code == 200
    [message] = messages(web, name)
    assert base64.b64decode(message["value"]) == raw
    assert (message["key"], message["timestamp"]) == ("k", 77)
    assert message["headers"] == {"source": "test", "a": "1", "b": "x:y"}


def test_text_is_the_value_too(web: httpx.Client, name: str) -> None:
    headers = {"content-type": "text/plain; charset=utf-8", "millstream-key": "k"}
    web.post(f"/topics/{name}/messages", content="hällo".encode(), headers=headers)
    [message] = messages(web, name)
    assert (message["key"], message["value"]) == ("k", "hällo")


def test_key_chooses_the_partition_as_with_kafkas_clients(web: httpx.Client, name: str) -> None:
    web.post("/topics", json={"name": name, "partitions": 4}).raise_for_status()
    places = [send(web, name, {"value": "x", "key": f"key-{n}"}) for n in range(100)]
    assert len({each["message_id"] for each in places}) == 100
    assert {each["partition"] for each in places} == {0, 1, 2, 3}
    again = [send(web, name, {"value": "x", "key": f"key-{n}"}) for n in range(100)]
    assert [each["partition"] for each in again] == [each["partition"] for each in places]
    assert all(
        new["message_id"] > old["message_id"] for new, old in zip(again, places, strict=True)
    )


def test_partition_can_be_chosen(web: httpx.Client, name: str) -> None:
    web.post("/topics", json={"name": name, "partitions": 2}).raise_for_status()
    assert send(web, name, {"value": "x", "partition": 1})["partition"] == 1
    assert messages(web, name, partition=1)[0]["value"] == "x"
    answer = web.post(f"/topics/{name}/messages", json={"value": "x", "partition": 2})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({}, "one of value, data and message"),
        ({"value": "a", "data": "b"}, "one of value, data and message"),
        ({"data": 7}, "expected text"),
        ({"value": "a", "key": 7}, "key is 7"),
        ({"value": "a", "partition": -1}, "partition is -1"),
        ({"value": "a", "partition": True}, "partition is True"),
        ({"value": "a", "timestamp": 2**63}, "timestamp is"),
        ({"value": "a", "headers": []}, "headers"),
        ({"value": "a", "headers": {"h": 1}}, "header 'h'"),
        ({"value": "!", "encoding": "base64"}, "not base64"),
        ({"value": "!", "encoding": "hex"}, "'hex'"),
        ({"value": "a", "deliver_at": 1, "deliver_after": 1}, "exclude each other"),
        ("text", "expected a message"),
        ({"messages": {}}, "expected a message"),
        ({"messages": [], "value": "x"}, "beside messages"),
    ],
)
def test_what_is_no_message_is_refused_and_creates_no_topic(
    web: httpx.Client, name: str, body: Any, what: str
) -> None:
    answer = web.post(f"/topics/{name}/messages", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert what in answer.json()["detail"]
    assert web.get(f"/topics/{name}").status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"value": "a", "partition": 7}, 404),
        ({"value": "x" * (2 << 20)}, 413),
        ([{"value": "a", "partition": 7}, {"value": "a", "partition": 8}], 404),
    ],
)
def test_message_that_is_refused_creates_no_topic(
    web: httpx.Client, name: str, body: Any, status: int
) -> None:
    assert web.post(f"/topics/{name}/messages", json=body).status_code == status
    assert web.get(f"/topics/{name}").status_code == 404


def test_delayed_message_carries_when_it_is_due(web: httpx.Client, name: str) -> None:
    stored = send(web, name, {"value": "x", "deliver_after": 60_000})
    send(web, name, {"value": "y", "deliver_at": 123})
    first, second = messages(web, name)
    due_ms = int(first["headers"]["millstream-deliver-at"])
    assert abs(due_ms - stored["timestamp"] - 60_000) < 10_000
    assert second["headers"] == {"millstream-deliver-at": "123"}


def test_thousand_sends_have_growing_ids_and_are_all_there(web: httpx.Client, name: str) -> None:
    ids = [send(web, name, {"value": str(n)})["message_id"] for n in range(1000)]
    assert ids == sorted(set(ids))
    for number in (0, 1, 500, 999):
        found = web.get(f"/topics/{name}/messages/{ids[number]}").json()
        assert found["value"] == str(number)
