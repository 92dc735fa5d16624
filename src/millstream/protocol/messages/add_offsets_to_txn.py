"""AddOffsetsToTxn (25): a transaction is about to commit offsets of a group.

1: throttling happens after the answer, not before it.
2: a fenced producer learns so by its own error.
3: flexible.
4: a new error for transactions (KIP-890).
"""

from __future__ import annotations

from millstream.protocol.notation import Int16, Int32, Int64, String, Struct, field


class AddOffsetsToTxnRequest(Struct, api_key=25, versions=(0, 4), flexible=3):
    transactional_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    group_id: String = field()


class AddOffsetsToTxnResponse(Struct, api_key=25, versions=(0, 4), flexible=3):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
