"""What can be chosen when a client connects."""

from __future__ import annotations

import pytest

from millstream.client import connect, connect_async
from millstream.client.options import ClientSettings, Options, socket_url


def test_address_of_http_leads_to_its_socket() -> None:
    assert socket_url("http://127.0.0.1:8000") == "ws://127.0.0.1:8000/ws"
    assert socket_url("https://broker.example/") == "wss://broker.example/ws"
    assert socket_url("http://[::1]:8000/behind/a/proxy/") == "ws://[::1]:8000/behind/a/proxy/ws"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ws://127.0.0.1", "http://", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:8000"):
        connect(url)
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:8000"):
        connect_async(url)


@pytest.mark.parametrize(
    "wrong",
    [{"retries": -1}, {"prefetch": 0}, {"max_unanswered": 0}, {"timeout_s": 0}],
    ids=str,
)
def test_option_out_of_range_is_refused(wrong: Options) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        connect_async(**wrong)


def test_every_option_has_a_default() -> None:
    settings = ClientSettings()
    assert all(hasattr(settings, name) for name in Options.__annotations__)
