"""DescribeTopicPartitions (75): topics and their partitions, page by page, in the order of names.

A page ends after a number of partitions; its cursor names the first one that the next page is to
begin with (KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.broker.broker import NODE_ID
from millstream.broker.topics import Topic
from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.gateways.kafka.operations import topic_operations
from millstream.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from millstream.settings.names import check_topic_name
from millstream.storage.batch_walk import LEADER_EPOCH

API_KEY = 75
VERSIONS = (0, 0)
REQUEST = DescribeTopicPartitionsRequest

_MAX_PARTITIONS = 2000
_ALONE = (NODE_ID,)


async def handle(
    request: DescribeTopicPartitionsRequest, context: Context
) -> DescribeTopicPartitionsResponse:
    room = max(min(request.response_partition_limit, _MAX_PARTITIONS), 1)
    cursor = request.cursor
    answers: list[DescribeTopicPartitionsResponseTopic] = []
    async for name in context.pace.over(_names(request, context)):
        try:
            check_topic_name(name)
            topic = context.broker.topics.get(name)
        except MillstreamError as error:
            answers.append(
                DescribeTopicPartitionsResponseTopic(error_code=code_of(error), name=name)
            )
            continue
        if not room:
            return _page(answers, Cursor(topic_name=name, partition_index=0))
        first = max(cursor.partition_index, 0) if cursor and cursor.topic_name == name else 0
        end = min(first + room, len(topic.partitions))
        answers.append(_described(topic, range(first, end)))
        room -= max(end - first, 0)
        if end < len(topic.partitions):
            return _page(answers, Cursor(topic_name=name, partition_index=end))
    return _page(answers, None)


def _names(request: DescribeTopicPartitionsRequest, context: Context) -> list[str]:
    if request.topics:
        names: Iterable[str] = {topic.name for topic in request.topics}
    else:
        names = (topic.name for topic in context.broker.topics.all())
    first = request.cursor.topic_name if request.cursor else ""
    return sorted(name for name in names if name >= first)


def _page(
    answers: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=answers, next_cursor=cursor)


def _described(topic: Topic, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=topic_operations(asked=True),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=NODE_ID,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=_ALONE,
                isr_nodes=_ALONE,
                # Null is allowed by the schema, but the Java client cannot read it.
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for number in numbers
        ],
    )
