"""Brokers with one defect each in their transactions, to prove that the simulation finds them.

Most defects lie in what a client sees of the coordinator, or in the flusher below it. Some replace
the markers, which the composition root builds. None depends on private names. Defects of the
transition functions are in the tests, which replace the public ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from millstream.broker.topics import Topics
from millstream.broker.transaction_markers import TransactionMarkers
from millstream.broker.transaction_registry import Way
from millstream.broker.transactions import TransactionCoordinator
from millstream.errors import StorageFailure, Superseded, UnknownTopic, UnknownTransaction
from millstream.settings.names import TRANSACTIONS_TOPIC
from millstream.storage.batch_walk import split_batches
from millstream.storage.flusher import Flusher
from millstream.storage.partition_log import PartitionLog
from millstream.storage.producer_state import OpenTransaction
from millstream.transactions import transitions
from millstream.transactions.commands import End
from millstream.transactions.transaction import TopicPartition, Transaction
from millstream.transactions.transaction_records import decode
from tests.fakes.sample_batches import records_in
from tests.simulation.hasty_flusher import HastyFlusher
from tests.simulation.transaction_broker import SimulatedBroker

# Durability


class HastyDecisionFlusher(HastyFlusher):
    """Reports a decision to commit or abort as durable before it is."""

    def is_hasty(self, log: PartitionLog, offset: int) -> bool:
        if not offset or not log.name.startswith(TRANSACTIONS_TOPIC):
            return False
        [(_, batch)] = split_batches(log.read(offset - 1, 1))
        [record] = records_in(batch)
        decoded = decode(bytes(record.key or b""), record.value)
        return decoded is not None and decoded[1] is not None and decoded[1].state.is_ending


class HastyCoordinatorFlusher(HastyFlusher):
    """Reports everything that the coordinator stores as durable before it is."""

    def is_hasty(self, log: PartitionLog, offset: int) -> bool:
        return log.name.startswith(TRANSACTIONS_TOPIC)


class HastyMarkerFlusher(HastyFlusher):
    """Reports a marker as durable before it is."""

    def is_hasty(self, log: PartitionLog, offset: int) -> bool:
        if not offset or log.name.startswith(TRANSACTIONS_TOPIC):
            return False
        [(header, _)] = split_batches(log.read(offset - 1, 1))
        return header.is_control


class HastyDecision(SimulatedBroker):
    flusher_kind = HastyDecisionFlusher


class HastyCoordinator(SimulatedBroker):
    flusher_kind = HastyCoordinatorFlusher


class HastyMarkers(SimulatedBroker):
    flusher_kind = HastyMarkerFlusher


# Markers


class NoMarkersAtStart(TransactionMarkers):
    """Does not tell partitions of the transactions that were decided before a crash."""

    _is_started = False

    async def write(self, ending: Transaction) -> None:
        if self._is_started:
            await super().write(ending)

    async def abort_unknown(
        self, is_known: Callable[[TopicPartition, OpenTransaction], bool]
    ) -> bool:
        self._is_started = True
        return await super().abort_unknown(is_known)


class KeepsUnknown(TransactionMarkers):
    """Leaves transactions open that no coordinator knows."""

    async def abort_unknown(
        self, is_known: Callable[[TopicPartition, OpenTransaction], bool]
    ) -> bool:
        return True


class NeedsTopics(TransactionMarkers):
    """Fails if a topic is deleted while its marker is written."""

    def __init__(self, topics: Topics, flusher: Flusher, **rest: Any) -> None:
        super().__init__(topics, flusher, **rest)
        self._all_topics = topics

    async def write(self, ending: Transaction) -> None:
        before = {place for place in ending.partitions if self._exists(place)}
        await super().write(ending)
        for topic, number in before:
            if not self._exists((topic, number)):
                raise StorageFailure(path=f"{topic}/{number}", operation="sync", reason="deleted")

    def _exists(self, place: TopicPartition) -> bool:
        try:
            self._all_topics.partition(*place)
        except UnknownTopic:
            return False
        return True


class ForgetsDecided(SimulatedBroker):
    markers_kind = NoMarkersAtStart


class HangingTransactions(SimulatedBroker):
    markers_kind = KeepsUnknown


class StrictMarkers(SimulatedBroker):
    markers_kind = NeedsTopics


# Between the clients and the coordinator


class BrokenTransactions:
    """Passes every request on unchanged."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self.coordinator = coordinator

    def __getattr__(self, name: str) -> Any:
        return getattr(self.coordinator, name)


class AdmitsAll(BrokenTransactions):
    """Lets records into partitions that are not part of the transaction."""

    def admit(self, *_: Any, **__: Any) -> int:
        return 0


class AnswersEarly(BrokenTransactions):
    """Answers before the transaction is decided."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        super().__init__(coordinator)
        self._tasks: set[asyncio.Task[Transaction]] = set()

    async def end(self, command: End, *, connection: int) -> Transaction:
        before = self.coordinator.registry.find(command.transactional_id).transaction
        ending = self.coordinator.end(command, connection=connection)
        if transitions.needs_new_producer_id(before, command):
            return await ending
        try:
            after = transitions.end(before, command, 0)
        except BaseException:
            ending.close()
            raise
        task = asyncio.get_running_loop().create_task(ending)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return transitions.completed(after, 0) if after.state.is_ending else after

    def _forget(self, task: asyncio.Task[Transaction]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


class NewConnections(BrokenTransactions):
    """Takes every request as if it came through a new connection, however late it is."""

    def hear(self, transactional_id: str, way: Way, connection: int, **rest: Any) -> None:
        connection = self.new_connection(transactional_id, way, connection)
        self.coordinator.hear(transactional_id, way, connection, **rest)

    def admit(
        self,
        producer_id: int,
        producer_epoch: int,
        transactional_id: str,
        *rest: Any,
        connection: int,
        **options: Any,
    ) -> int:
        connection = self.new_connection(transactional_id, Way.RECORDS, connection)
        return self.coordinator.admit(
            producer_id, producer_epoch, transactional_id, *rest, connection=connection, **options
        )

    def new_connection(self, transactional_id: str, way: Way, connection: int) -> int:
        return self.coordinator.connections.next()


class KeepsConnections(NewConnections):
    """Refuses late requests, but does not see that records come through two after an abort."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        super().__init__(coordinator)
        self._newest: dict[str, int] = {}
        self._seen: dict[str, int] = {}

    def new_connection(self, transactional_id: str, way: Way, connection: int) -> int:
        if way is not Way.RECORDS:
            return connection
        if connection < self._newest.get(transactional_id, 0):
            raise Superseded(transactional_id)
        self._newest[transactional_id] = connection
        return self._seen.setdefault(transactional_id, self.coordinator.connections.next())


class ForgetsFirst(BrokenTransactions):
    """Does not note the connection of the first request of a transactional id."""

    def hear(self, transactional_id: str, *rest: Any, **options: Any) -> None:
        try:
            self.coordinator.registry.describe(transactional_id)
        except UnknownTransaction:
            return
        self.coordinator.hear(transactional_id, *rest, **options)


def with_transactions(broken: type[BrokenTransactions]) -> type[SimulatedBroker]:
    """A broker whose clients reach the coordinator through `broken`."""

    class Broken(SimulatedBroker):
        transactions_kind = broken

    return Broken
