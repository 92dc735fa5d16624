"""The transaction coordinator: every use case of transactions.

What happens to a transactional id is decided by pure functions (`transactions.transitions`). This
stores what they decide, carries it out, keeps their time, and answers.

Invariants, which are what makes a crash harmless:
- A partition takes a transactional batch only while the coordinator has it in the ongoing
  transaction of that producer and epoch (`admit`); whoever wrote it is answered when the records
  and the coordinator's own record of it are both durable.
- A commit is decided when all its records are durable and then so is the decision. Only then are
  markers written; only when all of them are durable is it complete; and only when that is
  durable too can the next transaction of the same producer begin.
- Everything about one transactional id happens in turn, one after the other.

After a crash: `start` replays the log. A transaction that was decided is completed: there are no
newer records of its producer that a marker could be taken for. What a partition has open beyond
that was never acknowledged. If it is of a producer and epoch that count, it was admitted, and is so
again: when the producer repeats itself, the partition takes those records for stored. All else is
aborted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from millstream.broker.connection_numbers import ConnectionNumbers
from millstream.broker.state_log import StateLog
from millstream.broker.steady_clock import SteadyClock
from millstream.broker.transaction_markers import TransactionMarkers
from millstream.broker.transaction_registry import (
    HostedTransaction,
    TransactionRegistry,
    Way,
    check_id,
    is_id,
)
from millstream.broker.transaction_turns import TransactionTurns
from millstream.clock import Clock
from millstream.errors import (
    InvalidRequest,
    InvalidTransactionState,
    LimitReached,
    MillstreamError,
    StorageFailure,
    Unavailable,
    UnknownProducer,
    UnknownTopic,
)
from millstream.records import Record
from millstream.settings.names import OFFSETS_TOPIC
from millstream.settings.transactions import TransactionSettings
from millstream.storage.partition_log import PartitionLog
from millstream.storage.producer_state import OpenTransaction
from millstream.transactions import transitions
from millstream.transactions.commands import AddPartitions, End, InitProducer
from millstream.transactions.transaction import TopicPartition, Transaction
from millstream.transactions.transaction_records import decode, encode, tombstone

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
"""After an end that could not be carried out."""
_OFFSETS: TopicPartition = (OFFSETS_TOPIC, 0)
_RETRIED = (Unavailable, StorageFailure, UnknownTopic)
"""Errors on which a client may send an offset commit again."""


class TransactionCoordinator:
    """Coordinates all transactions of the broker. Lives on the event loop."""

    def __init__(
        self,
        state_log: StateLog,
        markers: TransactionMarkers,
        *,
        settings: TransactionSettings,
        clock: Clock,
        new_producer_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._state_log = state_log
        self._markers = markers
        self.settings = settings
        """May become others at any time."""
        # No transaction times out because somebody sets the machine's clock.
        self._clock = SteadyClock(clock)
        self._new_producer_id = new_producer_id
        self.registry = TransactionRegistry()
        self.connections = ConnectionNumbers()
        """All that clients ask comes through connections with such a number."""
        self._turns = TransactionTurns(self.registry)

    # Life

    async def start(self) -> None:
        """Bring back what the log holds, and end what a crash has left half-ended."""
        newest: dict[bytes, Record] = {}
        for record in self._state_log.replay():
            newest[bytes(record.key or b"")] = record
        for key, record in newest.items():
            decoded = decode(key, record.value)
            if decoded is None:
                _log.warning(
                    "the transaction record at offset %(offset)d is unknown",
                    {"offset": record.offset},
                )
            elif decoded[1] is not None:
                found = HostedTransaction(decoded[0])
                self._take(found, decoded[1])
                found.restored()
        ending = [each for each in self.registry.all() if each.is_ending]
        # Together, so that they share their syncs.
        await asyncio.gather(*(self._turns.take(each, self._complete) for each in ending))
        hosted = list(self.registry.all())
        if hosted:
            ongoing = sum(
                each.transaction is not None and bool(each.transaction.partitions)
                for each in hosted
            )
            _log.info(
                "%(count)d transactional ids, %(ongoing)d with a transaction under way",
                {"count": len(hosted), "ongoing": ongoing},
            )
        await self._settle_unknown()

    async def _settle_unknown(self) -> None:
        """Take up or abort what partitions have open and no transaction covers."""
        if not await self._markers.abort_unknown(self._knows_or_takes_up):
            loop = asyncio.get_running_loop()
            loop.call_later(_RETRY_S, lambda: self._turns.begin(self._settle_unknown()))

    def _knows_or_takes_up(self, place: TopicPartition, unknown: OpenTransaction) -> bool:
        """Raises MillstreamError when it cannot be stored that it is taken up."""
        hosted = self.registry.of_producer(unknown.producer_id)
        transaction = hosted.transaction if hosted is not None else None
        epoch = unknown.epoch
        if transaction and place in transaction.partitions and transaction.data_epoch == epoch:
            # One that could not be completed yet will be.
            return True
        if unknown.is_doubtful:
            _log.error(
                "%(topic)s/%(partition)d: a transaction of producer %(producer)d from offset "
                "%(offset)d may have been committed where the log is damaged: it stays open, and "
                "is aborted by the next start after `millstream segment repair`",
                {
                    "topic": place[0],
                    "partition": place[1],
                    "producer": unknown.producer_id,
                    "offset": unknown.first_offset,
                },
            )
            return True
        if hosted is None or transaction is None:
            return False
        if not transitions.may_take_up(transaction, epoch):
            return False
        self._store(hosted, transitions.taken_up(transaction, place, self._clock.now_ms()))
        hosted.restored()
        return True

    async def close(self) -> None:
        """Let nothing begin any more, and return when nothing is under way."""
        for hosted in self.registry.all():
            _cancel_timer(hosted)
        await self._turns.close()

    # What producers ask for

    async def init_producer(self, command: InitProducer) -> Transaction:
        """Give out a producer id and epoch; whoever had the transactional id before is fenced."""
        check_id(command.transactional_id)

        async def work(hosted: HostedTransaction) -> Transaction:
            after = await self._initialised(hosted, command)
            while after.state.is_ending:
                await self._finish(hosted, after)
                after = await self._initialised(hosted, command)
            self._store_if_new(hosted, after)
            # What the producer before had open for writing is told by its epoch.
            hosted.forget_writers()
            await self._settled(hosted)
            return after

        hosted = self.registry.find(command.transactional_id)
        if hosted.transaction is None and self.registry.count >= self.settings.ids_max_count:
            self.registry.release(hosted)
            raise LimitReached(
                kind="transactional ids",
                limit=self.settings.ids_max_count,
                setting="millstream.transactional.ids.max.count",
            )
        return await self._turns.ask(self.registry.keep(hosted), work)

    async def _initialised(self, hosted: HostedTransaction, command: InitProducer) -> Transaction:
        new_producer_id = await self._id_for(hosted.transaction, command)
        return transitions.init(
            # Looked at only now: records may have been admitted while an id was waited for.
            hosted.transaction,
            command,
            self._clock.now_ms(),
            new_producer_id=new_producer_id,
            settings=self.settings,
        )

    async def add_partitions(self, command: AddPartitions) -> None:
        """Let the producer write to partitions, from when this returns."""

        async def work(hosted: HostedTransaction) -> None:
            now_ms = self._clock.now_ms()
            after = transitions.add_partitions(hosted.transaction, command, now_ms)
            hosted.owes_offsets |= _OFFSETS in command.partitions
            self._store_if_new(hosted, after)
            await self._settled(hosted)

        await self._turns.ask(self.registry.find(command.transactional_id), work)

    async def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> None:
        """Let the producer commit offsets of groups in its transaction."""
        await self.add_partitions(
            AddPartitions(transactional_id, producer_id, producer_epoch, frozenset({_OFFSETS}))
        )

    async def commit_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: Callable[[], Awaitable[Sequence[MillstreamError | None]]],
        *,
        adds: bool,
    ) -> Sequence[MillstreamError | None]:
        """Have offsets committed in a transaction; meanwhile it does not end.

        `adds` says that the client relies on this to make them part of it.
        """

        async def work(hosted: HostedTransaction) -> Sequence[MillstreamError | None]:
            after = self._admitted(hosted, producer_id, producer_epoch, _OFFSETS, adds=adds)
            self._store_if_new(hosted, after)
            results = await commit()
            await self._settled(hosted)
            if not any(isinstance(each, _RETRIED) for each in results):
                hosted.owes_offsets = False
            return results

        return await self._turns.ask(self.registry.find(transactional_id), work)

    async def end(self, command: End, *, connection: int) -> Transaction:
        """Commit or abort; returns the id and epoch to go on with."""

        async def work(hosted: HostedTransaction) -> Transaction:
            new_producer_id = await self._id_for(hosted.transaction, command)
            # Looked at only now: records may have been admitted while an id was waited for.
            before = hosted.transaction
            after = transitions.end(
                before,
                command,
                self._clock.now_ms(),
                new_producer_id=new_producer_id,
                has_records=hosted.has_records,
            )
            if command.is_commit and hosted.is_doubtful:
                raise hosted.doubt()
            if after is before:
                await self._settled(hosted)
                return after
            newest = self.connections.newest
            await self._finish(hosted, after)
            if hosted.owes_offsets and not (command.is_commit or command.bumps_epoch):
                hosted.retire_offsets(newest, spared=connection)
            hosted.ended()
            # Decided is enough of an answer, even if some partition could not be told yet.
            return transitions.completed(after, self._clock.now_ms())

        return await self._turns.ask(self.registry.find(command.transactional_id), work)

    # What is written in transactions

    def admit(
        self,
        producer_id: int,
        producer_epoch: int,
        transactional_id: str | None,
        partition: TopicPartition,
        *,
        adds: bool,
        connection: int,
        also: frozenset[TopicPartition] = frozenset(),
    ) -> int:
        """Allow a write now, or raise why not; returns up to where `log` must be durable.

        Whoever calls this appends the records before anything else can happen.
        """
        hosted = self.registry.of_producer(producer_id)
        if hosted is None:
            raise InvalidTransactionState(
                identity=producer_id, state="unknown", operation="write to a transaction"
            )
        if hosted.transactional_id != transactional_id:
            raise UnknownProducer(transactional_id=transactional_id or "", producer_id=producer_id)
        after = self._admitted(hosted, producer_id, producer_epoch, partition, adds=adds, also=also)
        hosted.hear_write(connection)
        self._store_if_new(hosted, after)
        return hosted.stored_at

    def _admitted(
        self,
        hosted: HostedTransaction,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        adds: bool,
        also: frozenset[TopicPartition] = frozenset(),
    ) -> Transaction:
        if hosted.transaction is None:
            raise UnknownProducer(transactional_id=hosted.transactional_id, producer_id=producer_id)
        now_ms = self._clock.now_ms()
        return transitions.admit_write(
            hosted.transaction, producer_id, producer_epoch, partition, now_ms, adds=adds, also=also
        )

    @property
    def log(self) -> PartitionLog:
        """What was admitted is settled when this is durable, up to the offset that came with it."""
        return self._state_log.log

    def hear(
        self,
        transactional_id: str,
        way: Way,
        connection: int,
        *,
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Take note that a producer speaks through a connection. Raises Superseded.

        `producer` is who it says it is, if it does: others are not heard, only refused.
        """
        hosted = self.registry.find(transactional_id)
        if producer is None and is_id(transactional_id):
            # One that is new, too: its producer may send its first request again.
            hosted = self.registry.keep(hosted)
        if producer is None or producer == hosted.identity:
            hosted.hear(way, connection)

    def verify(self, command: AddPartitions) -> dict[TopicPartition, MillstreamError | None]:
        """For each partition, why the producer may not write to it now, if so."""
        hosted = self.registry.find(command.transactional_id)
        found: dict[TopicPartition, MillstreamError | None] = {}
        for partition in command.partitions:
            try:
                self._admitted(
                    hosted, command.producer_id, command.producer_epoch, partition, adds=False
                )
                found[partition] = None
            except MillstreamError as error:
                found[partition] = error
        return found

    # Carrying out

    async def _finish(self, hosted: HostedTransaction, ending: Transaction) -> None:
        """Decide, for good; then complete what was decided, or see to it that it will be."""
        before = hosted.transaction
        # From here on it takes no more records.
        hosted.transaction = ending
        try:
            if transitions.is_commit(ending):
                await self._markers.data_durable(ending)
            self._store(hosted, ending)
        except MillstreamError as failure:
            hosted.transaction = before
            raise _as_unavailable(ending.transactional_id, failure) from failure
        if transitions.is_fenced(ending):
            _log.info(
                "%(transaction)s is aborted, and its producer fenced",
                {"transaction": _told(ending)},
            )
        # Durable before any marker: from here on the decision is the same after any crash.
        await self._settled(hosted)
        await self._complete(hosted)

    async def _complete(self, hosted: HostedTransaction) -> None:
        ending = hosted.transaction
        assert ending is not None
        if not ending.state.is_ending:
            return
        try:
            await self._markers.write(ending)
            completed = transitions.completed(ending, self._clock.now_ms())
            hosted.stored_at = self._state_log.append([encode(completed)])
            # Durable before the next transaction begins, see above.
            await self._state_log.durable(hosted.stored_at)
        except MillstreamError as failure:
            _log.error(
                "the transaction of %(transactional_id)r is decided, but could not be ended "
                "everywhere, and will be tried again: %(error)s",
                {"transactional_id": ending.transactional_id, "error": failure},
            )
            self._start_timer(hosted, _RETRY_S)
        else:
            self._take(hosted, completed)

    async def _id_for(self, transaction: Transaction | None, command: InitProducer | End) -> int:
        if transitions.needs_new_producer_id(transaction, command):
            return await self._new_producer_id()
        return -1

    def _store_if_new(self, hosted: HostedTransaction, transaction: Transaction) -> None:
        if transaction is not hosted.transaction:
            self._store(hosted, transaction)

    def _store(self, hosted: HostedTransaction, transaction: Transaction) -> None:
        try:
            hosted.stored_at = self._state_log.append([encode(transaction)])
        except InvalidRequest:
            raise
        except MillstreamError as failure:
            raise _as_unavailable(transaction.transactional_id, failure) from failure
        self._take(hosted, transaction)

    def _take(self, hosted: HostedTransaction, transaction: Transaction) -> None:
        self.registry.take(hosted, transaction)
        self._set_timer(hosted)

    async def _settled(self, hosted: HostedTransaction) -> None:
        """Return when all that was stored of a transactional id is durable."""
        try:
            await self._state_log.durable(hosted.stored_at)
        except MillstreamError as failure:
            raise _as_unavailable(hosted.transactional_id, failure) from failure

    # The passing of time

    def _set_timer(self, hosted: HostedTransaction) -> None:
        """Have a timer at or before the deadline: one that is early just looks again."""
        assert hosted.transaction is not None
        deadline_ms = transitions.deadline_ms(hosted.transaction, self.settings)
        if deadline_ms is None:
            _cancel_timer(hosted)
        else:
            delay_s = max(deadline_ms - self._clock.now_ms(), 0) / 1000
            if hosted.timer is None or hosted.timer.when() > _loop_time() + delay_s:
                self._start_timer(hosted, delay_s)

    def _start_timer(self, hosted: HostedTransaction, delay_s: float) -> None:
        _cancel_timer(hosted)
        if not self._turns.is_closed:
            hosted.timer = asyncio.get_running_loop().call_later(delay_s, self._on_time, hosted)

    def _on_time(self, hosted: HostedTransaction) -> None:
        hosted.timer = None
        self._turns.begin(self._turns.take(hosted, self._pass_time))

    async def _pass_time(self, hosted: HostedTransaction) -> None:
        before = hosted.transaction
        if before is None or self._turns.is_closed:
            return
        if before.state.is_ending:
            await self._complete(hosted)
            return
        after = transitions.tick(before, self._clock.now_ms(), self.settings)
        if after is before:
            self._set_timer(hosted)
            return
        try:
            if after is None:
                self._expire(hosted, before)
            else:
                _log.info(
                    "%(transaction)s did not end within %(timeout_ms)d ms",
                    {"transaction": _told(before), "timeout_ms": before.timeout_ms},
                )
                await self._finish(hosted, after)
        except MillstreamError:
            # Why is in the log.
            self._start_timer(hosted, _RETRY_S)

    def _expire(self, hosted: HostedTransaction, unused: Transaction) -> None:
        try:
            self._state_log.append([tombstone(unused.transactional_id)])
        except MillstreamError as failure:
            raise _as_unavailable(unused.transactional_id, failure) from failure
        _log.info(
            "transactional id %(transactional_id)r was not used for long and is forgotten",
            {"transactional_id": hosted.transactional_id},
        )
        self.registry.take(hosted, None)


def _told(transaction: Transaction) -> str:
    places = ", ".join(f"{topic}/{number}" for topic, number in sorted(transaction.partitions)[:5])
    return (
        f"the transaction of {transaction.transactional_id!r} (producer {transaction.producer_id}, "
        f"epoch {transaction.data_epoch}; {len(transaction.partitions)} partitions: {places})"
    )


def _cancel_timer(hosted: HostedTransaction) -> None:
    if hosted.timer is not None:
        hosted.timer.cancel()
        hosted.timer = None


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _as_unavailable(transactional_id: str, failure: MillstreamError) -> Unavailable:
    """Why a transaction could not be stored is for the log; to a client nobody coordinates it."""
    if isinstance(failure, Unavailable) and type(failure) is Unavailable:
        return failure
    _log.error(
        "the transaction of %(transactional_id)r cannot be stored: %(error)s",
        {"transactional_id": transactional_id, "error": failure},
    )
    return Unavailable()
