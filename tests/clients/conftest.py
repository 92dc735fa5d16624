"""Brokers for tests with real clients.

Most tests share one broker per test process, and keep to topics and groups of their own. Those that
stop or kill a broker, or set it up differently, start one themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess

# Members are missed sooner than in earnest, so that tests need not wait for it.
SETTINGS = """
[groups]
group.min.session.timeout.ms = 500
group.consumer.session.timeout.ms = 3000
group.consumer.heartbeat.interval.ms = 100
group.initial.rebalance.delay.ms = 50
"""

StartBroker = Callable[..., BrokerProcess]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # kafka-python forgets to close the sockets with which it reached nobody.
    forgiven = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(forgiven)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), settings=SETTINGS)
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
    """Starts a broker of one's own, on a port that it can come back to."""
    started: list[BrokerProcess] = []

    def start(settings: str = SETTINGS, host: str = "127.0.0.1") -> BrokerProcess:
        broker = BrokerProcess(tmp_path / f"broker-{len(started)}", settings=settings, host=host)
        broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        if broker.is_running:
            broker.stop()
    assert [line for broker in started for line in broker.complaints()] == []
