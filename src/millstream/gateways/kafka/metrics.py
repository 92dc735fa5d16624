"""What the Kafka door tells of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.gateways.door_metrics import add_connections, add_memory
from millstream.protocol.apis import APIS
from millstream.telemetry import catalogue as known
from millstream.telemetry.metric import Reading

if TYPE_CHECKING:
    from millstream.gateways.kafka.listener import Door

_DOOR = "kafka"


def figures(door: Door, reading: Reading) -> Iterator[None]:
    """All of it; yields after each bit of work."""
    unanswered = held_bytes = fetches = 0
    for connection in tuple(door.connections):
        unanswered += connection.unanswered
        held_bytes += connection.held_bytes
        fetches += connection.fetches_waiting
        yield
    add_connections(reading, _DOOR, open_now=len(door.connections), accepted=door.accepted)
    add_memory(reading, _DOOR, door.pool)
    reading.add(known.PENDING_REQUESTS, unanswered, _DOOR)
    reading.add(known.HELD_BYTES, held_bytes, _DOOR)
    reading.add(known.PURGATORY, fetches, "fetch")
    for api_key, times in sorted(door.broker.metrics.requests.kafka.items()):
        reading.add_histogram(known.KAFKA_REQUESTS, times, APIS[api_key].name)
    yield
