"""TxnOffsetCommit (28): a group's offsets, kept if the transaction commits.

1: throttling happens after the answer, not before it.
2: the request gains committed_leader_epoch.
3: members are checked as in OffsetCommit; the request gains generation_id, member_id,
   group_instance_id; flexible.
4: a new error for transactions (KIP-890).
5: the group is added to the transaction by itself (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, Int64, String, Struct, field


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = field(since=2, default=-1)
    committed_metadata: String | None = field(nullable=0)


class TxnOffsetCommitRequestTopic(Struct):
    name: String = field()
    partitions: Sequence[TxnOffsetCommitRequestPartition] = field()


class TxnOffsetCommitRequest(Struct, api_key=28, versions=(0, 5), flexible=3):
    transactional_id: String = field()
    group_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    generation_id: Int32 = field(since=3, default=-1)
    member_id: String = field(since=3)
    group_instance_id: String | None = field(since=3, nullable=3)
    topics: Sequence[TxnOffsetCommitRequestTopic] = field()


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


class TxnOffsetCommitResponseTopic(Struct):
    name: String = field()
    partitions: Sequence[TxnOffsetCommitResponsePartition] = field()


class TxnOffsetCommitResponse(Struct, api_key=28, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = field()
    topics: Sequence[TxnOffsetCommitResponseTopic] = field()
