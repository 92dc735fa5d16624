"""InitProducerId (22): an id and an epoch for an idempotent or transactional producer.

1: throttling happens after the answer, not before it.
2: flexible.
3: a producer may keep its id with a new epoch; the request gains producer_id, producer_epoch.
4: a fenced producer learns so by its own error.
5: a new error for transactions (KIP-890).
6: two-phase commit (KIP-939); the request gains enable2_pc, keep_prepared_txn; the answer gains
   ongoing_txn_producer_id, ongoing_txn_producer_epoch.
"""

from __future__ import annotations

from millstream.protocol.notation import Bool, Int16, Int32, Int64, String, Struct, field


class InitProducerIdRequest(Struct, api_key=22, versions=(0, 6), flexible=2):
    transactional_id: String | None = field(nullable=0)
    transaction_timeout_ms: Int32 = field()
    producer_id: Int64 = field(since=3, default=-1)
    producer_epoch: Int16 = field(since=3, default=-1)
    enable2_pc: Bool = field(since=6)
    keep_prepared_txn: Bool = field(since=6)


class InitProducerIdResponse(Struct, api_key=22, versions=(0, 6), flexible=2):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16 = field()
    ongoing_txn_producer_id: Int64 = field(since=6, default=-1)
    ongoing_txn_producer_epoch: Int16 = field(since=6, default=-1)
