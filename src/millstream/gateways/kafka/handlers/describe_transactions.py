"""DescribeTransactions (65): for transactional ids, the producer and its last transaction."""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from millstream.transactions.transaction import Transaction

API_KEY = 65
VERSIONS = (0, 0)
REQUEST = DescribeTransactionsRequest


async def handle(
    request: DescribeTransactionsRequest, context: Context
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _described(each, context)
            async for each in context.pace.over(dict.fromkeys(request.transactional_ids))
        ]
    )


def _described(transactional_id: str, context: Context) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    try:
        found = context.broker.transactions.registry.describe(transactional_id)
    except MillstreamError as error:
        return TransactionState(transactional_id=transactional_id, error_code=code_of(error))
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=_topics(found),
    )


def _topics(transaction: Transaction) -> list[TopicData]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(transaction.partitions):
        numbers.setdefault(topic, []).append(number)
    return [TopicData(topic=topic, partitions=each) for topic, each in numbers.items()]
