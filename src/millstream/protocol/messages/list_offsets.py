"""ListOffsets (2): offsets by time, and the first and last ones.

1: one offset per partition, by its timestamp.
2: the request gains isolation_level; the answer gains throttle_time_ms.
3: throttling happens after the answer, not before it.
4: the request gains current_leader_epoch; the answer gains leader_epoch.
5: new errors.
6: flexible.
7: timestamp -3 asks for the record with the highest timestamp.
8: timestamp -4 asks for the first offset on the local disk.
9: timestamp -5 asks for the last offset in remote storage.
10: the request gains timeout_ms.
11: timestamp -6 asks for the first offset not yet in remote storage.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int8, Int16, Int32, Int64, String, Struct, field


class ListOffsetsPartition(Struct):
    partition_index: Int32 = field()
    current_leader_epoch: Int32 = field(since=4, default=-1)
    timestamp: Int64 = field()


class ListOffsetsTopic(Struct):
    name: String = field()
    partitions: Sequence[ListOffsetsPartition] = field()


class ListOffsetsRequest(Struct, api_key=2, versions=(1, 11), flexible=6):
    replica_id: Int32 = field()
    isolation_level: Int8 = field(since=2)
    topics: Sequence[ListOffsetsTopic] = field()
    timeout_ms: Int32 = field(since=10)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = field(since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String = field()
    partitions: Sequence[ListOffsetsPartitionResponse] = field()


class ListOffsetsResponse(Struct, api_key=2, versions=(1, 11), flexible=6):
    throttle_time_ms: Int32 = field(since=2)
    topics: Sequence[ListOffsetsTopicResponse] = field()
