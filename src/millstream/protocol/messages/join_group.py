"""JoinGroup (11): a member asks to be in the next generation of a classic group.

1: the request gains rebalance_timeout_ms.
2: the answer gains throttle_time_ms.
3: throttling happens after the answer, not before it.
4: a new member must come back with the id it is given.
5: static members; the request gains group_instance_id; the answer gains group_instance_id.
6: flexible.
7: the answer gains protocol_type; protocol_name may be null.
8: a member may say why it joins; the request gains reason.
9: the leader may be told to skip the assignment; the answer gains skip_assignment.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Bytes, Int16, Int32, String, Struct, field


class JoinGroupRequestProtocol(Struct):
    name: String = field()
    metadata: Bytes = field()


class JoinGroupRequest(Struct, api_key=11, versions=(0, 9), flexible=6):
    group_id: String = field()
    session_timeout_ms: Int32 = field()
    rebalance_timeout_ms: Int32 = field(since=1, default=-1)
    member_id: String = field()
    group_instance_id: String | None = field(since=5, nullable=5)
    protocol_type: String = field()
    protocols: Sequence[JoinGroupRequestProtocol] = field()
    reason: String | None = field(since=8, nullable=8)


class JoinGroupResponseMember(Struct):
    member_id: String = field()
    group_instance_id: String | None = field(since=5, nullable=5)
    metadata: Bytes = field()


class JoinGroupResponse(Struct, api_key=11, versions=(0, 9), flexible=6):
    throttle_time_ms: Int32 = field(since=2)
    error_code: Int16 = field()
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field(since=7, nullable=7)
    protocol_name: String | None = field(nullable=7)
    leader: String = field()
    skip_assignment: Bool = field(since=9)
    member_id: String = field()
    members: Sequence[JoinGroupResponseMember] = field()
