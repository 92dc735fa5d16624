"""AlterPartitionReassignments (45): move partitions to other brokers. Flexible from version 0."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, String, Struct, field


class ReassignablePartition(Struct):
    partition_index: Int32 = field()
    replicas: Sequence[Int32] | None = field(nullable=0, default=None)


class ReassignableTopic(Struct):
    name: String = field()
    partitions: Sequence[ReassignablePartition] = field()


class AlterPartitionReassignmentsRequest(Struct, api_key=45, versions=(0, 0), flexible=0):
    timeout_ms: Int32 = field(default=60000)
    topics: Sequence[ReassignableTopic] = field()


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)


class ReassignableTopicResponse(Struct):
    name: String = field()
    partitions: Sequence[ReassignablePartitionResponse] = field()


class AlterPartitionReassignmentsResponse(Struct, api_key=45, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    responses: Sequence[ReassignableTopicResponse] = field()
