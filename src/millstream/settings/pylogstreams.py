"""Settings of the PyLogStreams door."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.settings.declaration import check, setting
from millstream.settings.domain import INT_MAX, LONG_MAX, Address, Whole

_MIB = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class PyLogStreamsSettings:
    """Where the door is, and what its clients may ask of it."""

    listener: str = setting(
        "pylogstreams.listener",
        "127.0.0.1:1234",
        Address(),
        "Where PyLogStreams clients connect; port 0 takes a free one, off closes the door.",
        needs_restart=True,
    )
    heartbeat_ms: int = setting(
        "heartbeat.ms",
        30_000,
        Whole(10, LONG_MAX),
        "How often a client shows that it is alive.",
    )
    missed_heartbeats: int = setting(
        "heartbeat.missed.max",
        4,
        Whole(1, INT_MAX),
        "A client that was silent for so many heartbeats is dropped.",
    )
    outgoing_max_messages: int = setting(
        "outgoing.max.messages",
        1000,
        Whole(1, INT_MAX),
        "Most messages on their way to one client; the rest waits in the log.",
    )
    frame_max_bytes: int = setting(
        "frame.max.bytes",
        64 * _MIB,
        Whole(1024, INT_MAX - 1024),
        "Largest frame; a connection that announces a larger one is closed. Topics that this door "
        "creates take messages of this size.",
        needs_restart=True,
    )
    max_connections: int = setting(
        "max.connections",
        15_000,
        Whole(1, INT_MAX),
        "Most connections at once; one more is closed as soon as it is made.",
    )
    max_subscriptions: int = setting(
        "max.subscriptions",
        10_000,
        Whole(1, INT_MAX),
        "Most topics that one connection subscribes to; it is closed if it asks for one more.",
    )
    max_logins: int = setting(
        "max.logins",
        100,
        Whole(1, INT_MAX),
        "How often one connection may become another client, by REG or CID, before it is closed.",
    )

    def __post_init__(self) -> None:
        check(self)
