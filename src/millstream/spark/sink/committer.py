"""The driver's part: finish what was decided, sweep what was not, decide a batch.

Every step may be the last before a crash; the package's docstring tells what a restart does then.
Nothing is kept between calls: all that matters is in the commit record and at the coordinators.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import quote

from millstream.client.kafka import Cluster
from millstream.client.kafka.transactions import ProducerIdentity, Transactions
from millstream.clock import Clock
from millstream.errors import (
    BatchForgotten,
    BatchTorn,
    Conflict,
    QueryStartedOver,
    QueryTakenOver,
    TransactionExpired,
    TransactionLost,
)
from millstream.spark.fingerprint import Fingerprint
from millstream.spark.sink.claim import Claim, label_of
from millstream.spark.sink.commit_log import CommitLog
from millstream.spark.sink.commit_record import (
    CommitRecord,
    Replay,
    State,
    TaskTransaction,
)
from millstream.spark.sink.standing import Standing, standing

_ID_PREFIX = "millstream.spark"
_ONGOING = "Ongoing"
_THREADS = 8
# For fewer, another connection costs more than it gains.
_FEW = 2

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def id_prefix(name: str) -> str:
    """What the transactional ids of all tasks of a query begin with, and no others."""
    return f"{_ID_PREFIX}/{quote(name, safe='')}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one task has to say of its share of a batch."""

    task: int
    standing: Standing
    fingerprint: Fingerprint
    transaction: TaskTransaction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch whose tasks are done."""

    query_id: str
    number: int | None
    """None for a job that is not one of a sequence."""
    parts: Sequence[Part]

    @property
    def transactions(self) -> list[TaskTransaction]:
        return [part.transaction for part in self.parts if part.transaction is not None]

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint.total(part.fingerprint for part in self.parts)


class Committer:
    """For one query. `name` is what the record and the transactional ids are kept under."""

    def __init__(self, cluster: Cluster, name: str, *, timeout_ms: int, clock: Clock) -> None:
        self._cluster = cluster
        self._log = CommitLog(cluster, clock)
        self._name = name
        self._timeout_ms = timeout_ms

    def recover(self, *, repeats: bool = True) -> CommitRecord:
        """Finish what an earlier driver decided. Harmless at any time.

        `repeats`: Spark will run a batch again that it does not know to be written. Raises
        BatchTorn, once, where it will not.
        """
        self._log.create()
        record = self._log.newest(self._name).record or CommitRecord(name=self._name)
        if record.state is State.DECIDED:
            record = self._claim_finished().record
        if record.state is State.TORN:
            torn = self._torn(record)
            if not repeats:
                claim = self._claim_finished()
                claim.change(claim.record.finished())
                raise torn
            # Not silent, and no error yet: the batch runs again, and is then proven or refused.
            warnings.warn(str(torn), stacklevel=2)
        return record

    def sweep(self) -> None:
        """Abort all that was not decided. Before the tasks of a batch run."""
        if self._ongoing():
            self._claim_finished()
            self._abort_ongoing()

    def commit(self, batch: Batch) -> None:
        """Make a batch count, once. When this returns, it is in its topics."""
        claim = self._claim_finished()
        record = claim.record
        kind = standing(record, query_id=batch.query_id, batch=batch.number)
        if kind is Standing.STALE:
            raise self._refusal(record, batch)
        if kind is not Standing.SKIP:
            if any(part.standing is not kind for part in batch.parts):
                raise QueryTakenOver(query=label_of(self._name))
            if kind is Standing.REPLAY:
                claim.change(self._replayed(record, batch))
            else:
                self._decide(claim, batch)
        self._abort_ongoing()

    def abort(self) -> None:
        """Give a batch up, unless it was decided: then finish it."""
        self._claim_finished()
        self._abort_ongoing()

    def forget(self) -> None:
        """Remove what is kept for a name that nobody will use again."""
        self._claim_finished().forget()

    def _decide(self, claim: Claim, batch: Batch) -> None:
        record = claim.record
        number = record.batch + 1 if batch.number is None else batch.number
        decided = record.decided(
            query_id=batch.query_id,
            batch=number,
            transactions=batch.transactions,
            parts={part.task: part.fingerprint for part in batch.parts},
        )
        if decided.is_repair and decided.prints != record.prints:
            raise self._torn(record)
        if not decided.transactions:
            claim.change(decided.finished())
            return
        self._check_ongoing(batch, number)
        # The commit point.
        claim.change(decided)
        self._finish(claim)
        if claim.record.batch != number:
            raise self._expired(number, decided.transactions[0])
        if claim.record.state is State.TORN:
            raise self._torn(claim.record)

    def _claim_finished(self) -> Claim:
        own_id = f"{_ID_PREFIX}.driver/{quote(self._name, safe='')}"

        def initialise() -> ProducerIdentity:
            return self._cluster.transactions.init(own_id, self._timeout_ms)

        claim = Claim.take(self._log, self._name, initialise)
        if claim.record.state is State.DECIDED:
            self._finish(claim)
        return claim

    def _finish(self, claim: Claim) -> None:
        """Commit what is decided: then it is done, or torn, or was never visible."""
        record = claim.record
        lost = [each for each in self._each(_commit, record.transactions) if each is not None]
        if forgotten := [each for each in self._each(_find_forgotten, lost) if each is not None]:
            # One of them may have been committed: to write it again could double its rows.
            parts = replace(record, transactions=tuple(forgotten)).lost_parts
            raise BatchForgotten(query=label_of(self._name), batch=record.batch, parts=parts)
        if not lost:
            claim.change(record.finished())
        elif len(lost) == len(record.transactions) and not record.is_repair:
            claim.change(record.taken_back())
        else:
            claim.change(record.torn(lost))

    def _check_ongoing(self, batch: Batch, number: int) -> None:
        """So that what is decided can be committed, unless the driver stays away for long."""
        for each in self._each(_find_ended, batch.transactions):
            if each is not None:
                raise self._expired(number, each)

    def _ongoing(self) -> list[str]:
        return self._cluster.transactions.ongoing(id_prefix(self._name))

    def _abort_ongoing(self) -> None:
        def abort(transactions: Transactions, transactional_id: str) -> None:
            # A new epoch aborts, and keeps a task that still runs from going on.
            transactions.init(transactional_id, self._timeout_ms)

        self._each(abort, self._ongoing())

    def _each(
        self, act: Callable[[Transactions, _Item], _Result], items: Sequence[_Item]
    ) -> list[_Result]:
        """Do it for each, several at a time: most of it is waiting for a disk."""
        if len(items) <= _FEW:
            return [act(self._cluster.transactions, each) for each in items]
        threads = min(len(items), _THREADS)

        def run(share: Sequence[_Item]) -> list[_Result]:
            with Cluster(self._cluster.settings) as cluster:
                return [act(cluster.transactions, each) for each in share]

        with ThreadPoolExecutor(threads) as pool:
            shares = pool.map(run, [items[first::threads] for first in range(threads)])
            return [result for share in shares for result in share]

    def _replayed(self, record: CommitRecord, batch: Batch) -> CommitRecord:
        assert batch.number is not None
        replay = record.replay
        is_same = replay is not None and replay.query_id == batch.query_id
        before = [replay.seen] if replay is not None and is_same else []
        seen = Fingerprint.total([*before, batch.fingerprint])
        if batch.fingerprint.row_count and seen.text() not in record.history:
            raise self._refusal(record, batch)
        return record.replayed(Replay(query_id=batch.query_id, batch=batch.number, seen=seen))

    def _refusal(self, record: CommitRecord, batch: Batch) -> Conflict:
        if record.state is State.TORN:
            return self._torn(record)
        assert batch.number is not None
        return QueryStartedOver(
            query=label_of(self._name),
            batch=batch.number,
            last_batch=record.batch,
            written_rows=None if record.written is None else record.written.row_count,
        )

    def _torn(self, record: CommitRecord) -> BatchTorn:
        return BatchTorn(query=label_of(self._name), batch=record.batch, parts=record.lost_parts)

    def _expired(self, number: int, each: TaskTransaction) -> TransactionExpired:
        return TransactionExpired(
            query=label_of(self._name),
            batch=number,
            task=each.task,
            transactional_id=each.transactional_id,
            timeout_ms=self._timeout_ms,
        )


def _commit(transactions: Transactions, each: TaskTransaction) -> TaskTransaction | None:
    """The transaction, if it is lost. Whether it was committed before makes no difference."""
    try:
        transactions.end(each.transactional_id, each.producer_id, each.producer_epoch, commit=True)
    except TransactionLost:
        return each
    return None


def _find_forgotten(transactions: Transactions, each: TaskTransaction) -> TaskTransaction | None:
    """The transaction, if the coordinator no longer knows that it ever was."""
    told = transactions.describe(each.transactional_id)
    is_known = told is not None and told.producer_id == each.producer_id
    return None if is_known else each


def _find_ended(transactions: Transactions, each: TaskTransaction) -> TaskTransaction | None:
    """The transaction, if it is no longer under way."""
    told = transactions.describe(each.transactional_id)
    is_ongoing = (
        told is not None
        and told.state == _ONGOING
        and (told.producer_id, told.producer_epoch) == (each.producer_id, each.producer_epoch)
    )
    return None if is_ongoing else each
