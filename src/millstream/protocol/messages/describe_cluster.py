"""DescribeCluster (60): the brokers, without topics.

1: brokers or controllers; the request gains endpoint_type; the answer gains endpoint_type.
2: fenced brokers; the request gains include_fenced_brokers; the answer gains is_fenced.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int8, Int16, Int32, String, Struct, field


class DescribeClusterRequest(Struct, api_key=60, versions=(0, 2), flexible=0):
    include_cluster_authorized_operations: Bool = field()
    endpoint_type: Int8 = field(since=1, default=1)
    include_fenced_brokers: Bool = field(since=2)


class DescribeClusterBroker(Struct):
    broker_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: String | None = field(nullable=0)
    is_fenced: Bool = field(since=2)


class DescribeClusterResponse(Struct, api_key=60, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    endpoint_type: Int8 = field(since=1, default=1)
    cluster_id: String = field()
    controller_id: Int32 = field(default=-1)
    brokers: Sequence[DescribeClusterBroker] = field()
    cluster_authorized_operations: Int32 = field(default=-(2**31))
