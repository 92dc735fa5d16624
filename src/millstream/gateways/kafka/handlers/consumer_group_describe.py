"""ConsumerGroupDescribe (69): the state and the members of consumer groups (KIP-848).

1: whether a member still speaks the classic protocol.
"""

from __future__ import annotations

from millstream.errors import MillstreamError, UnknownTopicId
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.groups.consumer_group import ConsumerGroup, target_of
from millstream.groups.consumer_group import Member as GroupMember
from millstream.groups.consumer_partitions import Partitions, listed
from millstream.groups.consumer_target import assignor_of
from millstream.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

API_KEY = 69
VERSIONS = (0, 1)
REQUEST = ConsumerGroupDescribeRequest

_SPEAKS_CLASSIC = 0
_SPEAKS_CONSUMER = 1


async def handle(
    request: ConsumerGroupDescribeRequest, context: Context
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        # Each group once: its members may be many.
        groups=[
            await _described(group_id, context)
            async for group_id in context.pace.over(dict.fromkeys(request.group_ids))
        ]
    )


async def _described(group_id: str, context: Context) -> DescribedGroup:
    try:
        group = await context.broker.groups.consumer_describe(group_id)
    except MillstreamError as error:
        return DescribedGroup(
            group_id=group_id, error_code=code_of(error), error_message=str(error)
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor_of(group),
        members=[
            _member(group, member, context)
            async for member in context.pace.over(group.members.values())
        ],
    )


def _member(group: ConsumerGroup, member: GroupMember, context: Context) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topics),
        subscribed_topic_regex=metadata.regex,
        assignment=_assignment(member.current.assigned, context),
        target_assignment=_assignment(target_of(group, member.member_id), context),
        member_type=_SPEAKS_CLASSIC if member.speaks_classic else _SPEAKS_CONSUMER,
    )


def _assignment(partitions: Partitions, context: Context) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id, topic_name=_name_of(topic_id, context), partitions=numbers
            )
            for topic_id, numbers in listed(partitions)
        ]
    )


def _name_of(topic_id: bytes, context: Context) -> str:
    try:
        return context.broker.topics.by_id(topic_id).name
    except UnknownTopicId:
        return ""  # deleted; its members are yet to hear of it
