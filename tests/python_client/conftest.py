"""Brokers for tests of our own Python clients.

Most tests share one broker per test process and keep to topics of their own. Those that stop or
kill a broker start one themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess

StartBroker = Callable[[], BrokerProcess]


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), http="127.0.0.1:0")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def broker(shared_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """A running broker that other tests use too."""
    shared_broker.complaints()
    yield shared_broker
    assert shared_broker.is_running
    assert shared_broker.complaints() == []


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts a broker of one's own."""
    started: list[BrokerProcess] = []

    def start() -> BrokerProcess:
        home = tmp_path / f"broker-{len(started)}"
        broker = BrokerProcess(home, http="127.0.0.1:0")
        broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        if broker.is_running:
            broker.stop()
    assert [line for broker in started for line in broker.complaints()] == []
