"""Produce and Fetch in the notation, as a client needs them: to write requests and read answers.

The broker has them written by hand; that both agree is part of what tests find out.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import (
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Struct,
    Uuid,
    field,
)


class PartitionProduceData(Struct):
    index: Int32 = field()
    records: Records | None = field(nullable=0)


class TopicProduceData(Struct):
    name: String = field(until=12)
    topic_id: Uuid = field(since=13)
    partition_data: Sequence[PartitionProduceData] = field()


class ProduceRequest(Struct, api_key=0, versions=(0, 13), flexible=9):
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
    name: String = field(until=12)
    topic_id: Uuid = field(since=13)
    partition_responses: Sequence[PartitionProduceResponse] = field()


class ProduceResponse(Struct, api_key=0, versions=(0, 13), flexible=9):
    responses: Sequence[TopicProduceResponse] = field()
    throttle_time_ms: Int32 = field(since=1)


class FetchPartition(Struct):
    partition: Int32 = field()
    current_leader_epoch: Int32 = field(since=9, default=-1)
    fetch_offset: Int64 = field()
    last_fetched_epoch: Int32 = field(since=12, default=-1)
    log_start_offset: Int64 = field(since=5, default=-1)
    partition_max_bytes: Int32 = field(default=1 << 20)


class FetchTopic(Struct):
    topic: String = field(until=12)
    topic_id: Uuid = field(since=13)
    partitions: Sequence[FetchPartition] = field()


class ForgottenTopic(Struct):
    topic: String = field(until=12)
    topic_id: Uuid = field(since=13)
    partitions: Sequence[Int32] = field()


class FetchRequest(Struct, api_key=1, versions=(4, 17), flexible=12):
    replica_id: Int32 = field(until=14, default=-1)
    max_wait_ms: Int32 = field()
    min_bytes: Int32 = field(default=1)
    max_bytes: Int32 = field(default=1 << 24)
    isolation_level: Int8 = field()
    session_id: Int32 = field(since=7)
    session_epoch: Int32 = field(since=7, default=-1)
    topics: Sequence[FetchTopic] = field()
    forgotten_topics_data: Sequence[ForgottenTopic] = field(since=7)
    rack_id: String = field(since=11)


class AbortedTransaction(Struct):
    producer_id: Int64 = field()
    first_offset: Int64 = field()


class PartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    high_watermark: Int64 = field()
    last_stable_offset: Int64 = field()
    log_start_offset: Int64 = field(since=5)
    aborted_transactions: Sequence[AbortedTransaction] | None = field(nullable=4)
    preferred_read_replica: Int32 = field(since=11, default=-1)
    records: Records | None = field(nullable=0)


class FetchableTopicResponse(Struct):
    topic: String = field(until=12)
    topic_id: Uuid = field(since=13)
    partitions: Sequence[PartitionData] = field()


class FetchResponse(Struct, api_key=1, versions=(4, 17), flexible=12):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field(since=7)
    session_id: Int32 = field(since=7)
    responses: Sequence[FetchableTopicResponse] = field()
