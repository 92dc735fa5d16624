"""ListPartitionReassignments (46): partitions that are being moved. Flexible from version 0."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, String, Struct, field


class ListPartitionReassignmentsTopics(Struct):
    name: String = field()
    partition_indexes: Sequence[Int32] = field()


class ListPartitionReassignmentsRequest(Struct, api_key=46, versions=(0, 0), flexible=0):
    timeout_ms: Int32 = field(default=60000)
    topics: Sequence[ListPartitionReassignmentsTopics] | None = field(nullable=0, default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = field()
    replicas: Sequence[Int32] = field()
    adding_replicas: Sequence[Int32] = field()
    removing_replicas: Sequence[Int32] = field()


class OngoingTopicReassignment(Struct):
    name: String = field()
    partitions: Sequence[OngoingPartitionReassignment] = field()


class ListPartitionReassignmentsResponse(Struct, api_key=46, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    topics: Sequence[OngoingTopicReassignment] = field()
