"""DescribeQuorum (55): who decides on the metadata of the cluster. Flexible from version 0.

1: times of the last fetch, in each replica's state.
2: directories and addresses, which is not served.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, Int64, String, Struct, field


class QuorumPartition(Struct):
    partition_index: Int32 = field()


class QuorumTopic(Struct):
    topic_name: String = field()
    partitions: Sequence[QuorumPartition] = field()


class DescribeQuorumRequest(Struct, api_key=55, versions=(0, 1), flexible=0):
    topics: Sequence[QuorumTopic] = field()


class ReplicaState(Struct):
    replica_id: Int32 = field()
    log_end_offset: Int64 = field()
    last_fetch_timestamp: Int64 = field(since=1, default=-1)
    last_caught_up_timestamp: Int64 = field(since=1, default=-1)


class QuorumPartitionState(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()
    high_watermark: Int64 = field()
    current_voters: Sequence[ReplicaState] = field()
    observers: Sequence[ReplicaState] = field()


class QuorumTopicState(Struct):
    topic_name: String = field()
    partitions: Sequence[QuorumPartitionState] = field()


class DescribeQuorumResponse(Struct, api_key=55, versions=(0, 1), flexible=0):
    error_code: Int16 = field()
    topics: Sequence[QuorumTopicState] = field()
