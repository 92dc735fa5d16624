"""Fixtures for pytest: a broker for all tests, a broker for one, and topics of their own.

pytest loads this wherever Millstream is installed, so it imports nothing that takes time: a broker
is only imported by a fixture that needs one. With pytest-xdist every worker has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millstream.testing import AsyncBroker, Broker

_LONGEST_NAME = 200


@pytest.fixture(scope="session")
def millstream_broker() -> Iterator[Broker]:
    """A broker in memory that all tests of the session share."""
    from millstream.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def millstream_async_broker(millstream_broker: Broker) -> AsyncBroker:
    """The broker that all tests share, with methods to be awaited."""
    from millstream.testing import AsyncBroker

    return AsyncBroker.of(millstream_broker)


@pytest.fixture
def millstream_fresh_broker() -> Iterator[Broker]:
    """A broker in memory for one test alone, which may stop, move and break it."""
    from millstream.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def millstream_topic(request: pytest.FixtureRequest, millstream_broker: Broker) -> str:
    """A topic of one partition, of the shared broker, that no other test uses."""
    from millstream.identity import new_id

    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in request.node.name)
    name = f"{kept[:_LONGEST_NAME].strip('-')}-{new_id().hex()[:8]}"
    millstream_broker.create_topic(name)
    return name
