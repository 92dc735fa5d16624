"""Each Kafka client once, from a new topic to a committed transaction.

The broker is in this process. The other tests of this folder belong to `make test-system`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.clock import SystemClock
from millstream.testing import Broker
from tests.clients.client_kinds import with_clients
from tests.clients.client_shape import Client, Committed, Message, produce, read
from tests.clients.test_kcat import kcat
from tests.clients.transaction_content import content, numbered, run, transactional, values

HEADERS = (("from", b"a client"), ("bytes", b"\xff\x00"))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@with_clients()
def test_client_creates_produces_consumes_commits_and_resumes(
    address: str, client: Client, name: str
) -> None:
    admin = client.admin(address)
    admin.create(name, partitions=2)
    admin.close()
    now_ms = SystemClock().now_ms()
    sent = [
        Message(name, b"value %d" % n, b"key", HEADERS, partition=n % 2, timestamp_ms=now_ms + n)
        for n in range(100)
    ]
    produce(client, address, sent)
    for begin in (0, 10):
        consumer = client.consumer(address, group=name)
        consumer.subscribe([name])
        found = read(consumer, 100 - 2 * begin)
        consumer.commit({(name, 0): Committed(10), (name, 1): Committed(10)})
        consumer.close()
        for partition in range(2):
            mine = [each for each in found if each.partition == partition]
            assert [each.offset for each in mine] == list(range(begin, 50))
            expected = [each for each in sent if each.partition == partition][begin:]
            assert [each.content() for each in mine] == [each.content() for each in expected]
            assert [each.timestamp_ms for each in mine] == [each.timestamp_ms for each in expected]


@with_clients()
def test_client_sees_committed_transactions_only(address: str, client: Client, name: str) -> None:
    with transactional(client, address, name) as producer:
        run(producer, numbered(name, range(10)))
        run(producer, numbered(name, range(10, 20)), is_commit=False)
        run(producer, numbered(name, range(20, 30)))
    assert content(client, address, (name, 0)) == values(range(10)) + values(range(20, 30))


@pytest.mark.needs("kcat")
def test_kcat_produces_and_consumes(address: str, name: str) -> None:
    lines = [f"key-{number}:value {number}" for number in range(100)]
    kcat(address, "-P", "-t", name, "-K:", "-z", "lz4", stdin="\n".join(lines) + "\n")
    assert kcat(address, "-C", "-t", name, "-e", "-q", "-f", "%k:%s\n").splitlines() == lines
