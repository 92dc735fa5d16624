"""What tests that load a real broker process need: a process, its memory, many sockets."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from millstream.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.clients.broker_process import BrokerProcess
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import BlockingClient

MIB = 1 << 20


@contextmanager
def running_broker(home: Path, settings: str = "") -> Iterator[BrokerProcess]:
    broker = BrokerProcess(home, settings=settings)
    broker.start()
    try:
        yield broker
    finally:
        if broker.is_running:
            broker.stop()


@contextmanager
def clients(port: int, count: int) -> Iterator[list[BlockingClient]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(BlockingClient(port))) for _ in range(count)]


def create_topic(port: int, name: str) -> None:
    client = BlockingClient(port)
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)
    assert [each.error_code for each in answer.topics] == [0]
    client.close()


def own_memory_bytes(pid: int) -> int:
    """What a process has of its own: not what it has mapped of files."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


def produce_many(port: int, topic: str, *, times: int = 300) -> None:
    """One message after the other; a broker that stores none of them while others stall hangs."""
    client = BlockingClient(port)
    batch = bytes(batch_of(b"x" * 100))
    for _ in range(times):
        assert client.produce(topic, batch).error_code == 0
    client.close()


@contextmanager
def many_files() -> Iterator[None]:
    """Let this process have as many sockets as the machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
