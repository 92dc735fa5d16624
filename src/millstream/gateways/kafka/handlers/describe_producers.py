"""DescribeProducers (61): the producers that partitions remember, and what they have open there."""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from millstream.settings.names import is_topic_name
from millstream.storage.producer_state import Producer

API_KEY = 61
VERSIONS = (0, 0)
REQUEST = DescribeProducersRequest

_NONE = -1


async def handle(request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    # Each partition once: its producers may be many.
    asked: dict[str, dict[int, None]] = {}
    async for topic in context.pace.over(request.topics):
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name,
                partitions=[
                    await _partition(name, number, context)
                    async for number in context.pace.over(numbers)
                ],
            )
            async for name, numbers in context.pace.over(asked.items())
        ]
    )


async def _partition(topic: str, number: int, context: Context) -> PartitionResponse:
    if not is_topic_name(topic):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        message = "no topic can have this name"
        return PartitionResponse(partition_index=number, error_code=code, error_message=message)
    try:
        log = context.broker.topics.partition(topic, number).log
    except MillstreamError as error:
        return PartitionResponse(
            partition_index=number, error_code=code_of(error), error_message=str(error)
        )
    # More may come while these are described.
    producers = tuple(log.producers.producers())
    return PartitionResponse(
        partition_index=number,
        active_producers=[_state(each) async for each in context.pace.over(producers)],
    )


def _state(producer: Producer) -> ProducerState:
    open_since = producer.transaction_offset
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=_NONE if open_since is None else open_since,
    )
