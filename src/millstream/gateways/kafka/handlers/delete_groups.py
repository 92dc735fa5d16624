"""DeleteGroups (42): remove groups that have no members, with their offsets.

2 flexible.
"""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.admission import gather_slices
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
    async def outcome(name: str) -> DeletableGroupResult:
        code: int = ErrorCode.NONE
        try:
            await context.broker.groups.delete(name)
        except MillstreamError as error:
            code = code_of(error)
        return DeletableGroupResult(group_id=name, error_code=code)

    # Many at once: one sync of the disk serves them all.
    return DeleteGroupsResponse(results=await gather_slices(outcome, request.groups_names))
