"""CreateAcls (30): there is no security that could have rules. No version changes that."""

from __future__ import annotations

from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.security import REASON
from millstream.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

API_KEY = 30
VERSIONS = (1, 3)
REQUEST = CreateAclsRequest


async def handle(request: CreateAclsRequest, _context: Context) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON)
    return CreateAclsResponse(results=[refused] * len(request.creations))
