"""AddPartitionsToTxn (24): a transaction is about to write to partitions.

1: throttling happens after the answer, not before it.
2: a fenced producer learns so by its own error.
3: flexible.
4: many transactions at once, for brokers only; the request gains transactions; the request loses
   v3_and_below_transactional_id, v3_and_below_producer_id, v3_and_below_producer_epoch,
   v3_and_below_topics; the answer gains error_code, results_by_transaction; the answer loses
   results_by_topic_v3_and_below.
5: a new error for transactions (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int16, Int32, Int64, String, Struct, field


class AddPartitionsToTxnTopic(Struct):
    name: String = field()
    partitions: Sequence[Int32] = field()


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    verify_only: Bool = field()
    topics: Sequence[AddPartitionsToTxnTopic] = field()


class AddPartitionsToTxnRequest(Struct, api_key=24, versions=(0, 5), flexible=3):
    v3_and_below_transactional_id: String = field(until=3)
    v3_and_below_producer_id: Int64 = field(until=3)
    v3_and_below_producer_epoch: Int16 = field(until=3)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = field(until=3)
    transactions: Sequence[AddPartitionsToTxnTransaction] = field(since=4)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = field()
    partition_error_code: Int16 = field()


class AddPartitionsToTxnTopicResult(Struct):
    name: String = field()
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = field()


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = field()
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = field()


class AddPartitionsToTxnResponse(Struct, api_key=24, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = field()
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = field(until=3)
    error_code: Int16 = field(since=4)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = field(since=4)
