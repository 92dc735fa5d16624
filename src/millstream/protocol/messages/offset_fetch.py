"""OffsetFetch (9): how far groups have come.

2: null topics ask for all; topics may be null; the answer gains error_code.
3: the answer gains throttle_time_ms.
4: throttling happens after the answer, not before it.
5: the answer gains committed_leader_epoch.
6: flexible.
7: only stable offsets, if so asked; the request gains require_stable.
8: many groups at once; the request gains groups; the request loses group_id, topics; the answer
   gains groups; the answer loses topics, error_code.
9: members of consumer groups, by member epoch (KIP-848); the request gains member_id,
   member_epoch.
10: topics by id instead of name; the request gains topic_id; the request loses name; the answer
   gains topic_id; the answer loses name.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int16, Int32, Int64, String, Struct, Uuid, field


class OffsetFetchRequestTopic(Struct):
    name: String = field()
    partition_indexes: Sequence[Int32] = field()


class OffsetFetchRequestTopics(Struct):
    name: String = field(until=9)
    topic_id: Uuid = field(since=10)
    partition_indexes: Sequence[Int32] = field()


class OffsetFetchRequestGroup(Struct):
    group_id: String = field()
    member_id: String | None = field(since=9, nullable=9)
    member_epoch: Int32 = field(since=9, default=-1)
    topics: Sequence[OffsetFetchRequestTopics] | None = field(nullable=0)


class OffsetFetchRequest(Struct, api_key=9, versions=(1, 10), flexible=6):
    group_id: String = field(until=7)
    topics: Sequence[OffsetFetchRequestTopic] | None = field(until=7, nullable=2)
    groups: Sequence[OffsetFetchRequestGroup] = field(since=8)
    require_stable: Bool = field(since=7)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = field(since=5, default=-1)
    metadata: String | None = field(nullable=0)
    error_code: Int16 = field()


class OffsetFetchResponseTopic(Struct):
    name: String = field()
    partitions: Sequence[OffsetFetchResponsePartition] = field()


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = field(default=-1)
    metadata: String | None = field(nullable=0)
    error_code: Int16 = field()


class OffsetFetchResponseTopics(Struct):
    name: String = field(until=9)
    topic_id: Uuid = field(since=10)
    partitions: Sequence[OffsetFetchResponsePartitions] = field()


class OffsetFetchResponseGroup(Struct):
    group_id: String = field()
    topics: Sequence[OffsetFetchResponseTopics] = field()
    error_code: Int16 = field()


class OffsetFetchResponse(Struct, api_key=9, versions=(1, 10), flexible=6):
    throttle_time_ms: Int32 = field(since=3)
    topics: Sequence[OffsetFetchResponseTopic] = field(until=7)
    error_code: Int16 = field(since=2, until=7)
    groups: Sequence[OffsetFetchResponseGroup] = field(since=8)
