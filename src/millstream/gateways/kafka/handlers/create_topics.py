"""CreateTopics (19): make topics, each of them whole or not at all.

4 partitions and replication factor may be left to the broker (-1); 5 the settings come back; 7 the
topic id comes back.
"""

from __future__ import annotations

from collections import Counter

from millstream.broker.broker import NODE_ID
from millstream.errors import InvalidSetting, MillstreamError
from millstream.gateways.kafka.admission import gather_slices
from millstream.gateways.kafka.config_entries import topic_entries
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.gateways.kafka.replication import Refusal, refuse_assignments
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.notation import NO_UUID
from millstream.settings.log import LogSettings

API_KEY = 19
VERSIONS = (2, 7)
REQUEST = CreateTopicsRequest

_BY_DEFAULT = -1


async def handle(request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    asked = list({topic.name: topic for topic in request.topics}.values())

    async def outcome(topic: CreatableTopic) -> CreatableTopicResult:
        if times[topic.name] > 1:
            message = "the request names this topic twice"
            return _refused(topic, ErrorCode.INVALID_REQUEST, message)
        return await _create(topic, context, validate_only=request.validate_only)

    return CreateTopicsResponse(topics=await gather_slices(outcome, asked))


async def _create(
    asked: CreatableTopic, context: Context, *, validate_only: bool
) -> CreatableTopicResult:
    refusal = _refuse(asked)
    if refusal is not None:
        return _refused(asked, *refusal)
    topics = context.broker.topics
    partitions = len(asked.assignments) or asked.num_partitions
    try:
        overrides = _overrides(asked)
        if validate_only:
            topics.check_create(asked.name, partitions=partitions, overrides=overrides)
            if partitions == _BY_DEFAULT:
                partitions = topics.settings.num_partitions
            topic_id = NO_UUID
        else:
            topic = await topics.create(asked.name, partitions=partitions, overrides=overrides)
            partitions, topic_id = len(topic.partitions), topic.topic_id
    except MillstreamError as error:
        return _refused(asked, code_of(error), str(error))
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        num_partitions=partitions,
        replication_factor=1,
        configs=_configs(overrides, topics.defaults),
    )


def _refuse(asked: CreatableTopic) -> Refusal | None:
    """What is wrong with the copies that a client wants of its partitions, if anything is."""
    if not asked.assignments:
        if asked.replication_factor in {_BY_DEFAULT, 1}:
            return None
        return (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {asked.replication_factor}: there is only broker {NODE_ID}",
        )
    if asked.num_partitions != _BY_DEFAULT or asked.replication_factor != _BY_DEFAULT:
        return (
            ErrorCode.INVALID_REQUEST,
            "with assignments, leave out the number of partitions and the replication factor",
        )
    numbers = sorted(each.partition_index for each in asked.assignments)
    if numbers != list(range(len(numbers))):
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partitions {numbers[:10]}: expected each from 0 on, once",
        )
    return refuse_assignments(each.broker_ids for each in asked.assignments)


def _overrides(asked: CreatableTopic) -> dict[str, str]:
    overrides = {}
    for config in asked.configs:
        if config.value is None:
            raise InvalidSetting(name=config.name, value=None, expected="a value")
        overrides[config.name] = config.value
    return overrides


def _configs(overrides: dict[str, str], defaults: LogSettings) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.setting.name,
            value=entry.layers[0].value,
            config_source=entry.layers[0].source,
        )
        for entry in topic_entries(overrides, defaults)
    ]


def _refused(asked: CreatableTopic, code: int, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=asked.name, error_code=code, error_message=message, configs=())
