"""A broker on a disk whose syncs take their time, and its clients' requests of transactions.

Requests come through numbered connections, as at the Kafka door, and are answered as there: what
was written when the records and the coordinator's own record are both durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Self
from unittest.mock import patch

from millstream import assembly
from millstream.broker.connection_numbers import ConnectionNumbers
from millstream.broker.durability import durable
from millstream.broker.partition import Partition
from millstream.broker.transaction_markers import TransactionMarkers
from millstream.broker.transaction_registry import Way
from millstream.clock import ManualClock
from millstream.errors import MillstreamError
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.records import Record, build
from millstream.settings.names import OFFSETS_TOPIC
from millstream.storage.partition_log import PartitionLog
from millstream.transactions.commands import AddPartitions, End, InitProducer
from millstream.transactions.transaction import TopicPartition
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.fake_flusher import DelayedFlusher

SOURCE = "source"
"""The topic that groups read from, with more records than any schedule commits offsets."""
SOURCE_RECORDS = 1000
_NO_MEMBER = Committer("", None, -1)


class SimulatedBroker(FakeBroker):
    """Call `start` before anything else, and again after a crash."""

    flusher_kind: type[DelayedFlusher] = DelayedFlusher
    markers_kind: type[TransactionMarkers] = TransactionMarkers
    transactions_kind: type[Any] | None = None
    """Stands between the clients and the coordinator."""

    def __init__(
        self,
        disk: FakeFilesystem,
        clock: ManualClock,
        *,
        connections: ConnectionNumbers,
        sync_ms: Callable[[PartitionLog], int],
        **settings: Any,
    ) -> None:
        super().__init__(
            disk,
            clock=clock,
            new_flusher=partial(self.flusher_kind, sync_ms),
            first_id=1000,
            # One at a time, so that there is a wait in each.
            producer_id_block=1,
            **settings,
        )
        self._connections = connections
        self._coordinator: Any = None

    async def start(self) -> Self:
        with patch.object(assembly, "TransactionMarkers", self.markers_kind):
            await super().start()
        # Those who were there before the power failed are not gone, to themselves.
        self.transactions.connections = self._connections
        if self.transactions_kind is None:
            self._coordinator = self.transactions
        else:
            self._coordinator = self.transactions_kind(self.transactions)
        return self

    # The door

    async def init(
        self, connection: int, command: InitProducer, heard: Callable[[], None]
    ) -> tuple[int, int]:
        pair = command.producer_id, command.producer_epoch
        self._coordinator.hear(
            command.transactional_id,
            Way.COORDINATOR,
            connection,
            producer=None if pair == (-1, -1) else pair,
        )
        heard()
        made = await self._coordinator.init_producer(command)
        return made.producer_id, made.producer_epoch

    async def add(self, connection: int, command: AddPartitions) -> None:
        for place in command.partitions:
            if place[0] != OFFSETS_TOPIC:
                self.topics.partition(*place)
        pair = command.producer_id, command.producer_epoch
        self._coordinator.hear(command.transactional_id, Way.COORDINATOR, connection, producer=pair)
        await self._coordinator.add_partitions(command)

    async def write(
        self,
        connection: int,
        name: str,
        pair: tuple[int, int],
        place: TopicPartition,
        *,
        sequence: int,
        value: bytes,
        adds: bool,
    ) -> tuple[bytes, int]:
        """Returns the id of the topic, and the offset."""
        partition = self.topics.partition(*place)
        settled_at = self._coordinator.admit(*pair, name, place, adds=adds, connection=connection)
        batch = build(
            [Record(0, self.clock.now_ms(), None, value)],
            producer_id=pair[0],
            producer_epoch=pair[1],
            base_sequence=sequence,
            transactional=True,
        )
        [outcome] = partition.log.append([batch])
        if isinstance(outcome, MillstreamError):
            raise outcome
        await asyncio.gather(
            durable(self.flusher, partition.log, partition.log.end_offset),
            durable(self.flusher, self._coordinator.log, settled_at),
        )
        return partition.topic.topic_id, outcome

    async def commit_offset(
        self, connection: int, name: str, pair: tuple[int, int], offset: int, *, adds: bool
    ) -> None:
        """The group has the name of the transactional id."""

        async def commit() -> Sequence[MillstreamError | None]:
            return await self.groups.commit_in_transaction(
                name,
                _NO_MEMBER,
                [OffsetToCommit(SOURCE, 0, offset, -1, "")],
                producer_id=pair[0],
                producer_epoch=pair[1],
            )

        self._coordinator.hear(name, Way.OFFSETS, connection, producer=pair)
        [error] = await self._coordinator.commit_offsets(name, *pair, commit, adds=adds)
        if error is not None:
            raise error

    async def end(self, connection: int, command: End) -> tuple[int, int]:
        pair = command.producer_id, command.producer_epoch
        self._coordinator.hear(command.transactional_id, Way.COORDINATOR, connection, producer=pair)
        ended = await self._coordinator.end(command, connection=connection)
        return ended.producer_id, ended.producer_epoch

    # What there is to be read

    def data_partitions(self) -> Iterator[tuple[tuple[bytes, int], Partition]]:
        for topic in self.topics.all():
            if not topic.is_internal and topic.name != SOURCE:
                for partition in topic.partitions:
                    yield (topic.topic_id, partition.number), partition

    def all_partitions(self) -> Iterator[Partition]:
        for topic in self.topics.all():
            yield from topic.partitions

    def group_offset(self, name: str) -> tuple[int | None, bool]:
        """What a group has committed, and whether a transaction may change it.

        Read without a wait, so that it is of the same moment as the records are.
        """
        found = {group.group_id: offsets for group, offsets in self.groups.committed()}
        committed = found.get(name, {}).get((SOURCE, 0))
        is_pending = (SOURCE, 0) in self.groups.pending(name)
        return None if committed is None else committed.offset, is_pending
