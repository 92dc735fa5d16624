"""DescribeQuorum (55): a quorum of one. No version changes that.

The one broker leads, votes, and has everything. What Kafka keeps in `__cluster_metadata` is in our
catalog, whose end is told as the end of that topic.
"""

from __future__ import annotations

from millstream.broker.broker import NODE_ID
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartitionState,
    QuorumTopicState,
    ReplicaState,
)

API_KEY = 55
VERSIONS = (0, 1)
REQUEST = DescribeQuorumRequest

_METADATA = ("__cluster_metadata", 0)


async def handle(request: DescribeQuorumRequest, context: Context) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            QuorumTopicState(
                topic_name=topic.topic_name,
                partitions=[
                    _state(topic.topic_name, each.partition_index, context)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _state(topic: str, number: int, context: Context) -> QuorumPartitionState:
    if (topic, number) != _METADATA:
        return QuorumPartitionState(
            partition_index=number, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    end_offset = context.broker.topics.catalog_log.end_offset
    now_ms = context.broker.clock.now_ms()
    voter = ReplicaState(
        replica_id=NODE_ID, log_end_offset=end_offset, last_caught_up_timestamp=now_ms
    )
    return QuorumPartitionState(
        partition_index=number,
        leader_id=NODE_ID,
        high_watermark=end_offset,
        current_voters=[voter],
    )
