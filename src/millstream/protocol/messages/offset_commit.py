"""OffsetCommit (8): a group keeps how far it has come.

3: the answer gains throttle_time_ms.
4: throttling happens after the answer, not before it.
5: a retention time is no longer asked for; the request loses retention_time_ms.
6: the request gains committed_leader_epoch.
7: static members; the request gains group_instance_id.
8: flexible.
9: members of consumer groups, by member epoch (KIP-848).
10: topics by id instead of name; the request gains topic_id; the request loses name; the answer
   gains topic_id; the answer loses name.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, Int64, String, Struct, Uuid, field


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = field(since=6, default=-1)
    committed_metadata: String | None = field(nullable=0)


class OffsetCommitRequestTopic(Struct):
    name: String = field(until=9)
    topic_id: Uuid = field(since=10)
    partitions: Sequence[OffsetCommitRequestPartition] = field()


class OffsetCommitRequest(Struct, api_key=8, versions=(2, 10), flexible=8):
    group_id: String = field()
    generation_id_or_member_epoch: Int32 = field(default=-1)
    member_id: String = field()
    retention_time_ms: Int64 = field(until=4, default=-1)
    group_instance_id: String | None = field(since=7, nullable=7)
    topics: Sequence[OffsetCommitRequestTopic] = field()


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


class OffsetCommitResponseTopic(Struct):
    name: String = field(until=9)
    topic_id: Uuid = field(since=10)
    partitions: Sequence[OffsetCommitResponsePartition] = field()


class OffsetCommitResponse(Struct, api_key=8, versions=(2, 10), flexible=8):
    throttle_time_ms: Int32 = field(since=3)
    topics: Sequence[OffsetCommitResponseTopic] = field()
