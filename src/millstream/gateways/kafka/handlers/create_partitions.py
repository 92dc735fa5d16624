"""CreatePartitions (37): give topics more partitions. No version changed what happens."""

from __future__ import annotations

from collections import Counter

from millstream.errors import MillstreamError
from millstream.gateways.kafka.admission import gather_slices
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.gateways.kafka.replication import Refusal, refuse_assignments
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

API_KEY = 37
VERSIONS = (0, 3)
REQUEST = CreatePartitionsRequest


async def handle(request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)

    async def outcome(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        is_repeated = times[topic.name] > 1
        return await _add(
            topic, context, validate_only=request.validate_only, is_repeated=is_repeated
        )

    distinct = list({topic.name: topic for topic in request.topics}.values())
    return CreatePartitionsResponse(results=await gather_slices(outcome, distinct))


async def _add(
    asked: CreatePartitionsTopic, context: Context, *, validate_only: bool, is_repeated: bool
) -> CreatePartitionsTopicResult:
    if is_repeated:
        return _refused(asked, ErrorCode.INVALID_REQUEST, "the request names this topic twice")
    topics = context.broker.topics
    try:
        topics.check_add_partitions(asked.name, asked.count)
        added = asked.count - len(topics.get(asked.name).partitions)
        refusal = _refuse(asked, added)
        if refusal is not None:
            return _refused(asked, *refusal)
        if not validate_only:
            await topics.add_partitions(asked.name, asked.count)
    except MillstreamError as error:
        return _refused(asked, code_of(error), str(error))
    return CreatePartitionsTopicResult(name=asked.name)


def _refuse(asked: CreatePartitionsTopic, added: int) -> Refusal | None:
    if asked.assignments is None:
        return None
    if len(asked.assignments) != added:
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(asked.assignments)} assignments for {added} new partitions",
        )
    return refuse_assignments(each.broker_ids for each in asked.assignments)


def _refused(asked: CreatePartitionsTopic, code: int, message: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=asked.name, error_code=code, error_message=message)
