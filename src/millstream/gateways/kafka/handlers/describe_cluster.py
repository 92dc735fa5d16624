"""DescribeCluster (60): the one broker there is.

1 brokers or controllers; 2 fenced brokers, of which there are none.
"""

from __future__ import annotations

from millstream.broker.broker import NODE_ID
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.operations import cluster_operations
from millstream.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

API_KEY = 60
VERSIONS = (0, 2)
REQUEST = DescribeClusterRequest

_BROKERS, _CONTROLLERS = 1, 2


async def handle(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if known
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker, and there is no other endpoint",
            endpoint_type=request.endpoint_type,
        )
    host, port = context.advertised
    return DescribeClusterResponse(
        cluster_id=context.broker.topics.cluster_id,
        controller_id=NODE_ID,
        brokers=[DescribeClusterBroker(broker_id=NODE_ID, host=host, port=port)],
        cluster_authorized_operations=cluster_operations(
            asked=request.include_cluster_authorized_operations
        ),
    )
