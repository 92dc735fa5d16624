"""FindCoordinator (10): which broker looks after a group or a transaction.

1: the request gains key_type; the answer gains throttle_time_ms, error_message.
2: throttling happens after the answer, not before it.
3: flexible.
4: many keys at once; the request gains coordinator_keys; the request loses key; the answer gains
   coordinators; the answer loses error_code, error_message, node_id, host, port.
5: a new error for transactions (KIP-890).
6: share groups, key_type 2 (KIP-932).
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int8, Int16, Int32, String, Struct, field


class FindCoordinatorRequest(Struct, api_key=10, versions=(0, 6), flexible=3):
    key: String = field(until=3)
    key_type: Int8 = field(since=1)
    coordinator_keys: Sequence[String] = field(since=4)


class Coordinator(Struct):
    key: String = field()
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)


class FindCoordinatorResponse(Struct, api_key=10, versions=(0, 6), flexible=3):
    throttle_time_ms: Int32 = field(since=1)
    error_code: Int16 = field(until=3)
    error_message: String | None = field(since=1, until=3, nullable=1)
    node_id: Int32 = field(until=3)
    host: String = field(until=3)
    port: Int32 = field(until=3)
    coordinators: Sequence[Coordinator] = field(since=4)
