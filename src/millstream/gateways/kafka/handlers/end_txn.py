"""EndTxn (26): commit or abort a transaction.

2 a code of its own for fenced producers; 3 flexible; 4 a code for what an abort mends; 5 every end
gives a new epoch, so that no request of one transaction is taken for one of the next (KIP-890).
"""

from __future__ import annotations

from millstream.broker.transaction_registry import Way
from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.transaction_codes import transaction_code
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.transactions.commands import End

API_KEY = 26
VERSIONS = (0, 5)
REQUEST = EndTxnRequest

_BUMPS_EPOCH = 5


async def handle(request: EndTxnRequest, context: Context) -> EndTxnResponse:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    context.broker.transactions.hear(
        request.transactional_id,
        Way.COORDINATOR,
        context.connection,
        producer=(request.producer_id, request.producer_epoch),
    )
    command = End(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        is_commit=request.committed,
        bumps_epoch=context.version >= _BUMPS_EPOCH,
    )
    try:
        ended = await context.broker.transactions.end(command, connection=context.connection)
    except MillstreamError as error:
        return EndTxnResponse(error_code=transaction_code(error, API_KEY, context.version))
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)
