"""What a worker is given, and how it notes what its producer does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.transactions.history import (
    NO_TRANSACTION,
    UNKNOWN_OFFSET,
    Action,
    Phase,
    Position,
    Record,
    Recorder,
)
from tests.transactions.producer_client import ProducerClient, ProducerTrouble


@dataclass(slots=True, kw_only=True)
class Work:
    """One role in a worker process, which ends soon after `stop` is set."""

    bootstrap: str
    # The number of partitions of each topic.
    topics: Mapping[str, int]
    # Where producers write; what processors read, which is one of these, and where they write.
    sinks: tuple[str, ...]
    inputs: str
    results: str
    recorder: Recorder
    random: Random
    stop: threading.Event
    # Names of transactional ids and groups, which outlive the process.
    slot: str
    isolation: str = "read_committed"
    clients: int = 0
    values: int = 0
    transactions: int = 0

    def next_client(self) -> int:
        self.clients += 1
        return self.clients

    def next_value(self) -> str:
        self.values += 1
        return f"{self.recorder.worker}.{self.values}"

    def next_transaction(self) -> int:
        self.transactions += 1
        return self.transactions

    def any_partition(self, *topics: str) -> tuple[str, int]:
        topic = self.random.choice(topics)
        return topic, self.random.randrange(self.topics[topic])

    def pause(self, max_s: float) -> None:
        self.stop.wait(self.random.random() * max_s)


class NotedProducer:
    """A producer whose actions are noted before and after. All of them raise ProducerTrouble."""

    def __init__(self, work: Work, client: ProducerClient, transactional_id: str = "") -> None:
        self._work = work
        self._client = client
        self._number = work.next_client()
        self._transactional_id = transactional_id
        self._transaction = NO_TRANSACTION
        self._unacked: set[str] = set()
        # Why a send of this transaction was not acknowledged, if one was not.
        self.error = ""

    def open(self) -> None:
        self._do(Action.OPEN, self._client.open)

    def begin(self) -> None:
        self._transaction = self._work.next_transaction()
        self.error = ""
        self._do(Action.BEGIN, self._client.begin)

    def send(self, topic: str, partition: int, **details: Any) -> None:
        record = Record(topic, partition, UNKNOWN_OFFSET, self._work.next_value())
        transaction = self._transaction

        def done(offset: int, error: str) -> None:
            self._unacked.discard(record.value)
            self.error = self.error or error
            phase = Phase.UNKNOWN if error else Phase.OK
            self._note(
                phase,
                Action.SEND,
                transaction=transaction,
                records=(record._replace(offset=offset),),
                error=error,
            )

        self._note(Phase.INVOKE, Action.SEND, records=(record,), **details)
        self._unacked.add(record.value)
        self._client.send(topic, partition, record.value, done)

    def flush(self) -> None:
        """Wait for all acknowledgements. Raises where one does not come."""
        self._client.flush()
        if self._unacked or self.error:
            raise ProducerTrouble(self.error or "unacknowledged", can_abort=self._client.recovers)

    def send_offsets(self, positions: list[Position], group: str, call: Callable[[], None]) -> None:
        self._do(Action.OFFSETS, call, positions=tuple(positions), group=group)

    def stall(self, seconds: float) -> None:
        self._do(Action.STALL, lambda: self._work.stop.wait(seconds))

    def commit(self) -> None:
        self._do(Action.COMMIT, self._client.commit)

    def abort(self) -> None:
        self._do(Action.ABORT, self._client.abort)

    def close(self) -> None:
        self._client.close()

    def _do(self, action: Action, call: Callable[[], object], **details: Any) -> None:
        self._note(Phase.INVOKE, action, **details)
        try:
            call()
        except ProducerTrouble as trouble:
            self._note(Phase.UNKNOWN, action, error=trouble.error, **details)
            raise
        self._note(Phase.OK, action, **details)

    def _note(self, phase: Phase, action: Action, **details: Any) -> None:
        details = {"transaction": self._transaction} | details
        if self._transactional_id:
            details["transactional_id"] = self._transactional_id
        self._work.recorder.note(phase, action, client=self._number, **details)
