"""What a partition holds for those who read only what was committed, and for those who read all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.clients.client_shape import (
    Client,
    Message,
    Place,
    TransactionalProducer,
    produce,
    read_to,
)

COMMITTED = "read_committed"
ALL = "read_uncommitted"
_END = b"the end"


def content(
    client: Client, address: str, place: Place, *, isolation: str = COMMITTED, first: int = 0
) -> list[bytes]:
    """The values of all records, in order.

    A record outside of any transaction is put behind them: who reads it has read all that comes
    before, so nothing may be open then.
    """
    topic, partition = place
    (end,) = produce(client, address, [Message(topic, _END, partition=partition)])
    consumer = client.consumer(address, isolation=isolation)
    try:
        consumer.assign({place: first})
        found = read_to(consumer, end)
    finally:
        consumer.close()
    assert [each.offset for each in found] == sorted({each.offset for each in found})
    return [each.value or b"" for each in found if each.value != _END]


def stable_end(client: Client, address: str, place: Place, *, isolation: str = COMMITTED) -> int:
    """Where readers end: the last stable offset, or the end for those who read all."""
    consumer = client.consumer(address, isolation=isolation)
    try:
        return consumer.bounds(place)[1]
    finally:
        consumer.close()


@contextmanager
def transactional(
    client: Client,
    address: str,
    transactional_id: str,
    *,
    compression: str = "none",
    timeout_ms: int = 60_000,
) -> Iterator[TransactionalProducer]:
    producer = client.transactional_producer(
        address, transactional_id, compression=compression, timeout_ms=timeout_ms
    )
    try:
        yield producer
    finally:
        producer.close()


def numbered(topic: str, numbers: range, *, partition: int = 0, what: str = "") -> list[Message]:
    return [Message(topic, value(number, what), partition=partition) for number in numbers]


def values(numbers: range, what: str = "") -> list[bytes]:
    return [value(number, what) for number in numbers]


def value(number: int, what: str = "") -> bytes:
    return f"{what}{number}".encode()


def run(
    producer: TransactionalProducer, messages: list[Message], *, is_commit: bool = True
) -> list[int]:
    """A whole transaction, all of which reaches the broker; the offsets."""
    producer.begin()
    producer.send_many(messages)
    offsets = producer.flush()
    if is_commit:
        producer.commit()
    else:
        producer.abort()
    return offsets
