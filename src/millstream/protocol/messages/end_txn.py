"""EndTxn (26): commit or abort a transaction.

1: throttling happens after the answer, not before it.
2: a fenced producer learns so by its own error.
3: flexible.
4: a new error for transactions (KIP-890).
5: every end gives a new epoch (KIP-890); the answer gains producer_id, producer_epoch.
"""

from __future__ import annotations

from millstream.protocol.notation import Bool, Int16, Int32, Int64, String, Struct, field


class EndTxnRequest(Struct, api_key=26, versions=(0, 5), flexible=3):
    transactional_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    committed: Bool = field()


class EndTxnResponse(Struct, api_key=26, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    producer_id: Int64 = field(since=5, default=-1)
    producer_epoch: Int16 = field(since=5, default=-1)
