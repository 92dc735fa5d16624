"""ListOffsets (2): the first offset, the next one, or the one of a time.

2 isolation level; 4 leader epochs; 6 flexible; 7 the largest timestamp (-3); 8 the first offset on
this disk (-4); 9 the last offset moved to other storage (-5), of which there is none; 10 timeout.
"""

from __future__ import annotations

from millstream.broker.partition import Partition
from millstream.errors import InvalidRequest, MillstreamError, UnknownLeaderEpoch
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millstream.storage.batch_walk import LEADER_EPOCH

API_KEY = 2
VERSIONS = (1, 10)
REQUEST = ListOffsetsRequest

_LATEST = -1
_EARLIEST = -2
_LARGEST_TIME = -3
_EARLIEST_LOCAL = -4
_LATEST_MOVED = -5
_UNKNOWN = -1


async def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(topic.name, each, context, is_committed=request.isolation_level == 1)
                    async for each in context.pace.over(topic.partitions)
                ],
            )
            async for topic in context.pace.over(request.topics)
        ]
    )


def _answer(
    topic: str, asked: ListOffsetsPartition, context: Context, *, is_committed: bool
) -> ListOffsetsPartitionResponse:
    try:
        partition = context.broker.topics.partition(topic, asked.partition_index)
        if asked.current_leader_epoch > LEADER_EPOCH:
            raise UnknownLeaderEpoch(asked.current_leader_epoch)
        offset, timestamp_ms = _look_up(partition, asked.timestamp, is_committed=is_committed)
    except MillstreamError as error:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=code_of(error)
        )
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=_UNKNOWN if offset == _UNKNOWN else LEADER_EPOCH,
    )


def _look_up(partition: Partition, timestamp: int, *, is_committed: bool) -> tuple[int, int]:
    """An offset and the timestamp there, -1 where there is none.

    For who reads committed records only, the log ends at its last stable offset.
    """
    log = partition.log
    end_offset = log.last_stable_offset if is_committed else log.end_offset
    if timestamp == _LATEST:
        return end_offset, _UNKNOWN
    if timestamp in {_EARLIEST, _EARLIEST_LOCAL}:
        return log.start_offset, _UNKNOWN
    if timestamp == _LATEST_MOVED:
        return _UNKNOWN, _UNKNOWN
    if timestamp < _LATEST_MOVED:
        raise InvalidRequest(f"{timestamp} stands for no place in a log")
    found = (
        log.offset_of_max_timestamp()
        if timestamp == _LARGEST_TIME
        else log.offset_for_time(timestamp)
    )
    is_there = found is not None and found.offset < end_offset
    return (found.offset, found.timestamp_ms) if found and is_there else (_UNKNOWN, _UNKNOWN)
