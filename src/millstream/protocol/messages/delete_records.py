"""DeleteRecords (21): drop the records before an offset.

1: throttling happens after the answer, not before it.
2: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, Int64, String, Struct, field


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = field()
    offset: Int64 = field()


class DeleteRecordsTopic(Struct):
    name: String = field()
    partitions: Sequence[DeleteRecordsPartition] = field()


class DeleteRecordsRequest(Struct, api_key=21, versions=(0, 2), flexible=2):
    topics: Sequence[DeleteRecordsTopic] = field()
    timeout_ms: Int32 = field()


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = field()
    low_watermark: Int64 = field()
    error_code: Int16 = field()


class DeleteRecordsTopicResult(Struct):
    name: String = field()
    partitions: Sequence[DeleteRecordsPartitionResult] = field()


class DeleteRecordsResponse(Struct, api_key=21, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = field()
    topics: Sequence[DeleteRecordsTopicResult] = field()
