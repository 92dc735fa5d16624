"""AddPartitionsToTxn (24): a transaction is about to write to partitions.

2 a code of its own for fenced producers; 3 flexible; 4 many transactions at once, and the question
whether partitions are in one already, as brokers ask each other; 5 a code for what an abort mends.

One partition that cannot be written to, and none is added. Clients that speak to us in newer
versions of Produce leave this out: to write is to add (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.broker.transaction_registry import Way
from millstream.errors import MillstreamError, UnknownTopic
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.gateways.kafka.transaction_codes import transaction_code, write_code
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from millstream.settings.names import is_internal_topic
from millstream.transactions.commands import AddPartitions
from millstream.transactions.transaction import TopicPartition

API_KEY = 24
VERSIONS = (0, 5)
REQUEST = AddPartitionsToTxnRequest

_MANY_TRANSACTIONS = 4


async def handle(
    request: AddPartitionsToTxnRequest, context: Context
) -> AddPartitionsToTxnResponse:
    if context.version >= _MANY_TRANSACTIONS:
        async for each in context.pace.over(request.transactions):
            _hear(each, context)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=await _results(each.topics, await _codes(each, context), context),
                )
                async for each in context.pace.over(request.transactions)
            ]
        )
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    _hear(only, context)
    codes = await _codes(only, context)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=await _results(only.topics, codes, context)
    )


def _hear(transaction: AddPartitionsToTxnTransaction, context: Context) -> None:
    """Raises Superseded."""
    if not transaction.verify_only:
        context.broker.transactions.hear(
            transaction.transactional_id,
            Way.COORDINATOR,
            context.connection,
            producer=(transaction.producer_id, transaction.producer_epoch),
        )


async def _codes(
    transaction: AddPartitionsToTxnTransaction, context: Context
) -> Mapping[TopicPartition, int]:
    """What became of each partition."""
    wanted = frozenset(
        [
            (topic.name, number)
            async for topic in context.pace.over(transaction.topics)
            async for number in context.pace.over(topic.partitions)
        ]
    )
    refusals = {place: _refusal(place, context) async for place in context.pace.over(wanted)}
    if any(refusals.values()):
        not_tried = ErrorCode.OPERATION_NOT_ATTEMPTED
        return {place: code or not_tried for place, code in refusals.items()}
    if not transaction.transactional_id:
        return dict.fromkeys(wanted, ErrorCode.INVALID_REQUEST)
    command = AddPartitions(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, wanted
    )
    if transaction.verify_only:
        return {
            place: write_code(refusal, API_KEY, context.version)
            for place, refusal in context.broker.transactions.verify(command).items()
        }
    # Again: another connection may have been heard since.
    _hear(transaction, context)
    error = None
    try:
        await context.broker.transactions.add_partitions(command)
    except MillstreamError as refusal:
        error = refusal
    return dict.fromkeys(wanted, transaction_code(error, API_KEY, context.version))


def _refusal(place: TopicPartition, context: Context) -> int:
    """Why a partition is not for clients to write to, if so."""
    topic, number = place
    if is_internal_topic(topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        context.broker.topics.partition(topic, number)
    except UnknownTopic as error:
        return code_of(error)
    return ErrorCode.NONE


async def _results(
    topics: Iterable[AddPartitionsToTxnTopic],
    codes: Mapping[TopicPartition, int],
    context: Context,
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[topic.name, number]
                )
                async for number in context.pace.over(topic.partitions)
            ],
        )
        async for topic in context.pace.over(topics)
    ]
