"""OffsetForLeaderEpoch (23): where the epoch of a leader ended.

3: a consumer may ask, as replica -1; the request gains replica_id.
4: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, Int64, String, Struct, field


class OffsetForLeaderPartition(Struct):
    partition: Int32 = field()
    current_leader_epoch: Int32 = field(default=-1)
    leader_epoch: Int32 = field()


class OffsetForLeaderTopic(Struct):
    topic: String = field()
    partitions: Sequence[OffsetForLeaderPartition] = field()


class OffsetForLeaderEpochRequest(Struct, api_key=23, versions=(2, 4), flexible=4):
    replica_id: Int32 = field(since=3, default=-2)
    topics: Sequence[OffsetForLeaderTopic] = field()


class EpochEndOffset(Struct):
    error_code: Int16 = field()
    partition: Int32 = field()
    leader_epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: String = field()
    partitions: Sequence[EpochEndOffset] = field()


class OffsetForLeaderEpochResponse(Struct, api_key=23, versions=(2, 4), flexible=4):
    throttle_time_ms: Int32 = field()
    topics: Sequence[OffsetForLeaderTopicResult] = field()
