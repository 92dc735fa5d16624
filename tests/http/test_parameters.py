"""Parameters of a query that nothing knows are refused, with the one that was meant."""

from __future__ import annotations

import httpx
import pytest

PROBLEM = "application/problem+json"


@pytest.mark.parametrize(
    ("verb", "path", "told"),
    [
        ("GET", "/topics/t/messages?offset=0&limt=5", "'limt' here: did you mean limit?"),
        ("GET", "/topics/t/messages?consumerid=c", "did you mean consumer_id?"),
        ("GET", "/topics/t?ofset=0", "did you mean offset?"),
        ("GET", "/topics/t/messages/0?encodng=text", "did you mean encoding?"),
        ("POST", "/topics/t/messages/0/ack?consumer_id=c&x=1", "'x' here: expected consumer_id"),
        ("GET", "/topics?intrenal=true", "did you mean internal?"),
        ("GET", "/topics/t/stream?form=earliest", "did you mean from?"),
        ("GET", "/topics/t/subscriptions/s/dlq?limits=5", "did you mean limit?"),
        ("DELETE", "/topics/t?force=true", "nor any other"),
        ("GET", "/groups?x", "nor any other"),
        ("POST", "/topics/t/messages?encodin=base64", "did you mean encoding?"),
        ("POST", "/topics/t?encodin=base64", "did you mean encoding?"),
        ("POST", "/topics/t/messages?key=k", "key is a parameter of a raw body"),
    ],
)
def test_unknown_parameter_is_refused_and_changes_nothing(
    web: httpx.Client, name: str, verb: str, path: str, told: str
) -> None:
    topic = f"/topics/{name}"
    web.post(f"{topic}/messages", json={"value": "0"}).raise_for_status()
    wanted = path.replace("/topics/t", topic)
    answer = web.request(verb, wanted, json={"value": "1"} if verb == "POST" else None)
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM)
    assert told in answer.json()["detail"]
    assert web.get(f"{topic}/offsets").json()["end_offset"] == 1
    assert name not in {each["group"] for each in web.get("/groups").json()["groups"]}


def test_unknown_parameter_of_raw_bytes_is_refused(web: httpx.Client, name: str) -> None:
    path = f"/topics/{name}/messages"
    bytes_ = {"content-type": "application/octet-stream"}
    answer = web.post(f"{path}?kye=k", content=b"x", headers=bytes_)
    assert (answer.status_code, "did you mean key?" in answer.text) == (422, True)
    sent = web.post(f"{path}?key=k&header=a:b&timestamp=7", content=b"x", headers=bytes_)
    assert sent.status_code == 200


def test_what_the_seeds_clients_send_is_taken(web: httpx.Client, name: str) -> None:
    topic = f"/topics/{name}"
    assert web.post(f"{topic}/messages", json={"data": "m"}).status_code == 200
    assert web.post(topic, json={"message": "m"}).status_code == 200
    for path in (
        f"{topic}/messages?consumer_id=c",
        f"{topic}/messages?offset=0&limit=10",
        f"{topic}/messages?offset=0",
        f"{topic}?offset=1",
        f"{topic}/offsets",
        "/topics",
        "/health",
    ):
        assert web.get(path).status_code == 200, path
    assert web.post(f"{topic}/messages/0/ack?consumer_id=c").json() == {"status": "ok"}
