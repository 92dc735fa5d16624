"""SyncGroup (14): the leader hands in the assignment, and each member gets its share.

1: the answer gains throttle_time_ms.
2: throttling happens after the answer, not before it.
3: static members; the request gains group_instance_id.
4: flexible.
5: the request gains protocol_type, protocol_name; the answer gains protocol_type, protocol_name.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bytes, Int16, Int32, String, Struct, field


class SyncGroupRequestAssignment(Struct):
    member_id: String = field()
    assignment: Bytes = field()


class SyncGroupRequest(Struct, api_key=14, versions=(0, 5), flexible=4):
    group_id: String = field()
    generation_id: Int32 = field()
    member_id: String = field()
    group_instance_id: String | None = field(since=3, nullable=3)
    protocol_type: String | None = field(since=5, nullable=5)
    protocol_name: String | None = field(since=5, nullable=5)
    assignments: Sequence[SyncGroupRequestAssignment] = field()


class SyncGroupResponse(Struct, api_key=14, versions=(0, 5), flexible=4):
    throttle_time_ms: Int32 = field(since=1)
    error_code: Int16 = field()
    protocol_type: String | None = field(since=5, nullable=5)
    protocol_name: String | None = field(since=5, nullable=5)
    assignment: Bytes = field()
