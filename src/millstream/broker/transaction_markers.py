"""Markers: how each partition that a transaction wrote to hears how it ended.

Invariant: a marker goes only where the log has that producer's transaction open, so that to write
them again, after a crash or a failure half-way, does no harm.
After a crash: a transaction that a log has open and that no coordinator knows was never
acknowledged to anyone; `abort_unknown` ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from millstream.broker.durability import durable
from millstream.broker.partition import Partition
from millstream.broker.topics import Topics
from millstream.clock import Clock
from millstream.errors import MillstreamError, UnknownTopic
from millstream.records.control import ControlType, build_control
from millstream.settings.names import OFFSETS_TOPIC
from millstream.storage.flusher import Flusher
from millstream.storage.producer_state import OpenTransaction
from millstream.transactions.transaction import TopicPartition, Transaction
from millstream.transactions.transitions import is_commit, marker_epoch

_log = logging.getLogger(__name__)

_COORDINATOR_EPOCH = 0
"""There is one coordinator, and there never was another."""


class EndOffsets(Protocol):
    """Settles the offsets that a producer has committed in its transaction."""

    def __call__(self, producer_id: int, *, is_commit: bool) -> None: ...


class TransactionMarkers:
    """Tells partitions of the ends of transactions."""

    def __init__(
        self,
        topics: Topics,
        flusher: Flusher,
        *,
        clock: Clock,
        end_offsets: EndOffsets,
    ) -> None:
        """`end_offsets` is called when offsets that were committed have got their marker."""
        self._topics = topics
        self._flusher = flusher
        self._clock = clock
        self._end_offsets = end_offsets

    async def data_durable(self, transaction: Transaction) -> None:
        """Return when all records of a transaction are on disk. Raises StorageFailure."""
        await self._durable(self._partitions(transaction.partitions))

    async def write(self, ending: Transaction) -> None:
        """End a transaction wherever it is open; return when that is durable.

        Raises MillstreamError when one partition could not be told; all others were.
        """
        kind = ControlType.COMMIT if is_commit(ending) else ControlType.ABORT
        failure: MillstreamError | None = None
        told = []
        for partition in self._partitions(ending.partitions):
            try:
                if partition.log.producers.open_transaction(ending.producer_id) is not None:
                    self._mark(partition, kind, ending.producer_id, marker_epoch(ending))
                told.append(partition)
            except MillstreamError as error:
                failure = error
        # Also where an earlier attempt has left one: it may not be durable yet.
        await self._durable(told)
        if failure is not None:
            raise failure

    async def abort_unknown(
        self, is_known: Callable[[TopicPartition, OpenTransaction], bool]
    ) -> bool:
        """Abort every open transaction that is not known; whether none of them is left."""
        is_done = True
        touched = []
        for topic in list(self._topics.all()):
            for partition in topic.partitions:
                if partition.failure is None:
                    for unknown in list(partition.log.producers.open_transactions()):
                        is_done &= self._settle(partition, unknown, is_known)
                        touched.append(partition)
        try:
            await self._durable(touched)
        except MillstreamError as error:
            _log.error(
                "transactions that nobody knows may be open again after a crash: %(error)s",
                {"error": error},
            )
        return is_done

    def _settle(
        self,
        partition: Partition,
        unknown: OpenTransaction,
        is_known: Callable[[TopicPartition, OpenTransaction], bool],
    ) -> bool:
        """Whether an open transaction is known, or aborted."""
        place = f"{partition.topic.name}/{partition.number}"
        try:
            if is_known((partition.topic.name, partition.number), unknown):
                return True
            self._mark(partition, ControlType.ABORT, unknown.producer_id, unknown.epoch)
        except MillstreamError as error:
            _log.error(
                "%(log)s: a transaction that nobody knows stays open for now: %(error)s",
                {"log": place, "error": error},
            )
            return False
        _log.warning(
            "%(log)s: aborted a transaction of producer %(producer_id)d, begun at "
            "offset %(offset)d, that nobody knows",
            {"log": place, "producer_id": unknown.producer_id, "offset": unknown.first_offset},
        )
        return True

    def _mark(self, partition: Partition, kind: ControlType, producer_id: int, epoch: int) -> None:
        marker = build_control(
            kind,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=_COORDINATOR_EPOCH,
            timestamp_ms=self._clock.now_ms(),
        )
        [outcome] = partition.log.append([marker])
        if isinstance(outcome, MillstreamError):
            raise outcome
        if partition.topic.name == OFFSETS_TOPIC:
            self._end_offsets(producer_id, is_commit=kind is ControlType.COMMIT)
        partition.wake()

    def _partitions(self, places: Iterable[TopicPartition]) -> list[Partition]:
        """Those that are there, in the same order always: what was deleted needs no end."""
        found = []
        for topic, number in sorted(places):
            try:
                found.append(self._topics.partition(topic, number))
            except UnknownTopic:
                continue
        return found

    async def _durable(self, partitions: Iterable[Partition]) -> None:
        waited = list(partitions)
        waits = [durable(self._flusher, p.log, p.log.end_offset) for p in waited]
        failures = await asyncio.gather(*waits, return_exceptions=True)
        for partition, failure in zip(waited, failures, strict=True):
            place = (partition.topic.name, partition.number)
            # What was deleted meanwhile needs no end, either.
            if failure is not None and partition in self._partitions([place]):
                raise failure
