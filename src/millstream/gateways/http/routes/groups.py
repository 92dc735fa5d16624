"""Consumer groups: list, describe with their lag, move, and delete them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request

from millstream.broker.broker import Broker
from millstream.broker.group_lag import partition_lags
from millstream.broker.partition import Partition
from millstream.errors import (
    InvalidRequest,
    MalformedMessage,
    OffsetOutOfRange,
    UnknownGroup,
)
from millstream.gateways.http import cursors, pages
from millstream.gateways.http.bodies import LimitedRoute
from millstream.gateways.http.context import broker_of
from millstream.gateways.http.documentation import problems
from millstream.gateways.http.models import (
    Done,
    GroupAssignment,
    GroupDescription,
    GroupList,
    GroupMember,
    GroupOffset,
    GroupOffsets,
    GroupSummary,
    NewOffset,
    NewOffsets,
    OffsetReset,
)
from millstream.groups.classic_description import GroupListing
from millstream.groups.consumer_embedded_protocol import named_assignment
from millstream.groups.consumer_partitions import listed
from millstream.groups.group_records import Committed
from millstream.groups.offsets import OffsetToCommit, TopicPartition

router = APIRouter(tags=["groups"], route_class=LimitedRoute)

_NO_EPOCH = -1

GroupName = Annotated[str, Path(min_length=1)]
"""Any text, with slashes, too: Kafka's clients choose it."""


@router.get("/groups", summary="List groups", responses=problems())
async def list_groups(request: Request) -> GroupList:
    listings = broker_of(request).groups.list()
    return GroupList(groups=[_summary(each) for each in sorted(listings)])


@router.get(
    "/groups/{group:path}/offsets", summary="How far a group has come", responses=problems(404)
)
async def group_offsets(request: Request, group: GroupName) -> GroupOffsets:
    broker = broker_of(request)
    _listing(broker, group)
    return GroupOffsets(group=group, offsets=await offsets_of(broker, group))


@router.get(
    "/groups/{group:path}", summary="Describe a group, with its lag", responses=problems(404)
)
async def describe_group(request: Request, group: GroupName) -> GroupDescription:
    return await described(broker_of(request), group)


async def described(broker: Broker, group: str) -> GroupDescription:
    """All there is to know of a group. Raises UnknownGroup."""
    listing = _listing(broker, group)
    members = await _members(broker, listing)
    assigned = {part.topic for member in members for part in member.assignments}
    offsets = await offsets_of(broker, group, assigned)
    return GroupDescription(
        **_summary(listing).model_dump(),
        members=members,
        offsets=offsets,
        lag=sum(each.lag or 0 for each in offsets),
    )


@router.post(
    "/groups/{group:path}/offsets",
    summary="Commit offsets of a group without members",
    responses=problems(400, 404, 409, 413, 416, 507),
)
async def commit(request: Request, group: GroupName, wanted: NewOffsets) -> GroupOffsets:
    """All of them or none. The group begins with its first commit."""
    broker = broker_of(request)
    for each in wanted.offsets:
        _check(_partition(broker, each.topic, each.partition), each.offset)
    await cursors.commit(broker, group, [_to_commit(each) for each in wanted.offsets])
    return GroupOffsets(group=group, offsets=await offsets_of(broker, group))


@router.post(
    "/groups/{group:path}/reset",
    summary="Let a group without members read a topic from elsewhere",
    responses=problems(400, 404, 409, 413, 416, 507),
)
async def reset(request: Request, group: GroupName, wanted: OffsetReset) -> GroupOffsets:
    broker = broker_of(request)
    topic = broker.topics.get(wanted.topic)
    numbers = wanted.partitions
    if numbers is None:
        numbers = [each.number for each in topic.partitions]
    targets = {
        number: _target(_partition(broker, wanted.topic, number), wanted) for number in numbers
    }
    await cursors.move(broker, group, wanted.topic, targets)
    return GroupOffsets(group=group, offsets=await offsets_of(broker, group))


