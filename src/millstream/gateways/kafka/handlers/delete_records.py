"""DeleteRecords (21): drop the records before an offset. No version changed what happens."""

from __future__ import annotations

from functools import partial

from millstream.errors import MillstreamError
from millstream.gateways.kafka.admission import gather_slices
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

API_KEY = 21
VERSIONS = (0, 2)
REQUEST = DeleteRecordsRequest

_ALL = -1
_UNKNOWN = -1


async def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=await gather_slices(
                    partial(_delete, context, topic.name), topic.partitions
                ),
            )
            async for topic in context.pace.over(request.topics)
        ]
    )


async def _delete(
    context: Context, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    number = asked.partition_index
    topics = context.broker.topics
    try:
        partition = topics.partition(topic, number)
        policy = partition.topic.settings.cleanup_policy
        if partition.topic.is_internal or "delete" not in policy:
            # Compaction alone decides what goes.
            return _refused(number, ErrorCode.POLICY_VIOLATION)
        # All that can go: what a transaction under way has written must stay for now.
        before = partition.log.last_stable_offset if asked.offset == _ALL else asked.offset
        start = await topics.delete_records(partition, before)
    except MillstreamError as error:
        return _refused(number, code_of(error))
    return DeleteRecordsPartitionResult(partition_index=number, low_watermark=start)


def _refused(number: int, code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=number, low_watermark=_UNKNOWN, error_code=code
    )
