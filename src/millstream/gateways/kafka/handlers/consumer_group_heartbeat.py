"""ConsumerGroupHeartbeat (68): a member of a consumer group joins, goes on or leaves (KIP-848).

0: the broker may give out member ids. 1: the client makes its own; topics by regular expression.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.errors import InvalidRequest, MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.groups.consumer_commands import ConsumerHeartbeat
from millstream.groups.consumer_partitions import Partitions, gathered, listed
from millstream.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

API_KEY = 68
VERSIONS = (0, 1)
REQUEST = ConsumerGroupHeartbeatRequest

_CLIENTS_NAME_THEMSELVES = 1
"""The version from which on members make up their ids (KIP-1082)."""


async def handle(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse:
    try:
        if not request.member_id and context.version >= _CLIENTS_NAME_THEMSELVES:
            raise InvalidRequest("a member makes up its own id")
        reply = await context.broker.groups.consumer_heartbeat(
            request.group_id, _command(request, context)
        )
    except MillstreamError as error:
        return ConsumerGroupHeartbeatResponse(error_code=code_of(error), error_message=str(error))
    return ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=_assignment(reply.assignment),
    )


def _command(request: ConsumerGroupHeartbeatRequest, context: Context) -> ConsumerHeartbeat:
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        ticket=0,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=context.client_id,
        client_host=context.client_host,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else tuple(names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
    )


def _owned(parts: Sequence[TopicPartitions] | None) -> Partitions | None:
    if parts is None:
        return None
    return gathered((part.topic_id, part.partitions) for part in parts)


def _assignment(partitions: Partitions | None) -> Assignment | None:
    if partitions is None:
        return None
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in listed(partitions)
        ]
    )