@router.delete(
    "/groups/{group:path}",
    summary="Delete a group without members",
    responses=problems(404, 409, 507),
)
async def delete_group(request: Request, group: GroupName) -> Done:
    await broker_of(request).groups.delete(group)
    return Done()


def _target(partition: Partition, wanted: OffsetReset) -> int:
    """The offset that a reset leads to."""
    if (wanted.to == "offset") != (wanted.offset is not None):
        raise InvalidRequest("give an offset if, and only if, the reset is to an offset")
    if (wanted.to == "timestamp") != (wanted.timestamp is not None):
        raise InvalidRequest("give a timestamp if, and only if, the reset is to a timestamp")
    if wanted.timestamp is not None:
        return pages.offset_at(partition, wanted.timestamp)
    if wanted.offset is not None:
        _check(partition, wanted.offset)
        return wanted.offset
    return pages.start_of(partition, wanted.to)


def _check(partition: Partition, offset: int) -> None:
    """Raises OffsetOutOfRange for a place where nobody can read on."""
    log = partition.log
    if not log.start_offset <= offset <= log.end_offset:
        raise OffsetOutOfRange(
            offset=offset, start_offset=log.start_offset, end_offset=log.end_offset
        )


def _partition(broker: Broker, topic: str, number: int) -> Partition:
    return broker.topics.partition(topic, number)


def _to_commit(wanted: NewOffset) -> OffsetToCommit:
    return OffsetToCommit(wanted.topic, wanted.partition, wanted.offset, _NO_EPOCH, wanted.metadata)


def _listing(broker: Broker, group: str) -> GroupListing:
    for each in broker.groups.list():
        if each.group_id == group:
            return each
    raise UnknownGroup(group)


def _summary(listing: GroupListing) -> GroupSummary:
    return GroupSummary(
        group=listing.group_id,
        state=str(listing.state),
        type=listing.group_type,
        protocol_type=listing.protocol_type,
    )


async def _members(broker: Broker, listing: GroupListing) -> list[GroupMember]:
    if listing.group_type == "consumer":
        group = await broker.groups.consumer_describe(listing.group_id)
        names = {topic.topic_id: topic.name for topic in broker.topics.all()}
        return [
            GroupMember(
                member_id=each.member_id,
                instance_id=each.metadata.instance_id,
                client_id=each.metadata.client_id,
                client_host=each.metadata.client_host,
                assignments=[
                    GroupAssignment(topic=names[topic_id], partitions=numbers)
                    for topic_id, numbers in listed(each.current.assigned)
                    if topic_id in names
                ],
            )
            for each in group.members.values()
        ]
    return [
        GroupMember(
            member_id=each.member_id,
            instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            assignments=_classic_assignments(each.assignment),
        )
        for each in broker.groups.describe(listing.group_id).members
    ]


def _classic_assignments(data: bytes) -> list[GroupAssignment]:
    """None where a client keeps something of its own in there."""
    try:
        assigned = named_assignment(data)
    except MalformedMessage:
        return []
    return [
        GroupAssignment(topic=topic, partitions=sorted(numbers))
        for topic, numbers in sorted(assigned.items())
    ]


async def offsets_of(
    broker: Broker, group: str, assigned: Collection[str] = ()
) -> list[GroupOffset]:
    """Of all partitions of the topics that a group reads; `assigned` are those of its members."""
    committed: Mapping[TopicPartition, Committed] = await broker.groups.fetch_offsets(group)
    return [
        GroupOffset(
            topic=each.topic,
            partition=each.partition,
            offset=None if each.committed is None else each.committed.offset,
            metadata="" if each.committed is None else each.committed.metadata,
            end_offset=each.end_offset,
            lag=each.lag,
            never_read=each.committed is None,
        )
        for each in partition_lags(
            broker.topics, committed, assigned=assigned, end_of=_last_stable_offset
        )
    ]


def _last_stable_offset(partition: Partition) -> int:
    return partition.log.last_stable_offset
