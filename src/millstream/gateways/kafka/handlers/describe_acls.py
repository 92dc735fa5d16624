"""DescribeAcls (29): there is no security that could have rules. No version changes that."""

from __future__ import annotations

from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.security import REASON
from millstream.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

API_KEY = 29
VERSIONS = (1, 3)
REQUEST = DescribeAclsRequest


async def handle(_request: DescribeAclsRequest, _context: Context) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON)
