"""InitProducerId (22): an id and an epoch for a producer, which has no transactional id or has one.

3 a producer may keep its id, with a new epoch (KIP-360); 4 a code of its own for fenced producers;
5 a code for what an abort mends. Two-phase commit, which is 6, we do not have.

With a transactional id, every producer that had it before is fenced, and what it left open is
aborted before the answer. Without one, whoever asks gets an id that nobody had before: an id that
it brings along may be that of a transactional producer.
"""

from __future__ import annotations

from millstream.broker.transaction_registry import Way
from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.transaction_codes import transaction_code
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.transactions.commands import InitProducer

API_KEY = 22
VERSIONS = (0, 5)
REQUEST = InitProducerIdRequest

_NONE = -1


async def handle(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    producer = request.producer_id, request.producer_epoch
    is_told = producer != (_NONE, _NONE)
    if is_told and min(producer) <= _NONE:
        return _refused(ErrorCode.INVALID_REQUEST)
    transactions, transactional_id = context.broker.transactions, request.transactional_id
    if transactional_id is not None:
        transactions.hear(
            transactional_id,
            Way.COORDINATOR,
            context.connection,
            producer=producer if is_told else None,
        )
    try:
        if transactional_id is None:
            return InitProducerIdResponse(producer_id=await context.broker.producer_ids.next())
        begun = await transactions.init_producer(
            InitProducer(transactional_id, request.transaction_timeout_ms, *producer)
        )
    except MillstreamError as error:
        return _refused(transaction_code(error, API_KEY, context.version))
    return InitProducerIdResponse(
        producer_id=begun.producer_id, producer_epoch=begun.producer_epoch
    )


def _refused(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=_NONE)
