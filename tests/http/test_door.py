"""The HTTP door of a process: what it costs unused, its health, its limits, and how it closes."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S, wait_until

pytestmark = pytest.mark.system

PROBLEM = "application/problem+json"
# Requests wait for longer than any test does: a broker that waited for them to end would not stop.
WAIT_MS = 3_600_000
SETTINGS = f"""
[http]
http.request.max.bytes = 10000
http.max.connections = 20
http.long.poll.max.ms = {WAIT_MS}
http.request.body.timeout.seconds = 3600
"""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, settings=SETTINGS, http="127.0.0.1:0") as broker:
        yield broker


def raw(broker: BrokerProcess, request: bytes) -> bytes:
    """All that comes back until the broker hangs up."""
    with socket.create_connection(("127.0.0.1", broker.http_port), timeout=HANG_S) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


def has_loaded(broker: BrokerProcess) -> bool:
    return "pydantic_core" in Path(f"/proc/{broker.pid}/maps").read_text()


def test_nothing_is_loaded_before_the_first_client_comes(own_broker: BrokerProcess) -> None:
    assert not has_loaded(own_broker)
    assert httpx.get(f"{own_broker.url}/health/live", timeout=HANG_S).json() == {"status": "alive"}
    assert has_loaded(own_broker)


def test_many_first_clients_are_all_answered(own_broker: BrokerProcess) -> None:
    def ask(_: int) -> int:
        return httpx.get(f"{own_broker.url}/health", timeout=HANG_S).status_code

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(ask, range(10))) == [200] * 10


def test_ready_broker_says_so(own_broker: BrokerProcess) -> None:
    answer = httpx.get(f"{own_broker.url}/health/ready", timeout=HANG_S)
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "reasons": []})


def test_broker_that_was_never_asked_stops_at_once(own_broker: BrokerProcess) -> None:
    own_broker.stop()
    assert own_broker.complaints() == []


def test_stop_answers_requests_that_were_begun(own_broker: BrokerProcess) -> None:
    url = f"{own_broker.url}/topics/t/messages"
    httpx.post(url, json={"value": "x"}, timeout=HANG_S).raise_for_status()
    waiting = [
        http.client.HTTPConnection("127.0.0.1", own_broker.http_port, timeout=HANG_S)
        for _ in range(3)
    ]
    for each in waiting:
        each.request("GET", f"/topics/t/messages?offset=1&wait_ms={WAIT_MS}")
    wait_until_read(own_broker, 3)
    own_broker.stop()
    for each in waiting:
        with closing(each), each.getresponse() as answer:
            assert (answer.status, json.load(answer)["messages"]) == (200, [])
    assert own_broker.complaints() == []


def wait_until_read(broker: BrokerProcess, clients: int) -> None:
    """Until that many clients are connected, and the broker has read all that they have sent."""
    local = f":{broker.http_port:04X}"
    established = "01"

    def is_read() -> bool:
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        mine = [line for line in lines if line[1].endswith(local) and line[3] == established]
        return len(mine) == clients and all(line[4].endswith(":00000000") for line in mine)

    wait_until(is_read, f"{clients} connections that are read")


def test_stop_does_not_wait_for_clients_that_never_finish(own_broker: BrokerProcess) -> None:
    httpx.post(f"{own_broker.url}/topics/t/messages", json={"value": "x"}, timeout=HANG_S)
    with socket.create_connection(("127.0.0.1", own_broker.http_port)) as stuck:
        stuck.sendall(
            b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
        )
        wait_until_read(own_broker, 1)
        own_broker.stop()


def test_body_over_the_limit_is_refused(own_broker: BrokerProcess) -> None:
    large = "x" * 20_000
    with httpx.Client(base_url=own_broker.url, timeout=HANG_S) as web:
        for answer in (
            web.post("/topics/t/messages", json={"value": large}),
            web.post("/topics/t/messages", content=(large[n::4].encode() for n in range(4))),
            web.post("/topics", json={"name": large}),
            web.post("/topics", content=(large[n::4].encode() for n in range(4))),
            web.post(
                "/topics/t/messages",
                content=b'{"value":"x"}\n' + large.encode(),
                headers={"content-type": "application/x-ndjson"},
            ),
        ):
            assert answer.status_code == 413
            assert answer.headers["content-type"] == PROBLEM
            assert "http.request.max.bytes" in answer.json()["detail"]
        lines = b'{"value":"x"}\n' * 10_000
        kind = {"content-type": "application/x-ndjson"}
        assert web.post("/topics/t/messages", content=lines, headers=kind).json()["count"] == 10_000


def test_more_connections_than_allowed_are_refused(own_broker: BrokerProcess) -> None:
    httpx.get(f"{own_broker.url}/health", timeout=HANG_S)
    others = [socket.create_connection(("127.0.0.1", own_broker.http_port)) for _ in range(30)]
    try:
        wait_until_read(own_broker, 30)
        assert httpx.get(f"{own_broker.url}/health", timeout=HANG_S).status_code == 503
    finally:
        for each in others:
            each.close()


def test_strangers_do_no_harm(own_broker: BrokerProcess) -> None:
    httpx.get(f"{own_broker.url}/health", timeout=HANG_S)
    for request in (b"\x00" * 100, b"GET", b"GET / HTTP/9.9\r\n\r\n", b"PUB topic payload", b""):
        answer = raw(own_broker, request)
        assert not answer or answer.startswith(b"HTTP/1.1 4")
    half = b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    raw(own_broker, half)
    raw(own_broker, half.replace(b"/t/messages", b""))
    answer = raw(
        own_broker, b"GET /topics/%ff%fe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 404 ")
    own_broker.stop()
    assert own_broker.complaints() == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/topics/a/b/c", 404),
        ("GET", "/topics/..%2f..%2fx", 404),
        ("DELETE", "/health", 405),
        ("PUT", "/groups", 405),
    ],
)
def test_what_is_not_there_is_told_as_a_problem(
    web: httpx.Client, method: str, path: str, status: int
) -> None:
    answer = web.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == PROBLEM
    assert answer.json()["status"] == status
    assert {"type", "title", "detail"} <= answer.json().keys()
    if status == 405:
        assert answer.headers["allow"]


@pytest.mark.parametrize("body", [b"{", b"", b"\xff", b"nul"])
@pytest.mark.parametrize("path", ["/topics", "/topics/t/messages", "/groups/g/offsets"])
def test_what_is_not_json_is_told(web: httpx.Client, path: str, body: bytes) -> None:
    answer = web.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in {400, 422}
    assert answer.headers["content-type"] == PROBLEM


def test_kind_of_body_that_is_not_known_is_told(web: httpx.Client) -> None:
    answer = web.post("/topics/t/messages", data={"value": "x"})
    assert answer.status_code == 415
    assert "application/json" in answer.json()["detail"]


@pytest.mark.parametrize("after", ["", "/messages"])
def test_json_that_calls_itself_a_form_is_taken(web: httpx.Client, name: str, after: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    path = f"/topics/{name}{after}"
    sent = web.post(path, content=b'{"message": "m1"}', headers=form)
    assert sent.status_code == 200
    assert web.get(f"/topics/{name}?offset=0").json()["message"] == "m1"
    for body in (b"message=m1", b"[]", b"7", b""):
        assert web.post(path, content=body, headers=form).status_code == 415
    foreign = {**form, "origin": "null"}
    assert web.post(path, content=b'{"message": "m1"}', headers=foreign).status_code == 403


@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready"])
def test_health_is_asked_for_without_a_body(web: httpx.Client, path: str) -> None:
    answer = web.head(path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_bad_fields_of_a_body_are_told_with_their_values(web: httpx.Client) -> None:
    answer = web.post("/topics", json={"partitions": "many", "colour": 5})
    assert answer.status_code == 422
    told = answer.json()
    assert told["type"] == "urn:millstream:invalid-request"
    assert "name is missing" in told["detail"]
    assert "partitions = 'many': expected a valid integer" in told["detail"]
    assert "colour = 5: there is nothing of this name" in told["detail"]


def test_browser_that_shows_another_site_may_not_write(web: httpx.Client, name: str) -> None:
    foreign = {"origin": "http://evil.example"}
    path = f"/topics/{name}/messages"
    assert web.post(path, json={"value": "x"}, headers=foreign).status_code == 403
    assert web.post("/topics", json={"name": name}, headers=foreign).status_code == 403
    assert web.get(f"/topics/{name}").status_code == 404
    own = {"origin": str(web.base_url).rstrip("/")}
    assert web.post(path, json={"value": "x"}, headers=own).status_code == 200
    assert web.get(f"/topics/{name}", headers=foreign).status_code == 200


def test_port_in_use_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        broker = BrokerProcess(tmp_path, http=address)
        with pytest.raises(AssertionError, match=f"http.listener = '{address}'.*--http chooses"):
            broker.start()


@pytest.mark.needs("mount")
def test_full_disk_makes_the_broker_unready_until_there_is_room(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(small)]
    subprocess.run(mount, check=True)
    try:
        with BrokerProcess(small, http="127.0.0.1:0") as broker:
            with httpx.Client(base_url=broker.url, timeout=HANG_S) as web:
                _fill_and_free(web, small)
            broker.stop()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _fill_and_free(web: httpx.Client, small: Path) -> None:
    assert web.get("/health/ready").status_code == 200
    ballast = small / "ballast"
    with ballast.open("wb") as file:
        while True:
            try:
                file.write(b"x" * 65536)
                file.flush()
            except OSError:
                break
    statuses = set()
    for _ in range(200):
        answer = web.post("/topics/t/messages", json={"value": "x" * 100_000})
        statuses.add(answer.status_code)
        if answer.status_code != 200:
            break
    assert statuses <= {200, 507}
    assert 507 in statuses
    ready = web.get("/health/ready")
    assert ready.status_code == 503
    assert "disk is full" in ready.text
    assert web.get("/health").json()["status"] == "degraded"
    ballast.unlink()
    assert web.post("/topics/t/messages", json={"value": "x"}).status_code == 200
    assert web.get("/health/ready").status_code == 200
