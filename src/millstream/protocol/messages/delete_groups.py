"""DeleteGroups (42): remove groups that have no members.

1: throttling happens after the answer, not before it.
2: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, String, Struct, field


class DeleteGroupsRequest(Struct, api_key=42, versions=(0, 2), flexible=2):
    groups_names: Sequence[String] = field()


class DeletableGroupResult(Struct):
    group_id: String = field()
    error_code: Int16 = field()


class DeleteGroupsResponse(Struct, api_key=42, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = field()
    results: Sequence[DeletableGroupResult] = field()
