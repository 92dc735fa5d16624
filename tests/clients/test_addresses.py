"""Clients are sent to the address that they came by, unless the broker is told another."""

from __future__ import annotations

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_kinds import with_clients
from tests.clients.client_shape import Client, Message, produce, read_all
from tests.clients.conftest import SETTINGS, StartBroker

pytestmark = pytest.mark.system


@with_clients()
def test_client_by_another_name_works(broker: BrokerProcess, client: Client, name: str) -> None:
    address = f"localhost:{broker.port}"
    produce(client, address, [Message(name, b"value")])
    assert [each.value for each in read_all(client, address, {(name, 0): 0})] == [b"value"]


@with_clients()
def test_client_of_a_broker_on_all_addresses_gets_the_one_it_used(
    start_broker: StartBroker, client: Client
) -> None:
    broker = start_broker(SETTINGS, host="0.0.0.0")
    for host in ("127.0.0.1", "127.0.0.2"):
        admin = client.admin(f"{host}:{broker.port}")
        assert [each[1:] for each in admin.brokers()] == [(host, broker.port)]
        admin.create(f"by-{host}", partitions=1)
        admin.close()


@with_clients()
def test_advertised_address_is_told_instead(start_broker: StartBroker, client: Client) -> None:
    told = '\n[kafka]\nadvertised.listeners = "localhost:{port}"\n'
    broker = start_broker(SETTINGS + told)
    admin = client.admin(f"127.0.0.1:{broker.port}")
    assert [each[1:] for each in admin.brokers()] == [("localhost", broker.port)]
    admin.create("told", partitions=1)
    admin.close()
    produce(client, broker.address, [Message("told", b"value")])
    assert len(read_all(client, broker.address, {("told", 0): 0})) == 1
