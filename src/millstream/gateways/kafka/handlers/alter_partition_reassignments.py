"""AlterPartitionReassignments (45): every partition is on the one broker, and stays there.

To ask for what is so already succeeds, as in Kafka.
"""

from __future__ import annotations

from millstream.broker.broker import NODE_ID
from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

API_KEY = 45
VERSIONS = (0, 0)
REQUEST = AlterPartitionReassignmentsRequest


async def handle(
    request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _outcome(topic.name, each, context)
                    async for each in context.pace.over(topic.partitions)
                ],
            )
            async for topic in context.pace.over(request.topics)
        ]
    )


def _outcome(
    topic: str, asked: ReassignablePartition, context: Context
) -> ReassignablePartitionResponse:
    code, message = _judged(topic, asked, context)
    return ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=code, error_message=message
    )


def _judged(topic: str, asked: ReassignablePartition, context: Context) -> tuple[int, str | None]:
    try:
        context.broker.topics.partition(topic, asked.partition_index)
    except MillstreamError as error:
        return code_of(error), str(error)
    if asked.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being moved"
    if list(asked.replicas) != [NODE_ID]:
        reason = f"there is one broker, {NODE_ID}, and one copy of each partition"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason
    return ErrorCode.NONE, None
