"""The size in front of requests and answers, and what is wrong with one that cannot be."""

from __future__ import annotations

import struct

from millstream.errors import InvalidRequest, MalformedMessage, UnexpectedProtocol
from millstream.gateways.kafka.answers import Parts
from millstream.gateways.tls_hello import HINT, is_tls_hello
from millstream.protocol.codec import encode_parts
from millstream.protocol.notation import Struct

_HTTP_METHODS = {b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI"}

pack_size = struct.Struct(">i").pack


def framed(header: bytes, reply: Struct, version: int) -> Parts:
    """A whole answer."""
    body = encode_parts(reply, version)
    size = len(header) + sum(map(len, body))
    return [b"".join([pack_size(size), header, *body])]


def bad_size(size: int, limit: int) -> InvalidRequest:
    """Why there is no request of this size."""
    first_bytes = pack_size(size)
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
    if is_tls_hello(pack_size(size)):
        return UnexpectedProtocol(HINT)
    return MalformedMessage(
        f"a request of {size} bytes for API {api_key}, "
        f"where millstream.control.request.max.bytes is {limit}"
    )
