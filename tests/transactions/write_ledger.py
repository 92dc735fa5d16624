"""All writes of a history, and what became of their transactions as far as producers know.

A transaction is certainly aborted when nobody ever asked to commit it, however it ended; when every
attempt to commit it certainly failed; or when, before its commit was asked for, another producer
had its transactional id. It is certainly committed when a commit was acknowledged. Everything else
may be either, but all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tests.transactions.history import (
    NO_TRANSACTION,
    UNKNOWN_OFFSET,
    Action,
    Event,
    Phase,
    Position,
    by_worker,
)

Client = tuple[str, int]
Partition = tuple[str, int]


class Outcome(StrEnum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Opening(NamedTuple):
    """A producer that got a transactional id."""

    client: Client
    invoked_ns: int
    done: Event


@dataclass(slots=True, eq=False)
class Transaction:
    client: Client
    transactional_id: str
    began: Event
    writes: list[Write] = field(default_factory=list)
    commits: list[Event] = field(default_factory=list)
    stalled: bool = False
    aborted: bool = False
    # The opening by another producer that came before the first attempt to commit.
    fenced: Opening | None = None

    @property
    def commit_invoked_ns(self) -> int | None:
        times = [event.time_ns for event in self.commits if event.phase is Phase.INVOKE]
        return min(times, default=None)

    @property
    def outcome(self) -> Outcome:
        phases = [event.phase for event in self.commits]
        if Phase.OK in phases:
            return Outcome.COMMITTED
        if self.fenced or phases.count(Phase.INVOKE) == phases.count(Phase.FAIL):
            return Outcome.ABORTED
        return Outcome.UNKNOWN


@dataclass(slots=True, eq=False)
class Write:
    """A value that was sent; its offset is the acknowledged one."""

    value: str
    client: Client
    partition: Partition
    sent: Event
    transaction: Transaction | None
    ended: Event | None = None

    @property
    def is_acked(self) -> bool:
        return self.ended is not None and self.ended.phase is Phase.OK

    @property
    def offset(self) -> int:
        if self.ended is None or self.ended.phase is not Phase.OK:
            return UNKNOWN_OFFSET
        return self.ended.records[0].offset

    @property
    def events(self) -> tuple[Event, ...]:
        return (self.sent,) if self.ended is None else (self.sent, self.ended)

    @property
    def sources(self) -> tuple[Position, ...]:
        return self.sent.positions

    @property
    def outcome(self) -> Outcome:
        if self.ended is not None and self.ended.phase is Phase.FAIL:
            return Outcome.ABORTED
        if self.transaction is not None:
            return self.transaction.outcome
        return Outcome.COMMITTED if self.is_acked else Outcome.UNKNOWN


class WriteLedger:
    """Invariant: writes are in the order in which their worker sent them."""

    def __init__(self, history: Iterable[Event]) -> None:
        self.writes: dict[str, Write] = {}
        self.transactions: dict[tuple[str, int], Transaction] = {}
        self.openings: dict[str, list[Opening]] = {}
        self._opening: dict[Client, Event] = {}
        for events in by_worker(history).values():
            for event in events:
                self._take(event)
        for transaction in self.transactions.values():
            transaction.fenced = self._fencing(transaction)

    def _take(self, event: Event) -> None:
        if event.action is Action.OPEN:
            self._take_opening(event)
        elif event.action is Action.SEND:
            self._take_send(event)
        elif event.action is Action.BEGIN and event.phase is Phase.INVOKE:
            client = event.worker, event.client
            begun = Transaction(client, event.transactional_id, event)
            self.transactions[event.worker, event.transaction] = begun
        elif event.action is Action.COMMIT:
            self._transaction(event).commits.append(event)
        elif event.action is Action.ABORT and event.phase is Phase.OK:
            self._transaction(event).aborted = True
        elif event.action is Action.STALL and event.phase is Phase.OK:
            self._transaction(event).stalled = True

    def _transaction(self, event: Event) -> Transaction:
        return self.transactions[event.worker, event.transaction]

    def _take_opening(self, event: Event) -> None:
        client = event.worker, event.client
        if event.phase is Phase.INVOKE:
            # Of several attempts, the first may already have been the one that counted.
            self._opening.setdefault(client, event)
        elif event.phase is Phase.OK:
            opening = Opening(client, self._opening[client].time_ns, event)
            self.openings.setdefault(event.transactional_id, []).append(opening)

    def _take_send(self, event: Event) -> None:
        record = event.records[0]
        if event.phase is not Phase.INVOKE:
            self.writes[record.value].ended = event
            return
        has_transaction = event.transaction != NO_TRANSACTION
        transaction = self._transaction(event) if has_transaction else None
        assert record.value not in self.writes, f"{record.value} was sent twice"
        write = Write(
            record.value,
            (event.worker, event.client),
            (record.topic, record.partition),
            event,
            transaction,
        )
        self.writes[record.value] = write
        if transaction is not None:
            transaction.writes.append(write)

    def _fencing(self, transaction: Transaction) -> Opening | None:
        """Who certainly had its transactional id between its own opening and its commit."""
        committed_ns = transaction.commit_invoked_ns
        openings = self.openings.get(transaction.transactional_id, ())
        own = [each.done.time_ns for each in openings if each.client == transaction.client]
        if committed_ns is None or not own:
            return None
        for opening in openings:
            is_between = opening.invoked_ns > min(own) and opening.done.time_ns < committed_ns
            if is_between and opening.client != transaction.client:
                return opening
        return None
