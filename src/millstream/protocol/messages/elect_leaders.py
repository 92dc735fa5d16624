"""ElectLeaders (43): choose leaders of partitions anew.

1: unclean elections; the request gains election_type; the answer gains error_code.
2: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int8, Int16, Int32, String, Struct, field


class TopicPartitions(Struct):
    topic: String = field()
    partitions: Sequence[Int32] = field()


class ElectLeadersRequest(Struct, api_key=43, versions=(0, 2), flexible=2):
    election_type: Int8 = field(since=1)
    topic_partitions: Sequence[TopicPartitions] | None = field(nullable=0)
    timeout_ms: Int32 = field(default=60000)


class PartitionResult(Struct):
    partition_id: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)


class ReplicaElectionResult(Struct):
    topic: String = field()
    partition_result: Sequence[PartitionResult] = field()


class ElectLeadersResponse(Struct, api_key=43, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field(since=1)
    replica_election_results: Sequence[ReplicaElectionResult] = field()
