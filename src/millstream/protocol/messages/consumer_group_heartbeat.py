"""ConsumerGroupHeartbeat (68): a member of a consumer group joins, stays or leaves (KIP-848).

0: the broker may give out member ids.
1: the client makes its own member id; a pattern of topics; the request gains
   subscribed_topic_regex.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, String, Struct, Uuid, field


class TopicPartitions(Struct):
    topic_id: Uuid = field()
    partitions: Sequence[Int32] = field()


class ConsumerGroupHeartbeatRequest(Struct, api_key=68, versions=(0, 1), flexible=0):
    group_id: String = field()
    member_id: String = field()
    member_epoch: Int32 = field()
    instance_id: String | None = field(nullable=0)
    rack_id: String | None = field(nullable=0)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: Sequence[String] | None = field(nullable=0)
    subscribed_topic_regex: String | None = field(since=1, nullable=1)
    server_assignor: String | None = field(nullable=0)
    topic_partitions: Sequence[TopicPartitions] | None = field(nullable=0)


class Assignment(Struct):
    topic_partitions: Sequence[TopicPartitions] = field()


class ConsumerGroupHeartbeatResponse(Struct, api_key=68, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    member_id: String | None = field(nullable=0)
    member_epoch: Int32 = field()
    heartbeat_interval_ms: Int32 = field()
    assignment: Assignment | None = field(nullable=0)
