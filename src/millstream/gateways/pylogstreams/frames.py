"""What the bytes of a connection mean.

A frame is a 4-byte big-endian length and that many bytes: a command of three letters, a space, and
what the command needs. A length of 0 ends the connection. After a `PUB` frame, and not counted in
its length, comes the CRC-32 of its payload. What is delivered is a frame with a topic, a space and
the payload. Payloads are any bytes; all else is text.
Cost: benchmarks/pylogstreams.py.
"""

from __future__ import annotations

import struct
from zlib import crc32

from millstream.errors import InvalidRequest, MalformedMessage, UnexpectedProtocol
from millstream.gateways.tls_hello import HINT as TLS_HINT
from millstream.gateways.tls_hello import is_tls_hello

LENGTH_BYTES = 4
CHECKSUM_BYTES = 4
COMMAND_BYTES = 4
"""Three letters, and the space that follows where there is more."""
PUBLISH = b"PUB "
COMMAND_MAX_BYTES = 2048
"""The longest client id and the longest topic fit in. Only messages are larger."""

_LONGEST_TOPIC = 249
# Where its name ends, counted from the frame's first byte.
_TOPIC_END = LENGTH_BYTES + COMMAND_BYTES + _LONGEST_TOPIC

Published = dict[bytes, list[bytes]]
"""By topic, payloads in the order in which they came."""


def take_published(data: bytes, position: int, published: Published, *, max_bytes: int) -> int:
    """Take the whole PUB frames that follow one another; returns where they end.

    Raises MalformedMessage at the first that is wrong: those before it are taken. Hot.
    """
    end = len(data) - CHECKSUM_BYTES
    last_start = end - LENGTH_BYTES - COMMAND_BYTES
    find, is_at = data.find, data.startswith
    while position <= last_start:
        (size,) = _unpack_number(data, position)
        stop = position + 4 + size
        if stop > end or size > max_bytes or not is_at(PUBLISH, position + 4, stop):
            break
        space = find(b" ", position + 8, stop)
        if space < 0 or space > position + _TOPIC_END:
            raise MalformedMessage("PUB without a topic, or with one that is too long")
        payload = data[space + 1 : stop]
        (checksum,) = _unpack_number(data, stop)
        if crc32(payload) != checksum:
            raise MalformedMessage(
                f"a payload of {len(payload)} bytes for topic {_shown(data[position + 8 : space])} "
                f"whose CRC-32 is not the {checksum:#010x} that came with it"
            )
        topic = data[position + 8 : space]
        payloads = published.get(topic)
        if payloads is None:
            published[topic] = [payload]
        else:
            payloads.append(payload)
        position = stop + 4
    return position


def frame_bytes(data: memoryview, start: int, end: int, *, max_bytes: int) -> int:
    """How many bytes the frame takes that begins at `start`, as far as that can be told.

    Never 0; with fewer bytes there than this, wait for more. Raises MalformedMessage.
    """
    if end - start < LENGTH_BYTES:
        return LENGTH_BYTES
    (size,) = _unpack_number(data, start)
    if size > max_bytes:
        raise _too_large(size, max_bytes)
    total = LENGTH_BYTES + int(size)
    if end - start < min(total, LENGTH_BYTES + COMMAND_BYTES):
        return min(total, LENGTH_BYTES + COMMAND_BYTES)
    if size >= COMMAND_BYTES and data[start + 4 : start + 8] == PUBLISH:
        return total + CHECKSUM_BYTES
    if size > COMMAND_MAX_BYTES:
        if is_tls_hello(_pack_number(size)):
            raise UnexpectedProtocol(TLS_HINT)
        raise MalformedMessage(
            f"a command of {size} bytes, where only PUB may have more than {COMMAND_MAX_BYTES}"
        )
    return total


def split_command(frame: bytes) -> tuple[str, list[str]]:
    """The command and its words. Raises MalformedMessage."""
    try:
        text = frame.decode()
    except UnicodeDecodeError:
        raise MalformedMessage("a command that is not text") from None
    command, _, rest = text.partition(" ")
    return command, rest.split(" ") if rest else []


def framed(content: bytes) -> bytes:
    return _pack_number(len(content)) + content


class DeliveryHeads:
    """The bytes in front of each payload of a topic, which depend on its size alone."""

    __slots__ = ("_heads", "_prefix")

    _KEPT = 4096

    def __init__(self, topic: str) -> None:
        self._prefix = f"{topic} ".encode()
        self._heads: dict[int, bytes] = {}

    def of(self, size: int) -> bytes:
        """For a payload of so many bytes. Hot."""
        head = self._heads.get(size)
        if head is None:
            head = _pack_number(len(self._prefix) + size) + self._prefix
            if len(self._heads) < self._KEPT:
                self._heads[size] = head
        return head


def _shown(name: bytes) -> str:
    return repr(name[:249].decode("utf-8", "replace"))


def _too_large(size: int, limit: int) -> InvalidRequest:
    first_bytes = _pack_number(size)
    if is_tls_hello(first_bytes):
        return UnexpectedProtocol(TLS_HINT)
    if first_bytes in _HTTP_METHODS:
        return UnexpectedProtocol("this looks like HTTP; this listener speaks PyLogStreams")
    return MalformedMessage(f"a frame of {size} bytes, where frame.max.bytes is {limit}")


_unpack_number = struct.Struct(">I").unpack_from
_pack_number = struct.Struct(">I").pack
_HTTP_METHODS = {b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI"}
