"""What tools are shown of transactions and producers.

What is expected here is what Apache Kafka 4.3 answers to the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.protocol.messages import describe_transactions, list_transactions
from millstream.protocol.messages.api_versions import (
    ApiVersionsRequest,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from millstream.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
from tests.fakes.open_door import OpenDoor, open_door, run
from tests.fakes.sample_batches import idempotent_batch
from tests.fakes.transactional_producer import Place, TransactionalProducer
from tests.fakes.wire_client import WireClient

Scene = Callable[[OpenDoor, WireClient], Coroutine[Any, Any, None]]


def play(path: Path, scene: Scene) -> None:
    async def main() -> None:
        async with open_door(path) as opened:
            await opened.topic("t", partitions=2)
            await scene(opened, await opened.connect())

    run(main())


async def producers(client: WireClient, *places: Place) -> list[PartitionResponse]:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=[number]) for name, number in places]
    )
    answer = await client.ask(request, 0)
    return [partition for topic in answer.topics for partition in topic.partitions]


def test_transactions_are_described(tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, client: WireClient) -> None:
        producer = TransactionalProducer(await opened.connect())
        _, producer_id, epoch = await producer.init(transaction_timeout_ms=1234)
        request = describe_transactions.DescribeTransactionsRequest(
            transactional_ids=["tx", "nobody", ""]
        )
        empty, nobody, unnamed = (await client.ask(request, 0)).transaction_states
        assert empty == describe_transactions.TransactionState(
            transactional_id="tx",
            transaction_state="Empty",
            transaction_timeout_ms=1234,
            transaction_start_time_ms=-1,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        assert nobody == describe_transactions.TransactionState(
            transactional_id="nobody", error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
        assert unnamed == describe_transactions.TransactionState(
            error_code=ErrorCode.INVALID_REQUEST
        )
        await producer.add(("t", 1), ("t", 0))
        await producer.add_offsets()
        ongoing, *_ = (await client.ask(request, 0)).transaction_states
        assert ongoing.transaction_state == "Ongoing"
        started_ms = opened.broker.transactions.registry.describe("tx").started_ms
        assert ongoing.transaction_start_time_ms == started_ms > 0
        topics = [(topic.topic, list(topic.partitions)) for topic in ongoing.topics]
        assert topics == [("__consumer_offsets", [0]), ("t", [0, 1])]
        await producer.end()
        ended, *_ = (await client.ask(request, 0)).transaction_states
        assert (ended.transaction_state, ended.topics) == ("CompleteCommit", [])
        assert ended.producer_epoch == epoch + 1

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, {"busy", "idle", "done"}),
        ({"state_filters": ["Ongoing"]}, {"busy"}),
        ({"state_filters": ["Ongoing", "CompleteAbort"]}, {"busy", "done"}),
        ({"state_filters": ["Dead", "PrepareEpochFence"]}, set()),
        ({"producer_id_filters": [0, 777]}, {"busy"}),
        ({"producer_id_filters": [0], "state_filters": ["Empty"]}, set()),
        ({"duration_filter": -1}, {"busy", "idle", "done"}),
        ({"duration_filter": 10**9}, set()),
        ({"transactional_id_pattern": "b.*|idle"}, {"busy", "idle"}),
        ({"transactional_id_pattern": "us"}, set()),
        ({"transactional_id_pattern": ""}, {"busy", "idle", "done"}),
    ],
)
def test_transactions_are_listed_by_what_they_are(
    filters: dict[str, Any], found: set[str], tmp_path: Path
) -> None:
    async def scene(opened: OpenDoor, client: WireClient) -> None:
        for number, name in enumerate(("busy", "idle", "done")):
            producer = TransactionalProducer(await opened.connect(), name)
            assert (await producer.init())[1] == number
            if name != "idle":
                await producer.add(("t", 0))
            if name == "done":
                await producer.end(committed=False)
        answer = await client.ask(list_transactions.ListTransactionsRequest(**filters), 2)
        assert answer.error_code == 0
        assert list(answer.unknown_state_filters) == []
        assert {each.transactional_id for each in answer.transaction_states} == found
        for each in answer.transaction_states:
            described = opened.broker.transactions.registry.describe(each.transactional_id)
            assert each.producer_id == described.producer_id
            assert each.transaction_state == described.state.value

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("asked", "found"), [(["Nonsense"], set()), (["Nonsense", "Empty", "Other"], {"tx"})]
)
def test_states_that_nobody_knows_are_named(
    asked: list[str], found: set[str], tmp_path: Path
) -> None:
    async def scene(opened: OpenDoor, client: WireClient) -> None:
        await TransactionalProducer(await opened.connect()).init()
        for version in range(3):
            request = list_transactions.ListTransactionsRequest(state_filters=asked)
            answer = await client.ask(request, version)
            assert list(answer.unknown_state_filters) == sorted(set(asked) - {"Empty"})
            assert {each.transactional_id for each in answer.transaction_states} == found

    play(tmp_path, scene)


def test_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    async def scene(_: OpenDoor, client: WireClient) -> None:
        request = list_transactions.ListTransactionsRequest(transactional_id_pattern="(")
        answer = await client.ask(request, 2)
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert answer.transaction_states == []

    play(tmp_path, scene)


def test_idempotent_producer_is_described(tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, client: WireClient) -> None:
        before_ms = opened.broker.clock.now_ms()
        await client.produce("t", idempotent_batch(0, count=3, epoch=2, producer=41))
        described, empty = await producers(client, ("t", 0), ("t", 1))
        assert (described.error_code, described.error_message) == (0, None)
        [state] = described.active_producers
        assert (state.producer_id, state.producer_epoch, state.last_sequence) == (41, 2, 2)
        assert state.last_timestamp >= before_ms
        assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)
        assert (empty.error_code, empty.active_producers) == (0, [])

    play(tmp_path, scene)


def test_open_transaction_of_a_producer_is_described_until_it_ends(tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, client: WireClient) -> None:
        await client.produce("t", idempotent_batch(0, count=3, producer=41))
        producer = TransactionalProducer(await opened.connect())
        _, producer_id, epoch = await producer.init()
        for _ in range(2):
            assert await producer.write("t", b"a", b"b") == 0
        [described] = await producers(client, ("t", 0))
        state = next(each for each in described.active_producers if each.producer_id != 41)
        assert (state.producer_id, state.producer_epoch) == (producer_id, epoch)
        assert (state.last_sequence, state.current_txn_start_offset) == (3, 3)
        await producer.end()
        [described] = await producers(client, ("t", 0))
        state = next(each for each in described.active_producers if each.producer_id != 41)
        assert (state.producer_epoch, state.last_sequence) == (epoch + 1, -1)
        assert (state.coordinator_epoch, state.current_txn_start_offset) == (0, -1)

    play(tmp_path, scene)


def test_producers_of_what_is_not_there_are_not_described(tmp_path: Path) -> None:
    async def scene(_: OpenDoor, client: WireClient) -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = await producers(client, ("t", 9), ("none", 0), ("bad name!", 0), ("__catalog", 0))
        codes = [each.error_code for each in found]
        assert codes == [unknown, unknown, ErrorCode.INVALID_TOPIC_EXCEPTION, unknown]
        assert all(each.error_message for each in found)

    play(tmp_path, scene)


@pytest.mark.parametrize("version", range(5))
def test_features_are_announced_to_those_who_can_read_them(version: int, tmp_path: Path) -> None:
    async def scene(_: OpenDoor, client: WireClient) -> None:
        answer = await client.ask(ApiVersionsRequest(), version)
        supported = SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2)
        finalized = FinalizedFeatureKey(
            name="transaction.version", min_version_level=2, max_version_level=2
        )
        # Java clients before 3.9 fail on a feature that begins at 0 (KAFKA-17011).
        assert list(answer.supported_features) == ([supported] if version >= 4 else [])
        assert list(answer.finalized_features) == ([finalized] if version >= 3 else [])
        assert answer.finalized_features_epoch == (1 if version >= 3 else -1)

    play(tmp_path, scene)
