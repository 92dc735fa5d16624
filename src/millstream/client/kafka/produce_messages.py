"""Produce (0) as a client writes requests and reads answers; the broker's side is written by hand.

Up to version 11: from 12 on, partitions join a transaction by being written to, and every end gives
a new epoch (KIP-890), which a transaction that is ended by another process cannot follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, Int64, Records, String, Struct, field


class PartitionProduceData(Struct):
    index: Int32 = field()
    records: Records | None = field(nullable=0)


class TopicProduceData(Struct):
    name: String = field()
    partition_data: Sequence[PartitionProduceData] = field()


class ProduceRequest(Struct, api_key=0, versions=(3, 11), flexible=9):
    transactional_id: String | None = field(since=3, nullable=3)
    acks: Int16 = field()
    timeout_ms: Int32 = field()
    topic_data: Sequence[TopicProduceData] = field()


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = field()
    batch_index_error_message: String | None = field(nullable=8)


class PartitionProduceResponse(Struct):
    index: Int32 = field()
    error_code: Int16 = field()
    base_offset: Int64 = field()
    log_append_time_ms: Int64 = field(since=2)
    log_start_offset: Int64 = field(since=5)
    record_errors: Sequence[BatchIndexAndErrorMessage] = field(since=8)
    error_message: String | None = field(since=8, nullable=8)


class TopicProduceResponse(Struct):
    name: String = field()
    partition_responses: Sequence[PartitionProduceResponse] = field()


class ProduceResponse(Struct, api_key=0, versions=(3, 11), flexible=9):
    responses: Sequence[TopicProduceResponse] = field()
    throttle_time_ms: Int32 = field(since=1)
