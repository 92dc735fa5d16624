"""The frames of the WebSocket protocol: requests made, answers and deliveries read. Nothing waits.

Bytes travel as text where they are UTF-8, and as base64 where they are not.
Format: docs/formats/websocket.md.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

import orjson

from millstream.client.failures import failure_of
from millstream.client.messages import Headers, Outgoing, Sent, moment_ms
from millstream.errors import MalformedMessage, MillstreamError

Frame = dict[str, Any]
Start = Literal["earliest", "latest"] | int | datetime | Mapping[int, int]
"""Where to begin: an end of the log, an offset, a time, or an offset for each partition."""


# What a message has beside its value.
_VALUE_ALONE = Outgoing(None, None, (), None, None)[1:]


class Delivered(NamedTuple):
    """A message of a delivery, before it is given to anyone."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    delivery_count: int


def encode(frame: Frame) -> bytes:
    """Raises TypeError for what is no JSON, such as text with lone surrogates."""
    return orjson.dumps(frame)


def decode(data: bytes | str) -> Frame:
    """Raises MalformedMessage."""
    try:
        frame = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedMessage(f"the broker sent no JSON: {error}") from None
    if not isinstance(frame, dict):
        raise MalformedMessage(f"the broker sent {type(frame).__name__} and no object")
    return frame


def message_fields(message: Outgoing) -> Frame:
    """A message to send. What is left out, the broker decides."""
    fields: Frame
    try:
        fields = {"value": _text(message.value)}
        if message[1:] == _VALUE_ALONE:
            return fields
        if message.key is not None:
            fields["key"] = _text(message.key)
    except UnicodeDecodeError:
        fields = {"value": _base64(message.value), "encoding": "base64"}
        if message.key is not None:
            fields["key"] = _base64(message.key)
    if message.headers:
        fields["headers"] = _header_fields(message.headers)
    for name, number in (
        ("partition", message.partition),
        ("timestamp", message.timestamp_ms),
        ("deliver_after", message.deliver_after_ms),
        ("deliver_at", message.deliver_at_ms),
    ):
        if number is not None:
            fields[name] = number
    return fields


def places_of(topic: str, result: Frame, count: int) -> list[Sent | MillstreamError]:
    """What became of each message of a request to send so many."""
    places = result["places"]
    if len(places) != count:
        raise ValueError(f"{len(places)} places for {count} messages")
    return [
        failure_of(place["error"])
        if "error" in place
        else Sent(topic, place["partition"], place["offset"], place["timestamp"])
        for place in places
    ]


def start_of(start: Start) -> object:
    """A place to begin, as the protocol writes it. Raises TypeError, ValueError."""
    if isinstance(start, str):
        if start not in ("earliest", "latest"):
            raise ValueError(f"start={start!r}: give earliest, latest, an offset or a datetime")
        return start
    if isinstance(start, datetime):
        return {"timestamp": moment_ms(start)}
    if isinstance(start, Mapping):
        return {"positions": {str(partition): offset for partition, offset in start.items()}}
    if isinstance(start, bool) or not isinstance(start, int):
        raise TypeError(f"start={start!r}: give earliest, latest, an offset or a datetime")
    if start < 0:
        raise ValueError(f"start={start}: offsets begin at 0; for the end give latest")
    return start


def positions_of(result: Frame) -> dict[int, int]:
    """By partition, the offset that comes next."""
    return {int(partition): offset for partition, offset in result["positions"].items()}


def delivered(fields: Frame) -> Delivered:
    """One message of a delivery. Cost: benchmarks/python_client.py."""
    value, key = fields["value"], fields["key"]
    if value is not None:
        value = b64decode(value) if "encoding" in fields else value.encode()
    if key is not None:
        key = b64decode(key) if "key_encoding" in fields else key.encode()
    headers = fields.get("headers")
    return Delivered(
        fields["partition"],
        fields["offset"],
        fields["timestamp"],
        key,
        value,
        _headers(headers) if headers else (),
        fields.get("delivery_count", 1),
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _header_fields(headers: Headers) -> Frame:
    """By name, a value; or a list of them where the name comes more than once."""
    fields: Frame = {}
    for name, value in headers:
        fields.setdefault(name, []).append(_header_value(value))
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _header_value(value: bytes | None) -> object:
    try:
        return _text(value)
    except UnicodeDecodeError:
        return {"base64": _base64(value)}


def _headers(headers: Frame) -> Headers:
    return tuple(
        (name, _header_bytes(each))
        for name, value in headers.items()
        for each in (value if isinstance(value, list) else [value])
    )


def _header_bytes(value: str | dict[str, str] | None) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else b64decode(value["base64"])
