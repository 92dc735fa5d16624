"""DescribeGroups (15): the state and the members of classic groups.

1: the answer gains throttle_time_ms.
2: throttling happens after the answer, not before it.
3: the request gains include_authorized_operations; the answer gains authorized_operations.
4: static members; the answer gains group_instance_id.
5: flexible.
6: an unknown group is an error with a message (KIP-1043); the answer gains error_message.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Bytes, Int16, Int32, String, Struct, field


class DescribeGroupsRequest(Struct, api_key=15, versions=(0, 6), flexible=5):
    groups: Sequence[String] = field()
    include_authorized_operations: Bool = field(since=3)


class DescribedGroupMember(Struct):
    member_id: String = field()
    group_instance_id: String | None = field(since=4, nullable=4)
    client_id: String = field()
    client_host: String = field()
    member_metadata: Bytes = field()
    member_assignment: Bytes = field()


class DescribedGroup(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(since=6, nullable=6)
    group_id: String = field()
    group_state: String = field()
    protocol_type: String = field()
    protocol_data: String = field()
    members: Sequence[DescribedGroupMember] = field()
    authorized_operations: Int32 = field(since=3, default=-(2**31))


class DescribeGroupsResponse(Struct, api_key=15, versions=(0, 6), flexible=5):
    throttle_time_ms: Int32 = field(since=1)
    groups: Sequence[DescribedGroup] = field()
