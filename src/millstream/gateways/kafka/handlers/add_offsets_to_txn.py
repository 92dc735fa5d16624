"""AddOffsetsToTxn (25): a transaction is about to commit offsets of a group.

2 a code of its own for fenced producers; 3 flexible; 4 a code for what an abort mends.

The group itself is looked at when the offsets come. Clients that speak to us in newer versions of
TxnOffsetCommit leave this out (KIP-890).
"""

from __future__ import annotations

from millstream.broker.transaction_registry import Way
from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.transaction_codes import transaction_code
from millstream.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

API_KEY = 25
VERSIONS = (0, 4)
REQUEST = AddOffsetsToTxnRequest


async def handle(request: AddOffsetsToTxnRequest, context: Context) -> AddOffsetsToTxnResponse:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    context.broker.transactions.hear(
        request.transactional_id,
        Way.COORDINATOR,
        context.connection,
        producer=(request.producer_id, request.producer_epoch),
    )
    try:
        await context.broker.transactions.add_offsets(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
    except MillstreamError as error:
        code = transaction_code(error, API_KEY, context.version)
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse()
