"""The header of a request as a whole, where the broker reads it in two steps."""

from __future__ import annotations

import struct
from typing import NamedTuple

from millstream.errors import MalformedMessage
from millstream.protocol.apis import API_VERSIONS, is_flexible
from millstream.protocol.headers import read_client_id
from millstream.protocol.primitives import Buffer


class RequestHeader(NamedTuple):
    """Who asks for what."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def parse_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header at the start of a request, and the position of the body."""
    try:
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
    except struct.error as error:
        raise MalformedMessage(f"a request of {len(frame)} bytes has no header") from error
    client_id, position = read_client_id(frame, flexible=is_flexible(api_key, version))
    return RequestHeader(api_key, version, correlation_id, client_id), position


def has_flexible_response(api_key: int, version: int) -> bool:
    """Whether the response's header has tagged fields."""
    return api_key != API_VERSIONS and is_flexible(api_key, version)
