"""Settings of the HTTP door."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.settings.declaration import check, setting
from millstream.settings.domain import INT_MAX, LONG_MAX, Address, Whole

_MIB = 1024**2
_HOST = re.compile(r"\*|[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class HostNames:
    """Names of hosts, in any case, written with commas between them."""

    expected: str = "names of hosts without ports, with commas between them, or * for any"

    def convert(self, raw: object) -> object:
        if isinstance(raw, str):
            raw = raw.split(",") if raw.strip() else []
        if isinstance(raw, list) and all(isinstance(name, str) for name in raw):
            return frozenset(name.strip().lower() for name in raw)
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, frozenset) and all(map(_HOST.fullmatch, value))


@dataclass(frozen=True, slots=True)
class Origins:
    """Origins of web pages, in any case, written with commas between them."""

    expected: str = (
        "origins such as https://app.example:8443, with commas between them, or * for any"
    )

    def convert(self, raw: object) -> object:
        if isinstance(raw, str):
            raw = raw.split(",") if raw.strip() else []
        if isinstance(raw, list) and all(isinstance(origin, str) for origin in raw):
            return frozenset(origin.strip().lower() for origin in raw)
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, frozenset) and all(map(_ORIGIN.fullmatch, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Where the door is, and how much its clients may ask of it."""

    listener: str = setting(
        "http.listener",
        "127.0.0.1:8000",
        Address(),
        "Where HTTP clients connect; port 0 takes a free one, off closes the door.",
        needs_restart=True,
    )
    allowed_hosts: frozenset[str] = setting(
        "http.allowed.hosts",
        frozenset(),
        HostNames(),
        "Names by which clients may call the broker, besides localhost and addresses; * is any. "
        "Without it: on a loopback address none, elsewhere any.",
        needs_restart=True,
    )
    allowed_origins: frozenset[str] = setting(
        "http.allowed.origins",
        frozenset(),
        Origins(),
        "Origins whose web pages may use REST, server-sent events and WebSockets, besides the "
        "broker's own; * is any.",
        needs_restart=True,
    )
    request_header_max_bytes: int = setting(
        "http.request.header.max.bytes",
        64 * 1024,
        Whole(1024, INT_MAX),
        "Largest head of a request: its first line and its headers together.",
    )
    request_header_timeout_s: int = setting(
        "http.request.header.timeout.seconds",
        20,
        Whole(1, 86_400),
        "A connection that does not finish the headers that it has begun in this time is closed.",
    )
    request_max_bytes: int = setting(
        "http.request.max.bytes",
        16 * _MIB,
        Whole(1024, INT_MAX),
        "Largest body of a request, line of a stream of lines, or WebSocket message.",
        needs_restart=True,
    )
    body_timeout_s: int = setting(
        "http.request.body.timeout.seconds",
        30,
        Whole(1, 86_400),
        "A client that sends nothing of a body that it has begun, or takes nothing of its answer, "
        "for this long is given up. Streams of lines may pause longer between lines.",
    )
    response_max_bytes: int = setting(
        "http.response.max.bytes",
        16 * _MIB,
        Whole(1024, INT_MAX),
        "Most bytes of records in one answer, whatever the client asks for.",
    )
    long_poll_max_ms: int = setting(
        "http.long.poll.max.ms",
        30_000,
        Whole(0, 3_600_000),
        "Longest that a request may wait for messages.",
    )
    max_connections: int = setting(
        "http.max.connections",
        10_000,
        Whole(1, INT_MAX),
        "Most connections at once; one more is refused.",
    )
    keep_alive_s: int = setting(
        "http.keep.alive.seconds",
        75,
        Whole(1, 86_400),
        "A connection on which nothing was asked for this long is closed.",
        needs_restart=True,
    )
    stream_queue_messages: int = setting(
        "http.stream.queue.messages",
        1000,
        Whole(1, INT_MAX),
        "Messages that wait for one client of a stream; past it, that client is held back.",
    )

    socket_requests_max_bytes: int = setting(
        "http.websocket.requests.max.bytes",
        32 * _MIB,
        Whole(1024, LONG_MAX),
        "Bytes of requests of one WebSocket that are under way; past it, that client is not read.",
    )

    def __post_init__(self) -> None:
        check(self)
