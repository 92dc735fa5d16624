"""OffsetFetch (9): how far groups have come.

2 null asks for all topics, and there is an error for the whole; 5 leader epochs; 6 flexible; 7 only
stable offsets, if so asked: those that a transaction under way may change have an error, and are to
be asked for again; 8 many groups at once; 9 members of consumer groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.errors import MillstreamError, UnstableOffset
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.groups.group_records import Committed
from millstream.groups.offsets import TopicPartition
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

API_KEY = 9
VERSIONS = (1, 9)
REQUEST = OffsetFetchRequest

_MANY_GROUPS = 8

_Wanted = Sequence[OffsetFetchRequestTopics | OffsetFetchRequestTopic] | None
_Entry = tuple[int, Committed, int]
"""A partition, what is kept for it, and the code of what went wrong with it."""
_NONE = Committed(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)


async def handle(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    if context.version >= _MANY_GROUPS:
        is_stable = request.require_stable
        groups = [
            await _group(each, context, is_stable=is_stable)
            async for each in context.pace.over(request.groups)
        ]
        return OffsetFetchResponse(groups=groups)
    offsets, code = await _fetch(
        request.group_id, request.topics, context, is_stable=request.require_stable
    )
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                        error_code=partition_code,
                    )
                    async for partition, committed, partition_code in context.pace.over(partitions)
                ],
            )
            async for name, partitions in context.pace.over(offsets.items())
        ],
    )


async def _group(
    request: OffsetFetchRequestGroup, context: Context, *, is_stable: bool
) -> OffsetFetchResponseGroup:
    offsets, code = await _fetch(
        request.group_id,
        request.topics,
        context,
        is_stable=is_stable,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
    )
    return OffsetFetchResponseGroup(
        group_id=request.group_id,
        error_code=code,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=partition,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                        error_code=partition_code,
                    )
                    async for partition, committed, partition_code in context.pace.over(partitions)
                ],
            )
            async for name, partitions in context.pace.over(offsets.items())
        ],
    )


async def _fetch(
    group_id: str,
    topics: _Wanted,
    context: Context,
    *,
    is_stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> tuple[Mapping[str, list[_Entry]], int]:
    """By topic, what is kept for each partition asked for; and what went wrong with all."""
    wanted = None
    if topics is not None:
        wanted = [
            (topic.name, number)
            async for topic in context.pace.over(topics)
            async for number in context.pace.over(topic.partition_indexes)
        ]
    found: Mapping[TopicPartition, Committed | UnstableOffset] = {}
    code: int = ErrorCode.NONE
    groups = context.broker.groups
    fetch = groups.fetch_stable_offsets if is_stable else groups.fetch_offsets
    try:
        found = await fetch(group_id, wanted, member_id=member_id, member_epoch=member_epoch)
    except MillstreamError as error:
        code = code_of(error)
    by_topic: dict[str, list[_Entry]] = {}
    async for topic, partition in context.pace.over(found if wanted is None else wanted):
        kept = found.get((topic, partition), _NONE)
        if isinstance(kept, UnstableOffset):
            entry = (partition, _NONE, code_of(kept))
        else:
            entry = (partition, kept, code)
        by_topic.setdefault(topic, []).append(entry)
    return by_topic, code
