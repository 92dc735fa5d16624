"""Settings of the Kafka door."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import InvalidSetting
from millstream.settings.declaration import check, setting
from millstream.settings.domain import INT_MAX, LONG_MAX, Address, Reachable, Whole

_MIB = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Where the door is, and how much its clients may ask of it."""

    listener: str = setting(
        "listeners",
        "127.0.0.1:9092",
        Address(),
        "Where Kafka clients connect; port 0 takes a free one, off closes the door.",
        needs_restart=True,
    )
    advertised_listener: str = setting(
        "advertised.listeners",
        "",
        Reachable(),
        "Address that clients are told to use; empty for the one they connected to.",
        needs_restart=True,
    )
    request_max_bytes: int = setting(
        "socket.request.max.bytes",
        100 * _MIB,
        Whole(1024, INT_MAX),
        "Largest request; a connection that announces a larger one is closed.",
        needs_restart=True,
    )
    control_request_max_bytes: int = setting(
        "millstream.control.request.max.bytes",
        8 * _MIB,
        Whole(1024, INT_MAX),
        "Largest request that carries no records; a connection that announces one is closed.",
    )
    request_max_elements: int = setting(
        "millstream.request.max.elements",
        50_000,
        Whole(1000, INT_MAX),
        "Most topics, partitions, groups and such that one request may list, taken together; "
        "a request that lists more is refused.",
    )
    receive_max_ms: int = setting(
        "millstream.request.receive.max.ms",
        10_000,
        Whole(100, LONG_MAX),
        "While others wait for memory, a request that takes longer to arrive ends its connection.",
    )
    max_connections: int = setting(
        "max.connections",
        15_000,
        Whole(1, INT_MAX),
        "Most connections at once; one more is closed as soon as it is made.",
    )
    connection_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        600_000,
        Whole(1000, LONG_MAX),
        "A connection on which nothing was asked for this long is closed.",
    )
    unsent_max_bytes: int = setting(
        "millstream.connection.unsent.max.bytes",
        4 * _MIB,
        Whole(1, LONG_MAX),
        "A connection whose client has left more than this unread is not read until it catches up.",
    )
    pipelined_max_requests: int = setting(
        "millstream.connection.pipelined.max.requests",
        1024,
        Whole(1, INT_MAX),
        "A connection with more than this many unanswered requests is not read.",
    )
    buffered_max_bytes: int = setting(
        "queued.max.request.bytes",
        -1,
        Whole(-1, LONG_MAX),
        "Memory for requests being received, within max.memory.bytes; past it, connections that "
        "need more wait. -1 is no limit of its own.",
        needs_restart=True,
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        55 * _MIB,
        Whole(1024, INT_MAX),
        "Most bytes in the answer to one fetch, whatever the client asks for.",
    )

    def __post_init__(self) -> None:
        check(self)
        if 0 <= self.buffered_max_bytes < self.request_max_bytes:
            raise InvalidSetting(
                name="queued.max.request.bytes",
                value=self.buffered_max_bytes,
                expected=f"at least socket.request.max.bytes, which is {self.request_max_bytes}",
            )
