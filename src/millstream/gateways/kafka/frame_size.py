"""What is wrong with a request of an impossible size."""

from __future__ import annotations

import struct

from millstream.errors import InvalidRequest, MalformedMessage, UnexpectedProtocol
from millstream.gateways.tls_hello import HINT, is_tls_hello

_HTTP_METHODS = {b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI"}

_pack_size = struct.Struct(">i").pack


def bad_size(size: int, limit: int) -> InvalidRequest:
    """Why there is no request of this size."""
    first_bytes = _pack_size(size)
    if is_tls_hello(first_bytes):
        return UnexpectedProtocol(HINT)
    if first_bytes in _HTTP_METHODS:
        return UnexpectedProtocol("this looks like HTTP; this listener speaks Kafka's protocol")
    if size < 0 or size > limit:
        return MalformedMessage(
            f"a request of {size} bytes, where socket.request.max.bytes is {limit}"
        )
    return MalformedMessage(f"a request of {size} bytes cannot hold a header")


def too_large(api_key: int, size: int, limit: int) -> InvalidRequest:
    """Why a request without records may not have this size."""
    if is_tls_hello(_pack_size(size)):
        return UnexpectedProtocol(HINT)
    return MalformedMessage(
        f"a request of {size} bytes for API {api_key}, "
        f"where millstream.control.request.max.bytes is {limit}"
    )
