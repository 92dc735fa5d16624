"""DescribeGroups (15): the state and the members of classic groups.

3 which operations the asker may use, which is all; 4 static members; 5 flexible; 6 a group that is
not there, or is no classic one, is an error, where before it was told to be Dead (KIP-1043).
"""

from __future__ import annotations

from millstream.errors import UnknownGroup
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.gateways.kafka.operations import NOT_ASKED
from millstream.groups.classic_description import GroupDescription
from millstream.groups.classic_group import ClassicState
from millstream.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

API_KEY = 15
VERSIONS = (0, 6)
REQUEST = DescribeGroupsRequest

_KNOWS_MISSING = 6
_ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""Read, delete and describe, by Kafka's numbers."""


async def handle(request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    operations = _ALL_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    # Each group once: a request that names one a thousand times would have a huge answer.
    names = dict.fromkeys(request.groups)
    groups = [context.broker.groups.describe(name) async for name in context.pace.over(names)]
    return DescribeGroupsResponse(
        groups=[
            _missing(group)
            if group.state == ClassicState.DEAD and context.version >= _KNOWS_MISSING
            else _described(group, operations)
            async for group in context.pace.over(groups)
        ]
    )


def _missing(group: GroupDescription) -> DescribedGroup:
    error = UnknownGroup(group.group_id)
    return DescribedGroup(
        error_code=code_of(error),
        error_message=f"{error} of the classic kind",
        group_id=group.group_id,
        group_state=group.state,
    )


def _described(group: GroupDescription, operations: int) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=operations,
    )
