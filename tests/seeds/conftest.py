"""Brokers with the doors open that the programs of the seeds know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(
        tmp_path_factory.mktemp("broker"), http="127.0.0.1:0", pylogstreams="127.0.0.1:0"
    )
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
    """Starts a broker of one's own, which comes back to its ports."""
    started: list[BrokerProcess] = []

    def start(settings: str = "", http: str = "127.0.0.1:0") -> BrokerProcess:
        broker = BrokerProcess(
            tmp_path / f"broker-{len(started)}",
            settings=settings,
            http=http,
            pylogstreams="127.0.0.1:0",
        )
        broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        if broker.is_running:
            broker.kill()
