"""Messages as JSON: those that clients send, in each shape that they may have, and those we answer.

    in   {"value": ..., "key": ..., "headers": {...}, "partition": 0, "timestamp": ms,
          "deliver_at": ms, "deliver_after": ms, "encoding": "base64"}
    or   {"data": "..."}, as Mini Pulsar's clients send it, or {"message": "..."}, as FastQueue2's
    out  {"message_id": 7, "partition": 0, "offset": 7, "timestamp": ms,
          "key": ..., "value": ..., "headers": {...}}

A value is text. One that is null deletes its key in a compacted topic; one that is any other JSON
is stored as its text. With the encoding `base64` value and key are bytes in base64. In an answer
`encoding` and `key_encoding` say that a value or key is in base64: because that was asked for, or
because its bytes are not UTF-8. A header's value is text, null, {"base64": "..."} where it is not
UTF-8, or an array where a name comes several times.
"""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import orjson

from millstream.broker.sending import NewRecord, Sent
from millstream.errors import InvalidRequest
from millstream.gateways.http.excerpt import excerpt
from millstream.gateways.http.json_text import TOO_DEEP
from millstream.gateways.http.message_ids import message_id_of
from millstream.records import Record
from millstream.records.record import MAX_INT64, Headers
from millstream.settings.topics import MAX_PARTITIONS
from millstream.subscriptions.delivery_time import DELIVER_AT

Delayed = Callable[[int], Headers]
"""Gives the headers of a message that is to be delivered after so many milliseconds."""

BASE64: Final = "base64"
TEXT: Final = "text"

_VALUE_NAMES = ("value", "data", "message")
_OTHER_NAMES = {
    "deliver_after",
    "deliver_at",
    "encoding",
    "headers",
    "key",
    "partition",
    "timestamp",
}
_MOST_NAMED = 10
_NAMES = _OTHER_NAMES.union(_VALUE_NAMES)


def new_record(shape: Any, *, delayed: Delayed, encoding: str = TEXT) -> NewRecord:
    """What a client wants to be sent. Raises InvalidRequest. Hot: benchmarks/http.py."""
    if type(shape) is not dict:
        raise InvalidRequest(
            f"a message is a JSON object, such as {{'value': 'hello'}}: {excerpt(shape)}"
        )
    if len(shape) == 1 and encoding == TEXT:
        # By far the most frequent ones.
        for value in shape.values():
            if type(value) is str and not shape.keys().isdisjoint(_VALUE_NAMES):
                return NewRecord(value.encode())
    return _any_record(shape, delayed, encoding)


def _any_record(shape: dict[str, Any], delayed: Delayed, encoding: str) -> NewRecord:
    if not shape.keys() <= _NAMES:
        unknown = ", ".join(sorted(map(excerpt, islice(shape.keys() - _NAMES, _MOST_NAMED))))
        raise InvalidRequest(f"a message has no {unknown}: expected {', '.join(sorted(_NAMES))}")
    named = [name for name in _VALUE_NAMES if name in shape]
    if len(named) != 1:
        raise InvalidRequest("a message has one of value, data and message")
    encoding = check_encoding(shape.get("encoding", encoding))
    headers = headers_of(shape.get("headers"))
    delay_ms, at_ms = whole(shape, "deliver_after"), whole(shape, "deliver_at")
    return NewRecord(
        value=_value_bytes(named[0], shape[named[0]], encoding),
        key=_key_bytes(shape.get("key"), encoding),
        headers=with_delivery(headers, delay_ms=delay_ms, at_ms=at_ms, delayed=delayed),
        timestamp_ms=whole(shape, "timestamp"),
        partition=whole(shape, "partition", maximum=MAX_PARTITIONS),
    )


def new_records(
    shapes: Sequence[Any], *, delayed: Delayed, encoding: str = TEXT, first: int = 0
) -> list[NewRecord]:
    """All, or none: the InvalidRequest that is raised says which is wrong, counted from `first`."""
    records = []
    for number, shape in enumerate(shapes, first):
        try:
            records.append(new_record(shape, delayed=delayed, encoding=encoding))
        except InvalidRequest as error:
            raise InvalidRequest(f"message {number}: {error}") from None
    return records


