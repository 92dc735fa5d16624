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
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _partition(topic.name, number, context) for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(topic: str, number: int, context: Context) -> PartitionResponse:
    if not is_topic_name(topic):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        message = "no topic can have this name"
        return PartitionResponse(partition_index=number, error_code=code, error_message=message)
    try:
        producers = context.broker.topics.partition(topic, number).log.producers.producers()
    except MillstreamError as error:
        return PartitionResponse(
            partition_index=number, error_code=code_of(error), error_message=str(error)
        )
    return PartitionResponse(
        partition_index=number, active_producers=[_state(each) for each in producers]
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
