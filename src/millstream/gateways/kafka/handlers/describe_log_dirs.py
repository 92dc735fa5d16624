"""DescribeLogDirs (35): the data directory, and what each partition takes up in it.

4 room on the volume, which is left unknown (-1).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from millstream.broker.partition import Partition
from millstream.broker.topics import Topic
from millstream.errors import UnknownTopic
from millstream.gateways.kafka.context import Context
from millstream.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

API_KEY = 35
VERSIONS = (1, 4)
REQUEST = DescribeLogDirsRequest


async def handle(request: DescribeLogDirsRequest, context: Context) -> DescribeLogDirsResponse:
    topics = [
        DescribeLogDirsTopic(
            name=topic.name,
            partitions=[_sized(each) async for each in context.pace.over(partitions)],
        )
        async for topic, partitions in _asked(request, context)
    ]
    path = context.broker.topics.data_path
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=path, topics=topics)])


async def _asked(
    request: DescribeLogDirsRequest, context: Context
) -> AsyncIterator[tuple[Topic, Iterable[Partition]]]:
    """What there is of what was asked for; of the rest, nothing is said."""
    if request.topics is None:
        async for topic in context.pace.over(tuple(context.broker.topics.all())):
            yield topic, topic.partitions
        return
    # Each partition once: to ask again and again for a large topic would have a huge answer.
    wanted: dict[str, set[int]] = {}
    async for asked in context.pace.over(request.topics):
        wanted.setdefault(asked.topic, set()).update(asked.partitions)
    async for name, numbers in context.pace.over(wanted.items()):
        try:
            topic = context.broker.topics.get(name)
        except UnknownTopic:
            continue
        yield topic, [each for each in topic.partitions if each.number in numbers]


def _sized(partition: Partition) -> DescribeLogDirsPartition:
    size = 0
    if partition.failure is None:
        size = sum(segment.size for segment in partition.log.segments())
    return DescribeLogDirsPartition(partition_index=partition.number, partition_size=size)
