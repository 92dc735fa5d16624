"""DescribeLogDirs (35): the data directory, and what each partition takes up in it.

4 room on the volume, which is left unknown (-1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
        DescribeLogDirsTopic(name=topic.name, partitions=[_sized(each) for each in partitions])
        for topic, partitions in _asked(request, context)
    ]
    path = context.broker.topics.data_path
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=path, topics=topics)])


def _asked(
    request: DescribeLogDirsRequest, context: Context
) -> Iterator[tuple[Topic, Iterable[Partition]]]:
    """What there is of what was asked for; of the rest, nothing is said."""
    if request.topics is None:
        yield from ((topic, topic.partitions) for topic in context.broker.topics.all())
        return
    for asked in request.topics:
        try:
            topic = context.broker.topics.get(asked.topic)
        except UnknownTopic:
            continue
        numbers = set(asked.partitions)
        yield topic, [each for each in topic.partitions if each.number in numbers]


def _sized(partition: Partition) -> DescribeLogDirsPartition:
    size = 0
    if partition.failure is None:
        size = sum(segment.size for segment in partition.log.segments())
    return DescribeLogDirsPartition(partition_index=partition.number, partition_size=size)
