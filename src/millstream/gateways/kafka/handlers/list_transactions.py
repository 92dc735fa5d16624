"""ListTransactions (66): the transactional ids that there are.

1 filter by how long the transaction has lasted (KIP-994); 2 filter by a regular expression that the
whole id must match (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.groups.consumer_regex import compiled
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
"""States that Kafka has and we do not."""
_MATCHING = 20
"""To match an id against a pattern takes as long as so many other elements."""
_LONGEST_MATCHED = 249
"""No longer id matches a pattern: the time it takes grows with the length."""


async def handle(request: ListTransactionsRequest, context: Context) -> ListTransactionsResponse:
    wanted = set(request.state_filters)
    states = [_STATES[name] for name in wanted if name in _STATES]
    unknown = sorted(wanted.difference(_STATES, _NEVER_SEEN))
    found = context.broker.transactions.registry.list(
        states=states,
        producer_ids=set(request.producer_id_filters),
        duration_ms=request.duration_filter,
        now_ms=context.broker.clock.now_ms(),
    )
    if wanted and not states:
        # No state is not the same as any.
        found = []
    if request.transactional_id_pattern:
        try:
            found = await _matching(request.transactional_id_pattern, found, context)
        except MillstreamError as error:
            return ListTransactionsResponse(error_code=code_of(error))
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            async for each in context.pace.over(found)
        ],
    )


async def _matching(
    pattern: str, found: Sequence[transaction.Transaction], context: Context
) -> list[transaction.Transaction]:
    """Those whose id a pattern matches. Raises InvalidRegex."""
    regex = compiled(pattern)
    return [
        each
        async for each in context.pace.over(found, weight=_MATCHING)
        if len(each.transactional_id) <= _LONGEST_MATCHED and regex.matches(each.transactional_id)
    ]
