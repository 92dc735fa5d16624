"""What the PyLogStreams door tells of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.gateways.door_metrics import add_connections, add_memory
from millstream.telemetry import catalogue as known
from millstream.telemetry.metric import Reading

if TYPE_CHECKING:
    from millstream.gateways.pylogstreams.door import Door

_DOOR = "pylogstreams"


def figures(door: Door, reading: Reading) -> Iterator[None]:
    """All of it, which is quick."""
    add_connections(reading, _DOOR, open_now=len(door.connections), accepted=door.accepted)
    add_memory(reading, _DOOR, door.pool)
    for command, count in sorted(door.commands.items()):
        reading.add(known.PYLOGSTREAMS_COMMANDS, count, command)
    yield
