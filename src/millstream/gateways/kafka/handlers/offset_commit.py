"""OffsetCommit (8): a group keeps how far it has come.

5 no retention time of its own any more; 6 leader epochs; 7 static members; 8 flexible; 9 members of
consumer groups, with new errors for groups and epochs that are not there.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.errors import MillstreamError, StaleMember, UnknownGroup, UnknownTopic
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

API_KEY = 8
VERSIONS = (2, 9)
REQUEST = OffsetCommitRequest

_KNOWS_CONSUMER_GROUPS = 9


async def handle(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    codes = {
        (topic.name, partition.partition_index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
        async for topic in context.pace.over(request.topics)
        async for partition in context.pace.over(topic.partitions)
    }
    asked = [offset async for offset in context.pace.over(_offsets(request))]
    # Last, with no wait after it: a topic may have been deleted meanwhile.
    offsets = [offset for offset in asked if _exists(offset, context)]
    committer = Committer(
        request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    )
    try:
        results = await context.broker.groups.commit(
            request.group_id, committer, offsets, retention_ms=request.retention_time_ms
        )
    except MillstreamError as error:
        codes = dict.fromkeys(codes, _code_of(error, context.version))
    else:
        for offset, result in zip(offsets, results, strict=True):
            codes[offset.topic, offset.partition] = code_of(result)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[topic.name, partition.partition_index],
                    )
                    async for partition in context.pace.over(topic.partitions)
                ],
            )
            async for topic in context.pace.over(request.topics)
        ]
    )


def _offsets(request: OffsetCommitRequest) -> Iterator[OffsetToCommit]:
    return (
        OffsetToCommit(
            topic=topic.name,
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
        )
        for topic in request.topics
        for partition in topic.partitions
    )


def _exists(offset: OffsetToCommit, context: Context) -> bool:
    try:
        context.broker.topics.partition(offset.topic, offset.partition)
    except UnknownTopic:
        return False
    return True


def _code_of(error: MillstreamError, version: int) -> int:
    if version < _KNOWS_CONSUMER_GROUPS and isinstance(error, UnknownGroup | StaleMember):
        return ErrorCode.ILLEGAL_GENERATION
    return code_of(error)
