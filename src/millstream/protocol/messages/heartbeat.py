"""Heartbeat (12): a member of a classic group says that it is alive.

1: the answer gains throttle_time_ms.
2: throttling happens after the answer, not before it.
3: static members; the request gains group_instance_id.
4: flexible.
"""

from __future__ import annotations

from millstream.protocol.notation import Int16, Int32, String, Struct, field


class HeartbeatRequest(Struct, api_key=12, versions=(0, 4), flexible=4):
    group_id: String = field()
    generation_id: Int32 = field()
    member_id: String = field()
    group_instance_id: String | None = field(since=3, nullable=3)


class HeartbeatResponse(Struct, api_key=12, versions=(0, 4), flexible=4):
    throttle_time_ms: Int32 = field(since=1)
    error_code: Int16 = field()
