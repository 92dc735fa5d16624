"""The sole right to change the commit record of a query.

Invariant: who holds the newest claim has read every record of the query that was ever stored, and
nobody else can store one. A driver finds out that it has lost its claim when it appends: the
partition refuses an epoch that is not the newest it has seen from this producer.

After a crash: the next claim takes over, whatever was left on the way.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.client.kafka.error_codes import INVALID_PRODUCER_EPOCH
from millstream.client.kafka.transactions import ProducerIdentity
from millstream.errors import QueryTakenOver, RefusedByBroker
from millstream.spark.sink.commit_log import CommitLog
from millstream.spark.sink.commit_record import CommitRecord

UNKNOWN_OFFSET = -1


def label_of(name: str) -> str:
    """What people call it: without the kind that comes before it."""
    return name.partition("/")[2] or name


class Claim:
    """Holds the record as it is, and changes it."""

    def __init__(self, log: CommitLog, name: str, identity: ProducerIdentity) -> None:
        self._log = log
        self._name = name
        self._identity = identity
        self._sequence = 0
        self.record = CommitRecord(name=name)

    @classmethod
    def take(cls, log: CommitLog, name: str, initialise: Callable[[], ProducerIdentity]) -> Claim:
        """Fence all others with this name, then know what they have stored."""
        while True:
            claim = cls(log, name, initialise())
            if claim._establish():
                return claim

    def change(self, record: CommitRecord) -> None:
        """Store a new record. On disk when this returns. Raises QueryTakenOver."""
        self._append(record)
        self.record = record

    def forget(self) -> None:
        """Delete the record: nobody will ask for this name again."""
        self._append(None)

    def _establish(self) -> bool:
        found = self._log.newest(self._name)
        end = found.end_offset
        if found.record is not None:
            self.record = found.record
        while True:
            # Durable before anything is aborted on the strength of it.
            offset = self._append(self.record)
            if offset == UNKNOWN_OFFSET:
                return False
            # Another driver may have stored something between our look and our claim. It can do
            # so once only; after this it is fenced.
            has_any, record = self._log.last_between(self._name, end, offset)
            if not has_any:
                return True
            self.record = record or CommitRecord(name=self._name)
            end = offset + 1

    def _append(self, record: CommitRecord | None) -> int:
        try:
            offset = self._log.append(
                self._name, record, identity=self._identity, sequence=self._sequence
            )
        except RefusedByBroker as refused:
            if refused.code != INVALID_PRODUCER_EPOCH:
                raise
            raise QueryTakenOver(query=label_of(self._name)) from refused
        self._sequence += 1
        return offset
