"""Metadata (3): the brokers, the topics and who leads their partitions.

1: empty topics ask for none, null for all; topics may be null; the answer gains rack, is_internal,
   controller_id.
2: the answer gains cluster_id.
3: the answer gains throttle_time_ms.
4: the request gains allow_auto_topic_creation.
5: the answer gains offline_replicas.
6: throttling happens after the answer, not before it.
7: the answer gains leader_epoch.
8: the request gains include_cluster_authorized_operations, include_topic_authorized_operations;
   the answer gains topic_authorized_operations, cluster_authorized_operations.
9: flexible.
10: the request gains topic_id; name may be null; the answer gains topic_id.
11: operations on the cluster are asked for by DescribeCluster; the request loses
   include_cluster_authorized_operations; the answer loses cluster_authorized_operations.
12: topics may be named by topic_id; name may be null.
13: the answer can fail as a whole; the answer gains error_code.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int16, Int32, String, Struct, Uuid, field


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field(since=10)
    name: String | None = field(nullable=10)


class MetadataRequest(Struct, api_key=3, versions=(0, 13), flexible=9):
    topics: Sequence[MetadataRequestTopic] | None = field(nullable=1)
    allow_auto_topic_creation: Bool = field(since=4, default=True)
    include_cluster_authorized_operations: Bool = field(since=8, until=10)
    include_topic_authorized_operations: Bool = field(since=8)


class MetadataResponseBroker(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: String | None = field(since=1, nullable=1)


class MetadataResponsePartition(Struct):
    error_code: Int16 = field()
    partition_index: Int32 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field(since=7, default=-1)
    replica_nodes: Sequence[Int32] = field()
    isr_nodes: Sequence[Int32] = field()
    offline_replicas: Sequence[Int32] = field(since=5)


class MetadataResponseTopic(Struct):
    error_code: Int16 = field()
    name: String | None = field(nullable=12)
    topic_id: Uuid = field(since=10)
    is_internal: Bool = field(since=1)
    partitions: Sequence[MetadataResponsePartition] = field()
    topic_authorized_operations: Int32 = field(since=8, default=-(2**31))


class MetadataResponse(Struct, api_key=3, versions=(0, 13), flexible=9):
    throttle_time_ms: Int32 = field(since=3)
    brokers: Sequence[MetadataResponseBroker] = field()
    cluster_id: String | None = field(since=2, nullable=2)
    controller_id: Int32 = field(since=1, default=-1)
    topics: Sequence[MetadataResponseTopic] = field()
    cluster_authorized_operations: Int32 = field(since=8, until=10, default=-(2**31))
    error_code: Int16 = field(since=13)
