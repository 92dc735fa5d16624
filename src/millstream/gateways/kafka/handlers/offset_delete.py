"""OffsetDelete (47): forget how far a group has come in some partitions."""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

API_KEY = 47
VERSIONS = (0, 0)
REQUEST = OffsetDeleteRequest


async def handle(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    wanted = [
        (topic.name, partition.partition_index)
        async for topic in context.pace.over(request.topics)
        async for partition in context.pace.over(topic.partitions)
    ]
    try:
        results = await context.broker.groups.delete_offsets(request.group_id, wanted)
    except MillstreamError as error:
        return OffsetDeleteResponse(error_code=code_of(error))
    codes = {key: code_of(error) for key, error in zip(wanted, results, strict=True)}
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[topic.name, partition.partition_index],
                    )
                    async for partition in context.pace.over(topic.partitions)
                ],
            )
            async for topic in context.pace.over(request.topics)
        ]
    )
