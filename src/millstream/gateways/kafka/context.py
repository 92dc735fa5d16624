"""What a handler knows of the request besides its content."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.broker.broker import Broker
from millstream.gateways.kafka.admission import Pace


@dataclass(frozen=True, slots=True)
class Context:
    """Who asks, in which version, and what to ask."""

    broker: Broker
    version: int
    client_id: str
    client_host: str
    """As Kafka shows it to people: `/127.0.0.1`."""
    connection: int
    """The number of the client's connection, counted up from 1 in the order of their coming."""
    advertised: tuple[str, int]
    """Host and port that this client is to connect to."""
    pace: Pace = field(default_factory=Pace)
    """For handlers to go over what a request lists: it may be much."""
