"""ListTransactions (66): the transactions that there are.

1: filter by duration; the request gains duration_filter.
2: filter by pattern of the id; the request gains transactional_id_pattern.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, Int64, String, Struct, field


class ListTransactionsRequest(Struct, api_key=66, versions=(0, 2), flexible=0):
    state_filters: Sequence[String] = field()
    producer_id_filters: Sequence[Int64] = field()
    duration_filter: Int64 = field(since=1, default=-1)
    transactional_id_pattern: String | None = field(since=2, nullable=2)


class TransactionState(Struct):
    transactional_id: String = field()
    producer_id: Int64 = field()
    transaction_state: String = field()


class ListTransactionsResponse(Struct, api_key=66, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    unknown_state_filters: Sequence[String] = field()
    transaction_states: Sequence[TransactionState] = field()
