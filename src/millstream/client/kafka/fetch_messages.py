"""Fetch (1) as a client writes requests and reads answers; the broker's side is written by hand.

Up to version 12: from 13 on, topics go by their ids. Records are views of the answer's own memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int8, Int16, Int32, Int64, Records, String, Struct, field


class FetchPartition(Struct):
    partition: Int32 = field()
    current_leader_epoch: Int32 = field(since=9, default=-1)
    fetch_offset: Int64 = field()
    last_fetched_epoch: Int32 = field(since=12, default=-1)
    log_start_offset: Int64 = field(since=5, default=-1)
    partition_max_bytes: Int32 = field()


class FetchTopic(Struct):
    topic: String = field()
    partitions: Sequence[FetchPartition] = field()


class ForgottenTopic(Struct):
    topic: String = field()
    partitions: Sequence[Int32] = field()


class FetchRequest(Struct, api_key=1, versions=(4, 12), flexible=12):
    replica_id: Int32 = field(default=-1)
    max_wait_ms: Int32 = field()
    min_bytes: Int32 = field(default=1)
    max_bytes: Int32 = field()
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
    log_start_offset: Int64 = field(since=5, default=-1)
    aborted_transactions: Sequence[AbortedTransaction] | None = field(nullable=4)
    preferred_read_replica: Int32 = field(since=11, default=-1)
    records: Records | None = field(nullable=0)


class FetchableTopicResponse(Struct):
    topic: String = field()
    partitions: Sequence[PartitionData] = field()


class FetchResponse(Struct, api_key=1, versions=(4, 12), flexible=12):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field(since=7)
    session_id: Int32 = field(since=7)
    responses: Sequence[FetchableTopicResponse] = field()
