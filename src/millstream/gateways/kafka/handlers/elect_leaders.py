"""ElectLeaders (43): the one broker leads every partition already.

1 elections of a replica that may lag behind, of which there is none.
"""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

API_KEY = 43
VERSIONS = (0, 2)
REQUEST = ElectLeadersRequest


async def handle(request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    # Asked for all, Kafka tells only of those that it held an election for.
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    _elect(asked.topic, number, context)
                    async for number in context.pace.over(asked.partitions)
                ],
            )
            async for asked in context.pace.over(request.topic_partitions or ())
        ]
    )


def _elect(topic: str, number: int, context: Context) -> PartitionResult:
    code: int = ErrorCode.ELECTION_NOT_NEEDED
    message = "the one broker leads it"
    try:
        context.broker.topics.partition(topic, number)
    except MillstreamError as error:
        code, message = code_of(error), str(error)
    return PartitionResult(partition_id=number, error_code=code, error_message=message)
