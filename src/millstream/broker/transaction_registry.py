"""Everything that the coordinator knows of transactional ids, by their names and their producers.

Invariant: every transactional id that has a producer is here, once, under its name and under the
id of that producer; one without is here only while somebody is at work on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from enum import Enum

from millstream.errors import (
    InvalidName,
    InvalidTransactionState,
    Superseded,
    UnknownTransaction,
)
from millstream.settings.names import OFFSETS_TOPIC
from millstream.transactions.transaction import Transaction, TransactionState

_LONGEST_ID_BYTES = 32767


class Way(Enum):
    """What a producer has a connection for: clients use one for each of these at a time."""

    COORDINATOR = 0
    RECORDS = 1
    OFFSETS = 2


_LOST_CONNECTION = 0
"""A number that no connection has."""


class HostedTransaction:
    """A transactional id, and what the coordinator needs to know of it."""

    __slots__ = (
        "_retired",
        "_spared",
        "_writer",
        "connections",
        "is_doubtful",
        "owes_offsets",
        "stored_at",
        "timer",
        "transaction",
        "transactional_id",
        "turn",
        "users",
    )

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.transaction: Transaction | None = None
        self.stored_at = 0
        """The end of the log after its last record."""
        self.turn = asyncio.Lock()
        self.users = 0
        """How many have their turn, or wait for it."""
        self.timer: asyncio.TimerHandle | None = None
        self.connections: dict[Way, int] = {}
        """The newest connection that its producer has used, for each purpose."""
        self._retired = 0
        """Connections up to this number commit no offsets for it, but for the one spared."""
        self._spared = 0
        self._writer: int | None = None
        """The connection that has brought records of this transaction, noted after an abort."""
        self.is_doubtful = False
        """Whether its transaction may hold records that its producer gave up, and must abort."""
        self.owes_offsets = False
        """Whether its producer has announced offsets, and has not had them committed since."""

    @property
    def identity(self) -> tuple[int, int] | None:
        """The id and epoch of its producer."""
        transaction = self.transaction
        if transaction is None:
            return None
        return transaction.producer_id, transaction.producer_epoch

    @property
    def is_ending(self) -> bool:
        return self.transaction is not None and self.transaction.state.is_ending

    def hear(self, way: Way, connection: int) -> None:
        """Take note that its producer speaks through a connection. Raises Superseded.

        A producer speaks through one connection at a time. When it gives one up, for a timeout or
        a failure, a request may still be under way there, to arrive long after it was repeated
        through the next one; it would then do to a later transaction what was meant for an
        earlier one. A client that does use several connects again, and has lost nothing.
        """
        is_retired = connection <= self._retired and connection != self._spared
        if connection < self.connections.get(way, 0) or (is_retired and way is Way.OFFSETS):
            raise Superseded(self.transactional_id)
        self.connections[way] = connection

    def hear_write(self, connection: int) -> None:
        """The same for records. Raises InvalidTransactionState where they are in doubt.

        A client that aborts and keeps its epoch gives up a write only together with the connection
        that it was sent through, and such a write may arrive in the next transaction. The client's
        own records then come through another connection. So the transactions after an abort take
        records through one connection only.
        """
        self.hear(Way.RECORDS, connection)
        assert self.transaction is not None
        if not self.transaction.follows_abort:
            return
        if self._writer is not None and self._writer != connection:
            self.is_doubtful = True
        if self.is_doubtful:
            raise self.doubt()
        self._writer = connection

    @property
    def has_records(self) -> bool:
        """Whether its transaction has taken records, where that is asked: after an abort."""
        return self._writer is not None

    def doubt(self) -> InvalidTransactionState:
        return InvalidTransactionState(
            identity=self.transactional_id,
            state="in doubt: after an abort, its records came through two connections",
            operation="go on but by another abort",
        )

    def restored(self) -> None:
        """The broker has restarted: what an open transaction has seen is not known."""
        transaction = self.transaction
        if transaction is not None and transaction.state is TransactionState.ONGOING:
            self.owes_offsets = any(topic == OFFSETS_TOPIC for topic, _ in transaction.partitions)
            if transaction.follows_abort:
                self._writer = _LOST_CONNECTION

    def ended(self) -> None:
        """Nothing was written to the transaction that comes next."""
        self._writer = None
        self.is_doubtful = self.owes_offsets = False

    def retire_offsets(self, newest: int, *, spared: int) -> None:
        """From now on, take offsets only through connections that come after `newest`.

        For a producer that keeps its epoch and aborts while it `owes_offsets`: librdkafka announces
        each offset commit, and may have given one up without closing the connection. What comes
        through the connection that brought the abort came after it.
        """
        self.connections.pop(Way.OFFSETS, None)
        self._retired, self._spared = newest, spared

    def forget_writers(self) -> None:
        """Its producer has a new epoch, which tells its writes from those of before."""
        for way in (Way.RECORDS, Way.OFFSETS):
            self.connections.pop(way, None)
        self._retired = self._spared = 0
        self.ended()


class TransactionRegistry:
    """All transactional ids."""

    def __init__(self) -> None:
        self._by_name: dict[str, HostedTransaction] = {}
        self._by_producer: dict[int, HostedTransaction] = {}

    def all(self) -> Iterator[HostedTransaction]:
        """Safe against those that come and go meanwhile."""
        return iter(tuple(self._by_name.values()))

    @property
    def count(self) -> int:
        """How many have a producer."""
        return len(self._by_producer)

    def find(self, transactional_id: str) -> HostedTransaction:
        """An empty one, which is not kept, for what is not known."""
        return self._by_name.get(transactional_id) or HostedTransaction(transactional_id)

    def of_producer(self, producer_id: int) -> HostedTransaction | None:
        return self._by_producer.get(producer_id)

    def keep(self, hosted: HostedTransaction) -> HostedTransaction:
        """The one that is known under a name; this one if none is."""
        return self._by_name.setdefault(hosted.transactional_id, hosted)

    def take(self, hosted: HostedTransaction, transaction: Transaction | None) -> None:
        """Let a transactional id have a new state; None takes its producer away."""
        before, hosted.transaction = hosted.transaction, transaction
        if before is not None and (
            transaction is None or before.producer_id != transaction.producer_id
        ):
            self._by_producer.pop(before.producer_id, None)
        if transaction is not None:
            self._by_name[hosted.transactional_id] = hosted
            self._by_producer[transaction.producer_id] = hosted

    def release(self, hosted: HostedTransaction) -> None:
        """Forget one that has no producer, and that nobody is at work on."""
        is_unused = hosted.transaction is None and not hosted.users
        if is_unused and self._by_name.get(hosted.transactional_id) is hosted:
            del self._by_name[hosted.transactional_id]

    def describe(self, transactional_id: str) -> Transaction:
        """Raises UnknownTransaction."""
        transaction = self.find(transactional_id).transaction
        if transaction is None:
            raise UnknownTransaction(transactional_id)
        return transaction

    def list(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
        now_ms: int,
    ) -> list[Transaction]:
        """Those in one of some states, and so on; none named is any."""
        return [
            each
            for each in (hosted.transaction for hosted in self._by_name.values())
            if each is not None
            and (not states or each.state in states)
            and (not producer_ids or each.producer_id in producer_ids)
            and (duration_ms < 0 or (each.partitions and each.started_ms < now_ms - duration_ms))
        ]


def is_id(transactional_id: str) -> bool:
    """Whether a record can hold it."""
    return 0 < len(transactional_id.encode()) <= _LONGEST_ID_BYTES


def check_id(transactional_id: str) -> None:
    """Raises InvalidName."""
    if not is_id(transactional_id):
        raise InvalidName(
            kind="transactional id",
            name=transactional_id[:100],
            expected=f"a text of 1 to {_LONGEST_ID_BYTES} bytes",
        )
