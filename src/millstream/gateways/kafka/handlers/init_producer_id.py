"""InitProducerId (22): an id and an epoch for an idempotent producer.

3 a producer may keep its id, with a new epoch (KIP-360); 4 to 5 errors of transactional ones.
A transactional id is refused by UNSUPPORTED_VERSION, which clients do not try again.
"""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

API_KEY = 22
VERSIONS = (0, 5)
REQUEST = InitProducerIdRequest

_NONE = -1
_LAST_EPOCH = 2**15 - 2


async def handle(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        named = ErrorCode.UNSUPPORTED_VERSION
        return _refused(named if request.transactional_id else ErrorCode.INVALID_REQUEST)
    producer_id, epoch = request.producer_id, request.producer_epoch
    if (producer_id == _NONE) != (epoch == _NONE) or min(producer_id, epoch) < _NONE:
        return _refused(ErrorCode.INVALID_REQUEST)
    # An id that nobody was given yet is somebody else's tomorrow.
    if 0 <= producer_id < context.broker.topics.next_producer_id and epoch < _LAST_EPOCH:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch + 1)
    try:
        return InitProducerIdResponse(producer_id=await context.broker.producer_ids.next())
    except MillstreamError as error:
        return _refused(code_of(error))


def _refused(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=_NONE)
