"""FindCoordinator (10): which broker looks after a group or a transaction. It is always this one.

1 key types and error messages; 3 flexible; 4 many keys at once; 5 a code that we never send;
6 share groups, which we do not have.
"""

from __future__ import annotations

from millstream.broker.broker import NODE_ID
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API_KEY = 10
VERSIONS = (0, 6)
REQUEST = FindCoordinatorRequest

_MANY_KEYS = 4
_GROUP = 0
_TRANSACTION = 1
_NOBODY = -1


async def handle(request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if context.version >= _MANY_KEYS else [request.key]
    found = [_coordinator(key, request.key_type, context) async for key in context.pace.over(keys)]
    if context.version >= _MANY_KEYS:
        return FindCoordinatorResponse(coordinators=found)
    [only] = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(key: str, key_type: int, context: Context) -> Coordinator:
    if key_type not in {_GROUP, _TRANSACTION}:
        return Coordinator(
            key=key,
            node_id=_NOBODY,
            port=_NOBODY,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"no coordinator for keys of type {key_type}",
        )
    host, port = context.advertised
    return Coordinator(key=key, node_id=NODE_ID, host=host, port=port)
