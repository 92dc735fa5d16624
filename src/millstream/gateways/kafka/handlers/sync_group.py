"""SyncGroup (14): the leader hands in the assignment, and each member gets its share.

3 static members; 4 flexible; 5 protocol type and name, both ways.
"""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.groups.commands import Sync
from millstream.groups.outcome import NO_TICKET
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

API_KEY = 14
VERSIONS = (0, 5)
REQUEST = SyncGroupRequest


async def handle(request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
    command = Sync(
        ticket=NO_TICKET,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((part.member_id, part.assignment) for part in request.assignments),
    )
    try:
        synced = await context.broker.groups.sync(request.group_id, command)
    except MillstreamError as error:
        return SyncGroupResponse(error_code=code_of(error))
    return SyncGroupResponse(
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
