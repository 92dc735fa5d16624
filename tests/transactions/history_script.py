"""Histories written by hand, an event at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.transactions.history import (
    NO_TRANSACTION,
    UNKNOWN_OFFSET,
    Action,
    Event,
    Phase,
    Position,
    Record,
)

TOPIC = "topic"


class HistoryScript:
    """Every event comes a moment after the one before, whichever worker it is of."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._lines: dict[str, int] = {}
        # For each worker: its producer, its transactional id and its transaction, if any.
        self._clients: dict[str, int] = {}
        self._ids: dict[str, str] = {}
        self._transactions: dict[str, int] = {}
        self._transaction_count = 0

    def note(self, worker: str, phase: Phase, action: Action, **details: Any) -> None:
        line = self._lines.get(worker, 0)
        self._lines[worker] = line + 1
        details.setdefault("client", self._clients.get(worker, 0))
        self.events.append(Event(worker, line, len(self.events), phase, action, **details))

    def open(self, worker: str, transactional_id: str) -> None:
        """A new producer of that worker."""
        self._clients[worker] = self._clients.get(worker, 0) + 1
        self._ids[worker] = transactional_id
        for phase in (Phase.INVOKE, Phase.OK):
            self.note(worker, phase, Action.OPEN, transactional_id=transactional_id)

    def begin(self, worker: str) -> None:
        self._transaction_count += 1
        self._transactions[worker] = self._transaction_count
        self._note_in_transaction(worker, Phase.INVOKE, Action.BEGIN)
        self._note_in_transaction(worker, Phase.OK, Action.BEGIN)

    def send(
        self,
        worker: str,
        value: str,
        offset: int = UNKNOWN_OFFSET,
        *,
        partition: int = 0,
        topic: str = TOPIC,
        phase: Phase | None = Phase.OK,
        source: Position | None = None,
        group: str = "",
    ) -> None:
        """Without a phase, it never ends."""
        more = {"positions": (source,) if source else (), "group": group}
        sent = Record(topic, partition, UNKNOWN_OFFSET, value)
        self._note_in_transaction(worker, Phase.INVOKE, Action.SEND, records=(sent,), **more)
        if phase is not None:
            acked = (sent._replace(offset=offset),)
            self._note_in_transaction(worker, phase, Action.SEND, records=acked)

    def commit(self, worker: str, phase: Phase | None = Phase.OK) -> None:
        self._finish(worker, phase, Action.COMMIT)

    def abort(self, worker: str, phase: Phase | None = Phase.OK) -> None:
        self._finish(worker, phase, Action.ABORT)

    def _finish(self, worker: str, phase: Phase | None, action: Action) -> None:
        self._note_in_transaction(worker, Phase.INVOKE, action)
        if phase is not None:
            self._note_in_transaction(worker, phase, action)
        del self._transactions[worker]

    def _note_in_transaction(
        self, worker: str, phase: Phase, action: Action, **details: Any
    ) -> None:
        transaction = self._transactions.get(worker, NO_TRANSACTION)
        details["transaction"] = transaction
        if transaction != NO_TRANSACTION:
            details["transactional_id"] = self._ids.get(worker, "")
        self.note(worker, phase, action, **details)

    def move(self, worker: str, action: Action, *positions: Position, group: str = "") -> None:
        """An assignment, a revocation, a seek or the end."""
        self.note(worker, Phase.OK, action, positions=positions, group=group)

    def assign(
        self,
        worker: str,
        offset: int = UNKNOWN_OFFSET,
        *,
        partition: int = 0,
        topic: str = TOPIC,
        group: str = "",
    ) -> None:
        self.move(worker, Action.ASSIGN, Position(topic, partition, offset), group=group)

    def end(self, worker: str, offset: int, *, partition: int = 0, topic: str = TOPIC) -> None:
        self.move(worker, Action.END, Position(topic, partition, offset))

    def poll(
        self,
        worker: str,
        found: Iterable[tuple[int, str]],
        *,
        partition: int = 0,
        topic: str = TOPIC,
        group: str = "",
    ) -> None:
        records = tuple(Record(topic, partition, offset, value) for offset, value in found)
        self.note(worker, Phase.INVOKE, Action.POLL, group=group)
        self.note(worker, Phase.OK, Action.POLL, records=records, group=group)
