"""ListGroups (16): the groups that there are.

1: the answer gains throttle_time_ms.
2: throttling happens after the answer, not before it.
3: flexible.
4: filter by state (KIP-518); the request gains states_filter; the answer gains group_state.
5: filter by type (KIP-848); the request gains types_filter; the answer gains group_type.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, String, Struct, field


class ListGroupsRequest(Struct, api_key=16, versions=(0, 5), flexible=3):
    states_filter: Sequence[String] = field(since=4)
    types_filter: Sequence[String] = field(since=5)


class ListedGroup(Struct):
    group_id: String = field()
    protocol_type: String = field()
    group_state: String = field(since=4)
    group_type: String = field(since=5)


class ListGroupsResponse(Struct, api_key=16, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = field(since=1)
    error_code: Int16 = field()
    groups: Sequence[ListedGroup] = field()
