"""DeleteGroups (42): remove groups that have no members, with their offsets.

2 flexible.
"""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

API_KEY = 42
VERSIONS = (0, 2)
REQUEST = DeleteGroupsRequest


async def handle(request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=await _delete(name, context))
            for name in request.groups_names
        ]
    )


async def _delete(name: str, context: Context) -> int:
    try:
        await context.broker.groups.delete(name)
    except MillstreamError as error:
        return code_of(error)
    return ErrorCode.NONE
