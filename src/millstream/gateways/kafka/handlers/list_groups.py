"""ListGroups (16): the groups that there are.

3 flexible; 4 filter by state (KIP-518); 5 filter by type (KIP-848).
"""

from __future__ import annotations

from millstream.gateways.kafka.context import Context
from millstream.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

API_KEY = 16
VERSIONS = (0, 5)
REQUEST = ListGroupsRequest


async def handle(request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    listings = context.broker.groups.list(states=request.states_filter, types=request.types_filter)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=listing.group_id,
                protocol_type=listing.protocol_type,
                group_state=listing.state,
                group_type=listing.group_type,
            )
            async for listing in context.pace.over(listings)
        ]
    )
