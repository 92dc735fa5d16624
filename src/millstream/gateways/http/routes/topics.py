"""Topics: list, create, describe, configure, empty, delete; and their offsets.

`GET /topics/{topic}` and `POST /topics/{topic}` are in `fastqueue`, whose routes they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter
from starlette.requests import Request

from millstream.broker.broker import Broker
from millstream.broker.partition import Partition
from millstream.broker.topics import Topic
from millstream.errors import InvalidRequest
from millstream.gateways.http.bodies import LimitedRoute
from millstream.gateways.http.context import broker_of
from millstream.gateways.http.documentation import problems
from millstream.gateways.http.models import (
    Done,
    NewTopic,
    OffsetRange,
    PartitionShape,
    Purged,
    SegmentShape,
    TopicChange,
    TopicDescription,
    TopicList,
    TopicOffsets,
    TopicShape,
    TopicSummary,
)
from millstream.settings.names import is_internal_topic
from millstream.settings.overrides import setting_texts, text_of
from millstream.storage.segment import Segment

router = APIRouter(tags=["topics"], route_class=LimitedRoute)

_AS_BROKER_SETS = -1
_STATES = {
    "active": "Active",
    "full": "Full",
    "archived": "Archived",
    "deleted": "Deleted",
}


@router.get("/topics", summary="List topics", responses=problems())
async def list_topics(request: Request, *, internal: bool = False) -> TopicList:
    """The broker's own are among them only if `internal` is true."""
    topics = broker_of(request).topics.all()
    shown = [each for each in topics if internal or not each.is_internal]
    return TopicList(topics=[_summary(each) for each in sorted(shown, key=lambda t: t.name)])


@router.post(
    "/topics", summary="Create a topic", status_code=201, responses=problems(400, 409, 413, 507)
)
async def create_topic(request: Request, wanted: NewTopic) -> TopicDescription:
    return await _create(broker_of(request), wanted.name, wanted.partitions, wanted.settings)


@router.put(
    "/topics/{topic}",
    summary="Create a topic",
    status_code=201,
    responses=problems(400, 409, 413, 507),
)
async def create_named_topic(request: Request, topic: str, wanted: TopicShape) -> TopicDescription:
    return await _create(broker_of(request), topic, wanted.partitions, wanted.settings)


@router.patch(
    "/topics/{topic}",
    summary="Change a topic's settings, or give it more partitions",
    responses=problems(400, 404, 413, 507),
)
async def change_topic(request: Request, topic: str, change: TopicChange) -> TopicDescription:
    topics = broker_of(request).topics
    found = topics.get(topic)
    if change.partitions is None and not change.settings:
        raise InvalidRequest("nothing is to be changed: give settings or partitions")
    settings = {
        name: None if value is None else text_of(value) for name, value in change.settings.items()
    }
    # Both are looked at before either is done.
    topics.check_alter(topic, settings)
    if change.partitions is not None:
        topics.check_add_partitions(topic, change.partitions)
    if settings:
        await topics.alter(topic, settings)
    if change.partitions is not None:
        await topics.add_partitions(topic, change.partitions)
    return described(found)


@router.delete("/topics/{topic}", summary="Delete a topic", responses=problems(404, 507))
async def delete_topic(request: Request, topic: str) -> Done:
    topics = broker_of(request).topics
    topics.get(topic)
    if not topics.settings.delete_enable:
        raise InvalidRequest("topics cannot be deleted: delete.topic.enable is false")
    await topics.delete(topic)
    return Done()


@router.delete(
    "/topics/{topic}/messages",
    summary="Delete all messages of a topic",
    responses=problems(400, 404, 507),
)
async def delete_messages(request: Request, topic: str) -> Purged:
    """Those that are there now. The topic stays, and its offsets go on from where they are."""
    topics = broker_of(request).topics
    found = topics.get(topic)
    if is_internal_topic(topic):
        raise InvalidRequest(f"topic {topic!r} is the broker's own: its messages stay")
    if "delete" not in found.settings.cleanup_policy:
        raise InvalidRequest(
            f"topic {topic!r} has cleanup.policy=compact: compaction alone decides what goes; "
            "set it to compact,delete first"
        )
    deleted = 0
    for partition in found.partitions:
        before = partition.log.start_offset
        # All that can go: what a transaction under way has written must stay for now.
        start = await topics.delete_records(partition, partition.log.last_stable_offset)
        deleted += start - before
    return Purged(topic=topic, deleted=deleted)


@router.get(
    "/topics/{topic}/offsets", summary="Where a topic begins and ends", responses=problems(404)
)
async def offsets(request: Request, topic: str) -> TopicOffsets:
    found = broker_of(request).topics.get(topic)
    ranges = [
        OffsetRange(
            partition=each.number,
            start_offset=each.log.start_offset,
            end_offset=each.log.end_offset,
            stable_offset=each.log.last_stable_offset,
        )
        for each in found.partitions
    ]
    return TopicOffsets(
        topic=topic,
        start_offset=ranges[0].start_offset,
        end_offset=ranges[0].end_offset,
        partitions=ranges,
    )


def described(topic: Topic) -> TopicDescription:
    """All there is to know of a topic."""
    return TopicDescription(
        **_summary(topic).model_dump(),
        topic_id=topic.topic_id.hex(),
        settings=setting_texts(topic.settings),
        own_settings=dict(topic.overrides),
        details=[_partition_shape(each) for each in topic.partitions],
    )


async def _create(
    broker: Broker,
    name: str,
    partitions: int | None,
    settings: Mapping[str, str | int | float | bool],
) -> TopicDescription:
    topic = await broker.topics.create(
        name,
        partitions=_AS_BROKER_SETS if partitions is None else partitions,
        overrides={setting: text_of(value) for setting, value in settings.items()},
    )
    return described(topic)


def _summary(topic: Topic) -> TopicSummary:
    logs = [each.log for each in topic.partitions if each.failure is None]
    return TopicSummary(
        name=topic.name,
        partitions=len(topic.partitions),
        messages=sum(log.end_offset - log.start_offset for log in logs),
        size_bytes=sum(segment.size for log in logs for segment in log.segments()),
        is_internal=topic.is_internal,
    )


def _partition_shape(partition: Partition) -> PartitionShape:
    if partition.failure is not None:
        return PartitionShape(
            partition=partition.number,
            start_offset=None,
            end_offset=None,
            stable_offset=None,
            size_bytes=0,
            segments=[],
            failure=str(partition.failure),
        )
    log = partition.log
    segments = [_segment_shape(each) for each in log.segments()]
    return PartitionShape(
        partition=partition.number,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        stable_offset=log.last_stable_offset,
        size_bytes=sum(each.size_bytes for each in segments),
        segments=segments,
        failure=None if log.failure is None else str(log.failure),
    )


def _segment_shape(segment: Segment) -> SegmentShape:
    return SegmentShape.model_validate(
        {
            "base_offset": segment.base_offset,
            "next_offset": segment.next_offset,
            "size_bytes": segment.size,
            "state": _STATES[segment.state.value],
        }
    )
