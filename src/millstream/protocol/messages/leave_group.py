"""LeaveGroup (13): members leave a classic group.

1: the answer gains throttle_time_ms.
2: throttling happens after the answer, not before it.
3: several members at once, also static ones; the request gains members; the request loses
   member_id; the answer gains members.
4: flexible.
5: each may say why it leaves; the request gains reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, String, Struct, field


class MemberIdentity(Struct):
    member_id: String = field()
    group_instance_id: String | None = field(nullable=0)
    reason: String | None = field(since=5, nullable=5)


class LeaveGroupRequest(Struct, api_key=13, versions=(0, 5), flexible=4):
    group_id: String = field()
    member_id: String = field(until=2)
    members: Sequence[MemberIdentity] = field(since=3)


class MemberResponse(Struct):
    member_id: String = field()
    group_instance_id: String | None = field(nullable=0)
    error_code: Int16 = field()


class LeaveGroupResponse(Struct, api_key=13, versions=(0, 5), flexible=4):
    throttle_time_ms: Int32 = field(since=1)
    error_code: Int16 = field()
    members: Sequence[MemberResponse] = field(since=3)
