"""DescribeTransactions (65): the state of transactions."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, Int64, String, Struct, field


class DescribeTransactionsRequest(Struct, api_key=65, versions=(0, 0), flexible=0):
    transactional_ids: Sequence[String] = field()


class TopicData(Struct):
    topic: String = field()
    partitions: Sequence[Int32] = field()


class TransactionState(Struct):
    error_code: Int16 = field()
    transactional_id: String = field()
    transaction_state: String = field()
    transaction_timeout_ms: Int32 = field()
    transaction_start_time_ms: Int64 = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    topics: Sequence[TopicData] = field()


class DescribeTransactionsResponse(Struct, api_key=65, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = field()
    transaction_states: Sequence[TransactionState] = field()
