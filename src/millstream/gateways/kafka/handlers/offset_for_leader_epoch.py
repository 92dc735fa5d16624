"""OffsetForLeaderEpoch (23): where the records of a leader's epoch end.

3 the replica's id; 4 flexible. There is one leader with one epoch, so that it ends where the log
does, and consumers that use this to find lost records find none.
"""

from __future__ import annotations

from millstream.errors import MillstreamError, UnknownLeaderEpoch
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from millstream.storage.batch_walk import LEADER_EPOCH

API_KEY = 23
VERSIONS = (2, 4)
REQUEST = OffsetForLeaderEpochRequest


async def handle(
    request: OffsetForLeaderEpochRequest, context: Context
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _answer(topic.topic, each, context)
                    async for each in context.pace.over(topic.partitions)
                ],
            )
            async for topic in context.pace.over(request.topics)
        ]
    )


def _answer(topic: str, asked: OffsetForLeaderPartition, context: Context) -> EpochEndOffset:
    try:
        log = context.broker.topics.partition(topic, asked.partition).log
        if asked.current_leader_epoch > LEADER_EPOCH:
            raise UnknownLeaderEpoch(asked.current_leader_epoch)
    except MillstreamError as error:
        return EpochEndOffset(partition=asked.partition, error_code=code_of(error))
    if asked.leader_epoch != LEADER_EPOCH:
        return EpochEndOffset(partition=asked.partition)
    return EpochEndOffset(
        partition=asked.partition, leader_epoch=LEADER_EPOCH, end_offset=log.end_offset
    )
