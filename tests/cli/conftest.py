"""A broker, and commands that talk to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.command import Command
from tests.clients.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("cli"), http="127.0.0.1:0") as broker:
        yield broker
        broker.stop()


@pytest.fixture
def broker(shared_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """A running broker that other tests use too."""
    yield shared_broker
    assert shared_broker.is_running
    assert shared_broker.complaints() == []


@pytest.fixture
def cli(broker: BrokerProcess) -> Command:
    return Command(broker.address, broker.url)


@pytest.fixture
def topic(name: str) -> str:
    return name
