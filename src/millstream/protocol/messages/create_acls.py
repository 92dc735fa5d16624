"""CreateAcls (30): add access rules.

2: flexible.
3: no change.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int8, Int16, Int32, String, Struct, field


class AclCreation(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    resource_pattern_type: Int8 = field(default=3)
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


class CreateAclsRequest(Struct, api_key=30, versions=(1, 3), flexible=2):
    creations: Sequence[AclCreation] = field()


class AclCreationResult(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)


class CreateAclsResponse(Struct, api_key=30, versions=(1, 3), flexible=2):
    throttle_time_ms: Int32 = field()
    results: Sequence[AclCreationResult] = field()
