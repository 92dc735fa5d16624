"""DeleteAcls (31): there is no security that could have rules. No version changes that."""

from __future__ import annotations

from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.security import REASON
from millstream.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

API_KEY = 31
VERSIONS = (1, 3)
REQUEST = DeleteAclsRequest


async def handle(request: DeleteAclsRequest, _context: Context) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
