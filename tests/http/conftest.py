"""A broker with its HTTP door open, and a client of it that knows nothing of ours."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S

ANY_PORT = "127.0.0.1:0"


@pytest.fixture(scope="session")
def shared_http_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("http"), http=ANY_PORT) as broker:
        yield broker
        broker.stop()


@pytest.fixture
def http_broker(shared_http_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """A running broker that other tests use too."""
    yield shared_http_broker
    assert shared_http_broker.is_running
    assert shared_http_broker.complaints() == []


@pytest.fixture
def web(http_broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=http_broker.url, timeout=HANG_S) as client:
        yield client


@pytest.fixture
def broker(http_broker: BrokerProcess) -> BrokerProcess:
    return http_broker


@pytest.fixture
def topic(name: str) -> str:
    return name
