"""Topics and their content, made with a client that is not ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.fakes.patience import HANG_S


def create_topic(
    address: str, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    admin = _admin(address)
    wanted = NewTopic(topic, partitions, 1, config=dict(config or {}))
    admin.create_topics([wanted], request_timeout=HANG_S)[topic].result(HANG_S)


def add_partitions(address: str, topic: str, *, total: int) -> None:
    admin = _admin(address)
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(HANG_S)


def delete_topic(address: str, topic: str) -> None:
    admin = _admin(address)
    admin.delete_topics([topic])[topic].result(HANG_S)


def produce(
    address: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    config: Mapping[str, Any] | None = None,
    every_ms: int = 0,
    timestamp: int = 0,
    **fields: Any,
) -> None:
    """Store values in one partition, in order; `fields` are the same for each of them.

    They begin at a timestamp, if one is given, and are so many milliseconds apart.
    """
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 5, "enable.idempotence": True, **(config or {})}
    )
    for number, value in enumerate(values):
        at_ms = timestamp + number * every_ms
        while True:
            try:
                producer.produce(topic, value, partition=partition, timestamp=at_ms, **fields)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(HANG_S) == 0


def produce_transaction(
    address: str, topic: str, values: Iterable[bytes], *, partition: int = 0, commit: bool
) -> None:
    """Store values in a transaction of their own, and end it."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"{topic}-transactions"})
    producer.init_transactions(HANG_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(HANG_S) == 0
    if commit:
        producer.commit_transaction(HANG_S)
    else:
        producer.abort_transaction(HANG_S)


def _admin(address: str) -> AdminClient:
    """To be kept until it has answered."""
    return AdminClient({"bootstrap.servers": address})
