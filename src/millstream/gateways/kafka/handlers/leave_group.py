"""LeaveGroup (13): members leave a classic group.

3 several at once, static ones also by their identity alone; 4 flexible; 5 each may say why.
"""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.groups.commands import Leave, Leaver
from millstream.groups.outcome import NO_TICKET
from millstream.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

API_KEY = 13
VERSIONS = (0, 5)
REQUEST = LeaveGroupRequest

_MANY_MEMBERS = 3


async def handle(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    leavers = tuple(
        Leaver(member.member_id, member.group_instance_id, member.reason)
        for member in request.members
    )
    if context.version < _MANY_MEMBERS:
        leavers = (Leaver(request.member_id, None),)
    try:
        left = await context.broker.groups.leave(request.group_id, Leave(NO_TICKET, leavers))
    except MillstreamError as error:
        return LeaveGroupResponse(error_code=code_of(error))
    if context.version < _MANY_MEMBERS:
        return LeaveGroupResponse(error_code=code_of(left.results[0]))
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=leaver.member_id,
                group_instance_id=leaver.instance_id,
                error_code=code_of(error),
            )
            async for leaver, error in context.pace.over(zip(leavers, left.results, strict=True))
        ]
    )
