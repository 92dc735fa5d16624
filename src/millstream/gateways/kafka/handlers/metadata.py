"""Metadata (3): the broker, the topics and their partitions.

0 no topics mean all of them; 1 null means all, none means none; 4 the client says whether a topic
may be created; 8 authorized operations; 10 topic ids; 12 topics by id.
Of every partition the one broker is the leader, so the address that a client used is all it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from millstream.broker.broker import NODE_ID
from millstream.broker.topics import Topic
from millstream.errors import MillstreamError, UnknownTopic
from millstream.gateways.kafka.admission import gather_slices
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.gateways.kafka.operations import cluster_operations, topic_operations
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.protocol.notation import NO_UUID
from millstream.settings.names import check_topic_name
from millstream.storage.batch_walk import LEADER_EPOCH

API_KEY = 3
VERSIONS = (0, 13)
REQUEST = MetadataRequest

_CREATES_BY_CHOICE = 4
_BY_ID = 12


async def handle(request: MetadataRequest, context: Context) -> MetadataResponse:
    host, port = context.advertised
    operations = topic_operations(asked=request.include_topic_authorized_operations)
    asked = request.topics
    if asked is None or (not asked and context.version == 0):
        everything = tuple(context.broker.topics.all())
        topics = [_described(t, operations) async for t in context.pace.over(everything)]
    else:
        may_create = context.broker.settings.topics.auto_create and (
            request.allow_auto_topic_creation or context.version < _CREATES_BY_CHOICE
        )
        if context.version >= _BY_ID:
            asked = [_by_id_alone(each) async for each in context.pace.over(asked)]
        topics = await _look_up(asked, context, operations, may_create=may_create)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=NODE_ID, host=host, port=port)],
        cluster_id=context.broker.topics.cluster_id,
        controller_id=NODE_ID,
        topics=topics,
        cluster_authorized_operations=cluster_operations(
            asked=request.include_cluster_authorized_operations
        ),
    )


def _by_id_alone(asked: MetadataRequestTopic) -> MetadataRequestTopic:
    """An id counts more than a name: beside it the Java client leaves the name empty, not null."""
    return asked if asked.topic_id == NO_UUID else MetadataRequestTopic(topic_id=asked.topic_id)


async def _look_up(
    asked: Iterable[MetadataRequestTopic], context: Context, operations: int, *, may_create: bool
) -> list[MetadataResponseTopic]:
    """One answer for each topic, in order; those that are missing are created all at once."""
    topics = context.broker.topics
    answers: dict[str | bytes, MetadataResponseTopic] = {}
    missing: list[str] = []
    async for each in context.pace.over(asked):
        key = each.topic_id if each.name is None else each.name
        try:
            topic = topics.by_id(each.topic_id) if each.name is None else topics.get(each.name)
            answers[key] = _described(topic, operations)
        except MillstreamError as error:
            answers[key] = _refused(each, error)
            if each.name is not None:
                missing.append(each.name)
    found_or_not = zip(missing, await _found(missing, context, may_create), strict=True)
    async for name, found in context.pace.over(found_or_not):
        if isinstance(found, Topic):
            answers[name] = _described(found, operations)
        else:
            answers[name] = _refused(MetadataRequestTopic(name=name), found)
    return list(answers.values())


async def _found(
    names: list[str], context: Context, may_create: bool
) -> list[Topic | MillstreamError]:
    async def find(name: str) -> Topic | MillstreamError:
        try:
            check_topic_name(name)
            if not may_create:
                return UnknownTopic(name)
            return await context.broker.topics.ensure(name)
        except MillstreamError as error:
            return error

    if may_create and names:
        return await gather_slices(find, names)
    return [await find(name) async for name in context.pace.over(names)]


def _described(topic: Topic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(number) for number in range(len(topic.partitions))],
        topic_authorized_operations=operations,
    )


@cache  # All topics have the same ones, and there may be many topics in an answer.
def _partition(number: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=number,
        leader_id=NODE_ID,
        leader_epoch=LEADER_EPOCH,
        replica_nodes=_ALONE,
        isr_nodes=_ALONE,
    )


_ALONE = (NODE_ID,)


def _refused(asked: MetadataRequestTopic, error: MillstreamError) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code_of(error), name=asked.name, topic_id=asked.topic_id
    )
