"""JoinGroup (11): a member asks to be in the next generation of a classic group.

1 a rebalance timeout of its own, before that the session's; 4 a new member must come back with the
id it is given (KIP-394); 5 static members (KIP-345); 6 flexible; 7 the protocol's type in the
answer; 8 a reason, which we ignore; 9 the leader may be told to skip the assignment (KIP-814).
"""

from __future__ import annotations

from millstream.errors import MemberIdRequired, MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.groups.commands import Join, SupportedProtocol
from millstream.groups.outcome import NO_TICKET
from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

API_KEY = 11
VERSIONS = (0, 9)
REQUEST = JoinGroupRequest

_MEMBERS_MUST_RETURN = 4
_LEADERS_CAN_SKIP = 9
_REASON_CHARACTERS = 1000


async def handle(request: JoinGroupRequest, context: Context) -> JoinGroupResponse:
    if len(request.reason or "") > _REASON_CHARACTERS:
        # A request that waits for other members is kept in memory.
        return JoinGroupResponse(error_code=ErrorCode.INVALID_REQUEST, member_id=request.member_id)
    try:
        joined = await context.broker.groups.join(request.group_id, _command(request, context))
    except MemberIdRequired as error:
        return JoinGroupResponse(error_code=code_of(error), member_id=error.member_id)
    except MillstreamError as error:
        return JoinGroupResponse(error_code=code_of(error), member_id=request.member_id)
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in joined.members
        ],
    )


def _command(request: JoinGroupRequest, context: Context) -> Join:
    own_timeout = request.rebalance_timeout_ms >= 0
    return Join(
        ticket=NO_TICKET,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=context.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if own_timeout else request.session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple(
            SupportedProtocol(protocol.name, protocol.metadata) for protocol in request.protocols
        ),
        new_member_id="",
        must_return=context.version >= _MEMBERS_MUST_RETURN,
        may_skip_assignment=context.version >= _LEADERS_CAN_SKIP,
    )
