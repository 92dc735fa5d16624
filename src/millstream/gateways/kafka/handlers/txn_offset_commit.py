"""TxnOffsetCommit (28): a group's offsets, kept if the transaction commits.

2 leader epochs; 3 members of groups are looked at, as in OffsetCommit (KIP-447), and flexible;
4 a code for what an abort mends; 5 the offsets become part of the transaction by this (KIP-890).

The transaction is asked before the group. Fenced producers are told by INVALID_PRODUCER_EPOCH in
all versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from millstream.broker.transaction_registry import Way
from millstream.errors import MillstreamError, UnknownTopic
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.gateways.kafka.transaction_codes import write_code
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from millstream.transactions.transaction import TopicPartition

API_KEY = 28
VERSIONS = (0, 5)
REQUEST = TxnOffsetCommitRequest

_ADDS = 5


async def handle(request: TxnOffsetCommitRequest, context: Context) -> TxnOffsetCommitResponse:
    codes: dict[TopicPartition, int] = {
        (topic.name, partition.partition_index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async for topic in context.pace.over(request.topics)
        async for partition in context.pace.over(topic.partitions)
    }
    asked = [offset async for offset in context.pace.over(_offsets(request))]
    # Last, with no wait after it: a topic may have been deleted meanwhile.
    offsets = [offset for offset in asked if _exists(offset, context)]
    if offsets:
        codes |= await _commit(request, offsets, context)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[topic.name, partition.partition_index],
                    )
                    async for partition in context.pace.over(topic.partitions)
                ],
            )
            async for topic in context.pace.over(request.topics)
        ]
    )


async def _commit(
    request: TxnOffsetCommitRequest, offsets: Sequence[OffsetToCommit], context: Context
) -> Mapping[TopicPartition, int]:
    """What became of each offset."""
    places = [(offset.topic, offset.partition) for offset in offsets]
    if not request.group_id:
        return dict.fromkeys(places, ErrorCode.INVALID_GROUP_ID)
    if not request.transactional_id:
        return dict.fromkeys(places, ErrorCode.INVALID_REQUEST)
    context.broker.transactions.hear(
        request.transactional_id,
        Way.OFFSETS,
        context.connection,
        producer=(request.producer_id, request.producer_epoch),
    )

    async def commit() -> Sequence[MillstreamError | None]:
        return await context.broker.groups.commit_in_transaction(
            request.group_id,
            Committer(request.member_id, request.group_instance_id, request.generation_id),
            offsets,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )

    try:
        results = await context.broker.transactions.commit_offsets(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commit,
            adds=context.version >= _ADDS,
        )
    except MillstreamError as error:
        return dict.fromkeys(places, write_code(error, API_KEY, context.version))
    return {place: code_of(result) for place, result in zip(places, results, strict=True)}


def _offsets(request: TxnOffsetCommitRequest) -> Iterator[OffsetToCommit]:
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
