"""Web pages do not reach the broker through a browser; programs do, whatever they call it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from millstream.errors import InvalidSetting
from millstream.gateways.http.guard import Complaint, Guard
from millstream.settings.http import HttpSettings
from millstream.settings.loader import load
from tests.clients.broker_process import BrokerProcess
from tests.fakes.open_door import run
from tests.fakes.patience import HANG_S
from tests.fakes.streaming_door import socket_client

PROBLEM = "application/problem+json"
LOOPBACK = HttpSettings(listener="127.0.0.1:8000")
OPEN = HttpSettings(listener="0.0.0.0:8000")


def complaint(
    settings: HttpSettings, host: str | None, *, method: str = "GET", **headers: str
) -> Complaint | None:
    """What the guard says of a request; headers with underscores for hyphens."""
    told = {} if host is None else {"host": host}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {
        "type": "websocket" if method == "WEBSOCKET" else "http",
        "method": method,
        "headers": [(name.encode(), value.encode()) for name, value in told.items()],
    }
    return Guard(settings).complaint(scope)


@pytest.mark.parametrize(
    "host",
    [
        "localhost:8000",
        "LocalHost",
        "localhost.:8000",
        "broker.localhost:8000",
        "127.0.0.1:8000",
        "127.1.2.3",
        "[::1]:8000",
        "",
        None,
    ],
)
def test_loopback_is_called_by_its_own_names(host: str | None) -> None:
    assert complaint(LOOPBACK, host) is None
    assert complaint(LOOPBACK, host, method="POST") is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "192.168.1.7:8000",
        "[::2]:80",
        "[::1].evil.example",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "WEBSOCKET"])
def test_name_that_was_made_to_lead_to_loopback_is_refused(host: str, method: str) -> None:
    told = complaint(LOOPBACK, host, method=method, origin=f"http://{host}")
    assert told is not None
    assert "http.allowed.hosts" in told.detail


def test_two_names_at_once_are_refused() -> None:
    hosts = [(b"host", b"localhost"), (b"host", b"evil.example")]
    told = Guard(LOOPBACK).complaint({"type": "http", "method": "GET", "headers": hosts})
    assert told is not None
    assert told.status == 400


def test_listener_for_others_is_called_as_they_like_unless_names_are_set() -> None:
    named = HttpSettings(listener=OPEN.listener, allowed_hosts=frozenset({"broker.lan"}))
    for host in ("10.0.0.1:8000", "broker.lan:8000", "localhost:8000", "[fe80::1]:8000", None):
        assert complaint(OPEN, host, method="POST") is None
        assert complaint(named, host, method="POST") is None
    assert complaint(OPEN, "other.lan") is None
    assert complaint(named, "other.lan") is not None


def test_names_that_are_set_are_taken_and_so_are_their_pages() -> None:
    named = HttpSettings(allowed_hosts=frozenset({"broker.example"}))
    assert complaint(named, "Broker.Example:8000") is None
    # A proxy may call the broker by another name than the browser calls the proxy.
    page = "https://broker.example"
    assert complaint(named, "127.0.0.1:8000", method="POST", origin=page) is None
    assert complaint(named, "127.0.0.1:8000", method="POST", origin="https://x.example") is not None
    anything = HttpSettings(allowed_hosts=frozenset({"*"}))
    assert complaint(anything, "evil.example") is None


@pytest.mark.parametrize("method", ["POST", "DELETE", "WEBSOCKET"])
def test_page_of_another_site_may_not_write(method: str) -> None:
    host = "localhost:8000"
    for origin in ("http://evil.example", "http://localhost:3000", "null"):
        assert complaint(LOOPBACK, host, method=method, origin=origin) is not None
    for site in ("cross-site", "same-site"):
        assert complaint(LOOPBACK, host, method=method, sec_fetch_site=site) is not None
    own = "http://localhost:8000"
    assert (
        complaint(LOOPBACK, host, method=method, origin=own, sec_fetch_site="same-origin") is None
    )


def test_refusal_says_what_to_set(http_broker: BrokerProcess) -> None:
    stranger = {"host": "evil.example"}
    for verb, path in (("GET", "/topics"), ("POST", "/topics/t/messages"), ("GET", "/docs")):
        answer = httpx.request(verb, http_broker.url + path, headers=stranger, timeout=HANG_S)
        assert (answer.status_code, answer.headers["content-type"]) == (403, PROBLEM)
        assert "http.allowed.hosts = 'evil.example'" in answer.json()["detail"]


def test_refused_websocket_is_told_why(http_broker: BrokerProcess) -> None:
    async def main() -> None:
        address = http_broker.url.removeprefix("http://")
        with pytest.raises(InvalidStatus) as refused:
            async with socket_client(address, origin="http://evil.example"):
                pass
        response = refused.value.response
        assert response.status_code == 403
        assert response.headers["content-type"] == PROBLEM
        assert response.body is not None
        assert b"another site" in response.body

    run(main())


def test_names_are_set_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    for text in ('"a.example, B.example"', '["a.example", "b.example"]'):
        file.write_text(f"[http]\nhttp.allowed.hosts = {text}\n")
        assert load(str(file)).http.allowed_hosts == {"a.example", "b.example"}
    for text in ('"a.example:8000"', '"http://a.example"', "7", '"a b"'):
        file.write_text(f"[http]\nhttp.allowed.hosts = {text}\n")
        with pytest.raises(InvalidSetting, match="without ports"):
            load(str(file))


def test_origins_are_set_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    for text in (
        '"https://A.example, http://localhost:3000"',
        '["https://a.example", "http://localhost:3000"]',
    ):
        file.write_text(f"[http]\nhttp.allowed.origins = {text}\n")
        assert load(str(file)).http.allowed_origins == {
            "https://a.example",
            "http://localhost:3000",
        }
    for text in ('"a.example"', '"https://a.example/"', "7", '"https://a b"'):
        file.write_text(f"[http]\nhttp.allowed.origins = {text}\n")
        with pytest.raises(InvalidSetting, match=r"such as https://app\.example"):
            load(str(file))


@pytest.mark.parametrize("method", ["POST", "DELETE", "WEBSOCKET"])
def test_page_of_an_allowed_origin_may_write(method: str) -> None:
    settings = HttpSettings(allowed_origins=frozenset({"http://localhost:3000"}))
    host = "localhost:8000"
    assert complaint(settings, host, method=method, origin="http://localhost:3000") is None
    for origin in (
        "http://localhost:3001",
        "https://localhost:3000",
        "null",
        "http://evil.example",
    ):
        assert complaint(settings, host, method=method, origin=origin) is not None
    # It still has to call the broker by a name that it knows.
    page = "http://localhost:3000"
    assert complaint(settings, "evil.example", method=method, origin=page) is not None
    anyone = HttpSettings(allowed_origins=frozenset({"*"}))
    for origin in ("null", "http://evil.example"):
        assert complaint(anyone, host, method=method, origin=origin) is None


def test_page_of_an_allowed_origin_uses_every_route(tmp_path: Path) -> None:
    page = "https://app.example"
    settings = f'[http]\nhttp.allowed.origins = "{page}"\n'
    broker = BrokerProcess(tmp_path / "broker", settings=settings, http="127.0.0.1:0")
    broker.start()
    try:
        with httpx.Client(base_url=broker.url, timeout=HANG_S, trust_env=False) as web:
            _use_as_page(web, page)
        run(_open_socket(broker.url.removeprefix("http://"), page))
    finally:
        broker.stop()


def _use_as_page(web: httpx.Client, page: str) -> None:
    asked = {
        "origin": page,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    preflight = web.options("/topics/t/messages", headers=asked)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == page
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["access-control-allow-headers"] == "content-type"
    stranger = web.options("/topics/t/messages", headers={**asked, "origin": "https://x.example"})
    assert "access-control-allow-origin" not in stranger.headers
    sent = web.post("/topics/t/messages", json={"value": "v"}, headers={"origin": page})
    read = web.get("/topics/t/messages?offset=0", headers={"origin": page})
    missing = web.get("/topics/none", headers={"origin": page})
    for answer, status in ((sent, 200), (read, 200), (missing, 404)):
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == page
        assert "Origin" in answer.headers["vary"]
    with web.stream("GET", "/topics/t/stream?from=earliest", headers={"origin": page}) as stream:
        assert stream.headers["access-control-allow-origin"] == page
    refused = web.post(
        "/topics/t/messages", json={"value": "v"}, headers={"origin": "https://x.example"}
    )
    assert refused.status_code == 403
    assert "http.allowed.origins" in refused.json()["detail"]
    assert "access-control-allow-origin" not in web.get("/topics").headers


async def _open_socket(address: str, page: str) -> None:
    async with socket_client(address, origin=page):
        pass
    with pytest.raises(InvalidStatus):
        async with socket_client(address, origin="https://x.example"):
            pass
