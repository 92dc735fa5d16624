"""One record, and its bytes inside a batch.

A record knows its offset and timestamp; its bytes hold only the distances from those of the
batch. A header's key is text: UTF-8 on the wire, and bytes that are not UTF-8 are kept as
surrogate escapes, so that decoding and encoding again gives the same bytes.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

from typing import NamedTuple

from millstream.errors import InvalidBatch
from millstream.records.varint import (
    INT32_BITS,
    INT64_BITS,
    read_rest,
    read_varint,
    write_varint,
    write_varlong,
)

Headers = tuple[tuple[str, bytes | None], ...]

MIN_INT64 = -(2**63)
MAX_INT64 = 2**63 - 1


class Record(NamedTuple):
    """A message, as people think of it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def encode_record(
    out: bytearray, record: Record, *, base_offset: int, base_timestamp_ms: int
) -> None:
    """Append a record's bytes to `out`."""
    body = bytearray(1)  # its attributes, of which none are in use
    write_varlong(body, record.timestamp_ms - base_timestamp_ms)
    write_varint(body, record.offset - base_offset)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_bytes(body, _header_key_bytes(key))
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body


def decode_record(  # noqa: C901, PLR0912, PLR0915 - one byte of each number is inline
    body: bytes, position: int, base_offset: int, base_timestamp_ms: int
) -> tuple[Record, int]:
    """The record at `position`, and the position after it.

    Lengths are never trusted: a slice cannot reach past `body`, and a record must end exactly
    where its length says, so that each lie ends in InvalidBatch or, at the very end of the body,
    in IndexError, which the caller turns into InvalidBatch. Hot.
    """
    raw = body[position]
    position += 1
    if raw > 0x7F:
        raw, position = read_rest(body, position, raw, INT32_BITS)
    if raw & 1:
        raise InvalidBatch("a record of negative length")
    end = position + (raw >> 1)
    position += 1  # its attributes

    raw = body[position]
    position += 1
    if raw > 0x7F:
        raw, position = read_rest(body, position, raw, INT64_BITS)
    timestamp_ms = base_timestamp_ms + ((raw >> 1) ^ -(raw & 1))
    if not MIN_INT64 <= timestamp_ms <= MAX_INT64:
        raise InvalidBatch(f"a timestamp of {timestamp_ms}")

    raw = body[position]
    position += 1
    if raw > 0x7F:
        raw, position = read_rest(body, position, raw, INT32_BITS)
    offset = base_offset + ((raw >> 1) ^ -(raw & 1))

    raw = body[position]
    position += 1
    if raw > 0x7F:
        raw, position = read_rest(body, position, raw, INT32_BITS)
    key = None
    if not raw & 1:
        key_from = position
        position += raw >> 1
        key = body[key_from:position]
    elif raw != 1:
        raise InvalidBatch("a key of negative length")

    raw = body[position]
    position += 1
    if raw > 0x7F:
        raw, position = read_rest(body, position, raw, INT32_BITS)
    value = None
    if not raw & 1:
        value_from = position
        position += raw >> 1
        value = body[value_from:position]
    elif raw != 1:
        raise InvalidBatch("a value of negative length")

    headers: Headers = ()
    if body[position]:
        headers, position = read_headers(body, position)
        if position > len(body):
            # The last header's value was cut, which nothing behind it would tell.
            raise IndexError
    else:
        position += 1
    if position != end:
        raise InvalidBatch(f"a record that ends at byte {position} where its length says {end}")
    return _new(Record, (offset, timestamp_ms, key, value, headers)), position


def read_headers(body: bytes, position: int) -> tuple[Headers, int]:
    """The headers whose count is at `position`, and the position after them."""
    count, position = read_varint(body, position)
    if count < 0:
        raise InvalidBatch(f"{count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size_bytes, position = read_varint(body, position)
        if size_bytes < 0:
            raise InvalidBatch("a header with no key")
        key = body[position : position + size_bytes].decode("utf-8", "surrogateescape")
        position += size_bytes
        value = None
        size_bytes, position = read_varint(body, position)
        if size_bytes >= 0:
            value = body[position : position + size_bytes]
            position += size_bytes
        elif size_bytes != -1:
            raise InvalidBatch("a header value of negative length")
        headers.append((key, value))
    return tuple(headers), position


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        write_varint(out, len(data))
        out += data


def _header_key_bytes(key: str) -> bytes:
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as cause:
        raise InvalidBatch(f"a header key that is not text: {key!r}") from cause


_new = tuple.__new__


def content_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """What a record holds for those who read it, without its numbers."""
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"")
    return size
