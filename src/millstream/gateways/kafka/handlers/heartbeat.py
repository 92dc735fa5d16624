"""Heartbeat (12): a member of a classic group says that it is alive.

3 static members; 4 flexible.
"""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.groups.commands import Heartbeat
from millstream.groups.outcome import NO_TICKET
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

API_KEY = 12
VERSIONS = (0, 4)
REQUEST = HeartbeatRequest


async def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    command = Heartbeat(
        ticket=NO_TICKET,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
    )
    try:
        await context.broker.groups.heartbeat(request.group_id, command)
    except MillstreamError as error:
        return HeartbeatResponse(error_code=code_of(error))
    return HeartbeatResponse()
