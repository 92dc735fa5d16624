"""What comes before every request and every response, after its size.

A request has an API key, a version, a correlation id and a client id, which is an old-style
string in all versions; flexible versions add tagged fields, which are skipped. A response repeats
the correlation id; flexible versions add tagged fields, of which there are none. ApiVersions'
response never has them, because a client asks for it before it knows what the broker can do.
"""

from __future__ import annotations

import struct
from typing import Final

from millstream.errors import MalformedMessage
from millstream.protocol.primitives import UNREADABLE, Buffer, bad_size, skip_tags

_FIXED_BYTES: Final = 8
_SIZE: Final = struct.Struct(">h")
_CORRELATION_ID: Final = struct.Struct(">i")
_FLEXIBLE_RESPONSE: Final = struct.Struct(">ix")


def read_client_id(frame: Buffer, *, flexible: bool) -> tuple[str | None, int]:
    """The client id of a request whose fixed fields are known, and the position of its body."""
    end = len(frame)
    try:
        (size,) = _SIZE.unpack_from(frame, _FIXED_BYTES)
        position = _FIXED_BYTES + _SIZE.size
        client_id = None
        if size != -1:
            if not 0 <= size <= end - position:
                raise bad_size("client_id", size, end - position)
            client_id = str(frame[position : position + size], "utf-8")
            position += size
        if flexible:
            position = skip_tags(frame, position, end)
    except UNREADABLE as error:
        raise MalformedMessage(f"request header: {error}") from error
    return client_id, position


def response_header(correlation_id: int, flexible: bool) -> bytes:
    """The header of a response; ApiVersions' is never flexible."""
    layout = _FLEXIBLE_RESPONSE if flexible else _CORRELATION_ID
    return layout.pack(correlation_id)
