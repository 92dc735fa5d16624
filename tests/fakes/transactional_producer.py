"""A producer with a transactional id, of a few lines: it says what it is told to, and no more.

Every call is one request, in the version of one's choice, and answers with codes. Who the producer
says it is can be changed for one request (`producer_id=`, `producer_epoch=`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from millstream.protocol.messages.end_txn import EndTxnRequest
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millstream.records import Record, build
from tests.fakes.sample_batches import START_MS
from tests.fakes.wire_client import WireClient

Place = tuple[str, int]
ALL_REPLICAS = -1


class TransactionalProducer:
    """Speaks through one connection."""

    def __init__(self, client: WireClient, transactional_id: str = "tx") -> None:
        self._client = client
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[Place, int] = {}

    def _said(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            **fields,
        }

    def _take(self, answer: Any) -> tuple[int, int, int]:
        """Go on with the id and epoch of an answer."""
        told = answer.producer_id, answer.producer_epoch
        if answer.error_code == 0 and told != (-1, -1):
            if told != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = told
        return answer.error_code, *told

    async def init(self, version: int = 5, **fields: Any) -> tuple[int, int, int]:
        """The code, the producer's id and its epoch; one that does not say who it was."""
        fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": 60_000,
            **fields,
        }
        return self._take(await self._client.ask(InitProducerIdRequest(**fields), version))

    async def add(self, *places: Place, version: int = 3, **fields: Any) -> dict[Place, int]:
        """A code for each partition."""
        said = self._said(fields)
        if version >= 4:
            [codes] = (await self.add_many([(said, places)], version=version)).values()
            return codes
        old = {f"v3_and_below_{name}": value for name, value in said.items()}
        request = AddPartitionsToTxnRequest(**old, v3_and_below_topics=_topics(places))
        answer = await self._client.ask(request, version)
        return _codes(answer.results_by_topic_v3_and_below)

    async def add_many(
        self, transactions: Iterable[tuple[dict[str, Any], Iterable[Place]]], *, version: int
    ) -> dict[str, dict[Place, int]]:
        """By transactional id, a code for each partition."""
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(**said, topics=_topics(places))
                for said, places in transactions
            ]
        )
        answer = await self._client.ask(request, version)
        assert answer.error_code == 0
        return {
            each.transactional_id: _codes(each.topic_results)
            for each in answer.results_by_transaction
        }

    async def add_offsets(self, version: int = 4, **fields: Any) -> int:
        said = self._said({"group_id": "g", **fields})
        answer = await self._client.ask(AddOffsetsToTxnRequest(**said), version)
        code: int = answer.error_code
        return code

    async def commit_offset(
        self, offset: int, *places: Place, version: int = 5, **fields: Any
    ) -> dict[Place, int]:
        """Commits one offset for all these partitions; a code for each."""
        topics = [
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_metadata="note"
                    )
                ],
            )
            for name, number in places
        ]
        said = self._said({"group_id": "g", **fields})
        request = TxnOffsetCommitRequest(**said, topics=topics)
        answer = await self._client.ask(request, version)
        return {
            (topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }

    async def end(
        self, version: int = 5, *, committed: bool = True, **fields: Any
    ) -> tuple[int, int, int]:
        """The code, and the id and epoch to go on with."""
        said = self._said({"committed": committed, **fields})
        return self._take(await self._client.ask(EndTxnRequest(**said), version))

    async def write(self, topic: str, *values: bytes, partition: int = 0, version: int = 12) -> int:
        """Produces a batch; from version 12 on that adds the partition. The code."""
        sequence = self.sequences.get((topic, partition), 0)
        batch = build(
            [Record(number, START_MS, None, value) for number, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        stored = await self._client.produce(
            topic,
            batch,
            partition=partition,
            acks=ALL_REPLICAS,
            transactional_id=self.transactional_id,
            version=version,
        )
        if stored.error_code == 0:
            self.sequences[topic, partition] = sequence + len(values)
        code: int = stored.error_code
        return code


def _topics(places: Iterable[Place]) -> list[AddPartitionsToTxnTopic]:
    numbers: dict[str, list[int]] = {}
    for name, number in places:
        numbers.setdefault(name, []).append(number)
    return [AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in numbers.items()]


def _codes(topics: Iterable[AddPartitionsToTxnTopicResult]) -> dict[Place, int]:
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in topics
        for each in topic.results_by_partition
    }
