"""DeleteAcls (31): remove access rules.

2: flexible.
3: no change.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int8, Int16, Int32, String, Struct, field


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = field()
    resource_name_filter: String | None = field(nullable=0)
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: String | None = field(nullable=0)
    host_filter: String | None = field(nullable=0)
    operation: Int8 = field()
    permission_type: Int8 = field()


class DeleteAclsRequest(Struct, api_key=31, versions=(1, 3), flexible=2):
    filters: Sequence[DeleteAclsFilter] = field()


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    resource_type: Int8 = field()
    resource_name: String = field()
    pattern_type: Int8 = field(default=3)
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    matching_acls: Sequence[DeleteAclsMatchingAcl] = field()


class DeleteAclsResponse(Struct, api_key=31, versions=(1, 3), flexible=2):
    throttle_time_ms: Int32 = field()
    filter_results: Sequence[DeleteAclsFilterResult] = field()
