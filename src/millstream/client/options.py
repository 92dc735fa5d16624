"""What can be chosen when a client connects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

DEFAULT_URL = "http://127.0.0.1:8000"

_SOCKET_SCHEMES = {"http": "ws", "https": "wss"}


class Options(TypedDict, total=False):
    """The keywords of `connect` and `connect_async`, all of which may be left out."""

    retries: int
    """How often a send is repeated whose answer was lost. It may then be stored more than once."""
    timeout_s: float
    """How long anything may take, with the time in which the broker is away."""
    connect_timeout_s: float
    """How long to look for the broker at first."""
    max_unanswered: int
    """How many messages may be on their way to the broker; who sends more waits."""
    prefetch: int
    """How many messages a subscription may hold that nobody has taken yet."""
    max_frame_bytes: int
    """What the broker takes at once, and so the limit of a message."""
    tracing: bool | TracerProvider
    """Whether to make spans for OpenTelemetry, by its global provider or by the one given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The options, and their defaults."""

    retries: int = 0
    timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    max_unanswered: int = 10_000
    prefetch: int = 1000
    max_frame_bytes: int = 16 << 20
    tracing: bool | TracerProvider = False
    # Between two attempts to reach a broker that has gone.
    first_backoff_s: float = 0.05
    backoff_limit_s: float = 2.0

    def __post_init__(self) -> None:
        for name, least in (("retries", 0), ("max_unanswered", 1), ("prefetch", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: give {least} or more")
        for name in ("timeout_s", "connect_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)}: give a time above 0")


def socket_url(url: str) -> str:
    """Where the broker at an address of HTTP has its WebSocket. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in _SOCKET_SCHEMES or not parts.netloc:
        raise ValueError(f"{url!r} is no address of a broker: give one like {DEFAULT_URL}")
    path = parts.path.rstrip("/")
    return f"{_SOCKET_SCHEMES[parts.scheme]}://{parts.netloc}{path}/ws"
