"""ListTransactions (66): the transactional ids that there are.

1 filter by how long the transaction has lasted (KIP-994); 2 filter by a regular expression that the
whole id must match (KIP-1152).
"""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from millstream.transactions import transaction

API_KEY = 66
VERSIONS = (0, 2)
REQUEST = ListTransactionsRequest

_STATES = {state.value: state for state in transaction.TransactionState}
_NEVER_SEEN = ("PrepareEpochFence", "Dead")
"""States that Kafka has and we pass through in no time at all."""


async def handle(request: ListTransactionsRequest, context: Context) -> ListTransactionsResponse:
    wanted = set(request.state_filters)
    states = [_STATES[name] for name in wanted if name in _STATES]
    unknown = sorted(wanted.difference(_STATES, _NEVER_SEEN))
    try:
        found = context.broker.transactions.registry.list(
            states=states,
            producer_ids=set(request.producer_id_filters),
            duration_ms=request.duration_filter,
            pattern=request.transactional_id_pattern or None,
            now_ms=context.broker.clock.now_ms(),
        )
    except MillstreamError as error:
        return ListTransactionsResponse(error_code=code_of(error))
    if wanted and not states:
        # No state is not the same as any.
        found = []
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            for each in found
        ],
    )
