"""DescribeProducers (61): the producers that are active in partitions."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, Int64, String, Struct, field


class TopicRequest(Struct):
    name: String = field()
    partition_indexes: Sequence[Int32] = field()


class DescribeProducersRequest(Struct, api_key=61, versions=(0, 0), flexible=0):
    topics: Sequence[TopicRequest] = field()


class ProducerState(Struct):
    producer_id: Int64 = field()
    producer_epoch: Int32 = field()
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32 = field()
    current_txn_start_offset: Int64 = field(default=-1)


class PartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    active_producers: Sequence[ProducerState] = field()


class TopicResponse(Struct):
    name: String = field()
    partitions: Sequence[PartitionResponse] = field()


class DescribeProducersResponse(Struct, api_key=61, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = field()
    topics: Sequence[TopicResponse] = field()
