"""ApiVersions (18): which APIs this broker has, in which versions.

3 flexible, except for the header of the answer, and features; 4 features may begin at version 0.
Java clients before 3.9 do not read an answer of version 3 in which one does (KAFKA-17011). So, as
Kafka does, that version tells which features are in use, which is all that any client looks at.
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
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API_KEY = 18
VERSIONS = (0, 4)

_FLEXIBLE = 3
_FEATURES_FROM_0 = 4

# KIP-890: with 2, to write to a partition is to add it to the transaction, and every transaction
# has an epoch of its own. Clients of before are served as well.
_SUPPORTED = (SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2),)
_FINALIZED = (
    FinalizedFeatureKey(name="transaction.version", min_version_level=2, max_version_level=2),
)
_FEATURES_EPOCH = 1
"""To be raised with any change to what is finalized: clients keep to the newest they heard of."""


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
        supported_features=_SUPPORTED if version >= _FEATURES_FROM_0 else (),
        finalized_features_epoch=_FEATURES_EPOCH,
        finalized_features=_FINALIZED,
    )
    header = response_header(correlation_id, flexible=False)
    body = encode(response, version)
    return [_SIZE.pack(len(header) + len(body)) + header + body]


_SIZE = struct.Struct(">i")
