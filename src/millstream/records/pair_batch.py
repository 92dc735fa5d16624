"""Batches of keys and values that share one timestamp and have no headers: for who sends many.

Invariant: a batch made here is, byte for byte, the one that `build` makes of the same records.
Cost: a fraction of that of building record by record; see benchmarks/command_line.py.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from millstream.errors import InvalidBatch, MessageTooLarge
from millstream.records.batch import HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, seal
from millstream.records.batch_builder import MAX_BATCH_BYTES
from millstream.records.compression import Codec, compress
from millstream.records.varint import write_varint


def build_pairs(
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    *,
    timestamp_ms: int,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch of values, each with its key; none has one where `keys` is None. Hot."""
    count = len(values)
    if not count:
        raise InvalidBatch("no records")
    body = _bare(values) if keys is None else _paired(keys, values)
    out = bytearray(HEADER_BYTES)
    out += compress(codec, body) if codec else body
    if len(out) > MAX_BATCH_BYTES:
        raise MessageTooLarge(size_bytes=len(out), limit_bytes=MAX_BATCH_BYTES)
    HEADER.pack_into(
        out,
        0,
        0,
        len(out) - LENGTH_PREFIX_BYTES,
        0,
        MAGIC,
        0,
        int(codec),
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    seal(out)
    return out


def _bare(values: Sequence[bytes | None]) -> bytes:
    parts: list[bytes] = []
    add = parts.append
    for number, value in enumerate(values):
        place = _place(number)
        if value is None:
            add(_number(len(place) + 3))
            add(place)
            add(_NO_KEY_NO_VALUE_NO_HEADERS)
            continue
        size = _number(len(value))
        # Place and size are all that varies in length, beside the value and two bytes.
        add(_number(len(place) + len(size) + len(value) + 2))
        add(place)
        add(_NULL)
        add(size)
        add(value)
        add(_NO_HEADERS)
    return b"".join(parts)


def _paired(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> bytes:
    parts: list[bytes] = []
    add = parts.append
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        place = _place(number)
        key_size = _NULL if key is None else _number(len(key))
        size = _NULL if value is None else _number(len(value))
        key_bytes, content = key or b"", value or b""
        add(_number(len(place) + len(key_size) + len(key_bytes) + len(size) + len(content) + 1))
        add(place)
        add(key_size)
        add(key_bytes)
        add(size)
        add(content)
        add(_NO_HEADERS)
    return b"".join(parts)


@lru_cache(maxsize=8192)
def _number(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


@lru_cache(maxsize=8192)
def _place(number: int) -> bytes:
    """What comes before a key's size: attributes, and distances in time and offset."""
    return b"\0\0" + _number(number)


_NULL = b"\x01"
_NO_HEADERS = b"\0"
_NO_KEY_NO_VALUE_NO_HEADERS = _NULL + _NULL + _NO_HEADERS
