"""ListPartitionReassignments (46): no partition is ever being moved."""

from __future__ import annotations

from millstream.gateways.kafka.context import Context
from millstream.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

API_KEY = 46
VERSIONS = (0, 0)
REQUEST = ListPartitionReassignmentsRequest


async def handle(
    _request: ListPartitionReassignmentsRequest, _context: Context
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()
