"""ApiVersions (18): which APIs this broker has, in which versions.

3 flexible, except for the header of the answer; 4 features may begin at version 0.
A client that asks in a version of the future is told, in version 0, which ones of this API
there are.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from millstream.gateways.kafka.answers import Parts
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.protocol.codec import decode_prefix, encode
from millstream.protocol.headers import read_client_id, response_header
from millstream.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

API_KEY = 18
VERSIONS = (0, 4)

_FLEXIBLE = 3


def answer(
    frame: memoryview,
    version: int,
    correlation_id: int,
    announced: Sequence[tuple[int, int, int]],
) -> Parts:
    """A whole answer. Raises MalformedMessage."""
    oldest, newest = VERSIONS
    if oldest <= version <= newest:
        _, position = read_client_id(frame, flexible=version >= _FLEXIBLE)
        decode_prefix(ApiVersionsRequest, version, frame, position)
        error_code, told = ErrorCode.NONE, announced
    else:
        version = 0
        error_code, told = ErrorCode.UNSUPPORTED_VERSION, [(API_KEY, oldest, newest)]
    response = ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, first, last in told
        ],
    )
    header = response_header(correlation_id, flexible=False)
    body = encode(response, version)
    return [_SIZE.pack(len(header) + len(body)) + header + body]


_SIZE = struct.Struct(">i")