def with_delivery(
    headers: Headers, *, delay_ms: int | None, at_ms: int | None, delayed: Delayed
) -> Headers:
    """Headers that say when a message is to be delivered, if that is not at once."""
    if delay_ms is None and at_ms is None:
        return headers
    if delay_ms is not None and at_ms is not None:
        raise InvalidRequest("deliver_after and deliver_at exclude each other: leave one out")
    if delay_ms is not None:
        return headers + delayed(delay_ms)
    return (*headers, (DELIVER_AT, b"%d" % min(at_ms or 0, MAX_INT64)))


def headers_of(shape: Any) -> Headers:
    """Raises InvalidRequest."""
    if shape is None:
        return ()
    if type(shape) is not dict:
        raise InvalidRequest(f"headers are a JSON object of names and values: {excerpt(shape)}")
    headers: list[tuple[str, bytes | None]] = []
    for name, value in shape.items():
        values = value if type(value) is list else [value]
        headers += [(name, _header_bytes(name, each)) for each in values]
    return tuple(headers)


def check_encoding(encoding: object) -> str:
    if isinstance(encoding, str) and encoding in {TEXT, BASE64}:
        return encoding
    raise InvalidRequest(f"encoding is {excerpt(encoding)}: expected {TEXT} or {BASE64}")


def whole(shape: Mapping[str, Any], name: str, *, maximum: int = MAX_INT64) -> int | None:
    """A number from 0 on, if the shape has it. Raises InvalidRequest."""
    number = shape.get(name)
    if number is None or (type(number) is int and 0 <= number <= maximum):
        return number
    raise InvalidRequest(
        f"{name} is {excerpt(number)}: expected a whole number from 0 to {maximum}"
    )


def sent_shape(sent: Sent) -> dict[str, int]:
    """Where a message was stored."""
    return {
        "message_id": message_id_of(sent.partition, sent.offset),
        "partition": sent.partition,
        "offset": sent.offset,
        "timestamp": sent.timestamp_ms,
    }


def message_shape(record: Record, partition: int, *, encoding: str = TEXT) -> dict[str, Any]:
    """A message that was read."""
    offset, timestamp_ms, key, value, headers = record
    shape: dict[str, Any] = {
        "message_id": message_id_of(partition, offset),
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp_ms,
        "key": None,
        "value": None,
        "headers": headers_shape(headers) if headers else {},
    }
    if key is not None:
        shape["key"], is_base64 = _shown(key, encoding)
        if is_base64:
            shape["key_encoding"] = BASE64
    if value is not None:
        shape["value"], is_base64 = _shown(value, encoding)
        if is_base64:
            shape["encoding"] = BASE64
    return shape


def headers_shape(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, Any]:
    shape: dict[str, Any] = {}
    for name, value in headers:
        # A name that is no text cannot be told in JSON.
        told = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        shape.setdefault(told, []).append(_header_shape(value))
    return {name: values[0] if len(values) == 1 else values for name, values in shape.items()}


def _value_bytes(name: str, value: Any, encoding: str) -> bytes | None:
    if value is None and name == "value":
        return None
    if type(value) is str:
        return _unpacked(name, value) if encoding == BASE64 else value.encode()
    if name != "value" or encoding == BASE64:
        raise InvalidRequest(f"{name} is {excerpt(value)}: expected text")
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # All else that was parsed can be written.
        raise InvalidRequest(TOO_DEEP) from None


def _key_bytes(key: Any, encoding: str) -> bytes | None:
    if key is None:
        return None
    if type(key) is not str:
        raise InvalidRequest(f"key is {excerpt(key)}: expected text")
    return _unpacked("key", key) if encoding == BASE64 else key.encode()


def _header_bytes(name: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if type(value) is str:
        return value.encode()
    if type(value) is dict and value.keys() == {BASE64} and type(value[BASE64]) is str:
        return _unpacked(f"header {excerpt(name)}", value[BASE64])
    raise InvalidRequest(
        f"header {excerpt(name)} is {excerpt(value)}: expected text, null or {{'base64': ...}}"
    )


def _header_shape(value: bytes | None) -> Any:
    if value is None:
        return None
    shown, is_base64 = _shown(value, TEXT)
    return {BASE64: shown} if is_base64 else shown


def _shown(data: bytes, encoding: str) -> tuple[str, bool]:
    """Bytes as text, and whether that is base64."""
    if encoding == TEXT:
        try:
            return data.decode(), False
        except UnicodeDecodeError:
            pass
    return b64encode(data).decode(), True


def _unpacked(name: str, text: str) -> bytes:
    try:
        return binascii.a2b_base64(text.encode(), strict_mode=True)
    except binascii.Error as error:
        raise InvalidRequest(f"{name} is not base64: {error}") from None
