"""What goes to a broker and what comes from it, as people think of it.

A value is bytes, or text, which travels as UTF-8; None deletes a key where a topic is compacted.
What is received is always bytes: only who sent it knows whether it is text. A key is like a value.

Invariant: what is sent is checked before it leaves, so one bad message harms no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

Data = bytes | bytearray | memoryview | str
Headers = tuple[tuple[str, bytes | None], ...]
HeadersLike = Mapping[str, Data | None] | Iterable[tuple[str, Data | None]]
Moment = datetime | int
"""A time with its zone, or milliseconds since the epoch."""
Span = timedelta | float
"""A length of time; a number counts seconds."""

_LAST_MS = (1 << 63) - 1


class Sent(NamedTuple):
    """Where a message was stored. From then on it survives a crash."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def id(self) -> str:
        return f"{self.partition}:{self.offset}"


class NewMessage(NamedTuple):
    """A message to send, where a value alone does not say it all."""

    value: Data | None
    key: Data | None = None
    headers: HeadersLike | None = None
    partition: int | None = None
    timestamp: Moment | None = None
    deliver_after: Span | None = None
    deliver_at: Moment | None = None


class Outgoing(NamedTuple):
    """A message that is ready to leave."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None
    deliver_after_ms: int | None = None
    deliver_at_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """About what it takes on the wire, were it written as it is."""
        size = len(self.value or b"") + len(self.key or b"") + 64
        for name, value in self.headers:
            size += len(name) + len(value or b"") + 16
        return size


class Received:
    """A message as it stands in its topic. Its clients add what can be done with it."""

    __slots__ = (
        "delivery_count",
        "headers",
        "key",
        "offset",
        "partition",
        "timestamp_ms",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        delivery_count: int = 1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers
        self.delivery_count = delivery_count

    @property
    def id(self) -> str:
        """Its name in its topic."""
        return f"{self.partition}:{self.offset}"

    @property
    def timestamp(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def text(self) -> str:
        """The value, where it is UTF-8; a deleted one is empty."""
        return (self.value or b"").decode()

    def header(self, name: str) -> bytes | None:
        """The last header of a name: a name may occur more than once."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic} {self.id} key={self.key!r} {self.value!r}>"


def outgoing(message: NewMessage | Data | None) -> Outgoing:
    """Check a message, or a value alone, and bring it into the form in which it leaves.

    Raises TypeError, ValueError.
    """
    if not isinstance(message, NewMessage):
        return Outgoing(_bytes(message, "value"), None, (), None, None)
    if message.deliver_after is not None and message.deliver_at is not None:
        raise ValueError("deliver_after and deliver_at exclude each other: give one")
    return Outgoing(
        _bytes(message.value, "value"),
        _bytes(message.key, "key"),
        _headers(message.headers),
        _partition(message.partition),
        None if message.timestamp is None else moment_ms(message.timestamp),
        None if message.deliver_after is None else span_ms(message.deliver_after),
        None if message.deliver_at is None else moment_ms(message.deliver_at),
    )


def moment_ms(moment: Moment) -> int:
    """Milliseconds since the epoch. Raises TypeError, ValueError."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{moment} has no time zone: add one, as in datetime.now(UTC)")
        return round(moment.timestamp() * 1000)
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise TypeError(f"{moment!r} is no time: give a datetime, or milliseconds since 1970")
    if not 0 <= moment <= _LAST_MS:
        raise ValueError(f"{moment} is no time: give milliseconds since 1970, as of a record")
    return moment


def span_ms(span: Span) -> int:
    """Raises ValueError for one that goes backwards."""
    milliseconds = round((span.total_seconds() if isinstance(span, timedelta) else span) * 1000)
    if milliseconds < 0:
        raise ValueError(f"{span} is in the past: give a length of time of 0 or more")
    return milliseconds


def _partition(partition: int | None) -> int | None:
    if partition is not None and not 0 <= partition < 1 << 31:
        raise ValueError(f"{partition} is no partition: they count from 0")
    return partition


def _headers(headers: HeadersLike | None) -> Headers:
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((_header_name(name), _bytes(value, f"header {name!r}")) for name, value in pairs)


def _header_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is no name of a header: give text")
    name.encode()
    return name


def _bytes(data: Data | None, what: str) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    # Who checks no types gets here.
    raise TypeError(
        f"{what} is a {type(data).__name__}: send bytes or text, as from json.dumps(...)"
    )
