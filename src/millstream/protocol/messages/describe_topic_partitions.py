"""DescribeTopicPartitions (75): topics and their partitions, page by page (KIP-966)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int16, Int32, String, Struct, Uuid, field


class TopicRequest(Struct):
    name: String = field()


class Cursor(Struct):
    topic_name: String = field()
    partition_index: Int32 = field()


class DescribeTopicPartitionsRequest(Struct, api_key=75, versions=(0, 0), flexible=0):
    topics: Sequence[TopicRequest] = field()
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(nullable=0)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = field()
    partition_index: Int32 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: Sequence[Int32] = field()
    isr_nodes: Sequence[Int32] = field()
    eligible_leader_replicas: Sequence[Int32] | None = field(nullable=0)
    last_known_elr: Sequence[Int32] | None = field(nullable=0)
    offline_replicas: Sequence[Int32] = field()


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = field()
    name: String | None = field(nullable=0)
    topic_id: Uuid = field()
    is_internal: Bool = field()
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = field()
    topic_authorized_operations: Int32 = field(default=-(2**31))


class DescribeTopicPartitionsResponse(Struct, api_key=75, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = field()
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = field()
    next_cursor: Cursor | None = field(nullable=0)
