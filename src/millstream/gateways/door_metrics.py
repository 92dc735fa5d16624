"""What every door tells of itself."""

from __future__ import annotations

from millstream.gateways.receive_buffer import BufferPool
from millstream.telemetry import catalogue as known
from millstream.telemetry.metric import Reading


def add_connections(reading: Reading, door: str, *, open_now: int, accepted: int) -> None:
    reading.add(known.CONNECTIONS, open_now, door)
    reading.add(known.CONNECTIONS_ACCEPTED, accepted, door)


def add_memory(reading: Reading, door: str, pool: BufferPool) -> None:
    """Of a door that reads requests into buffers of a pool."""
    reading.add(known.MEMORY_USED, pool.used_bytes, door)
    reading.add(known.MEMORY_WAITING, pool.waiting, door)
