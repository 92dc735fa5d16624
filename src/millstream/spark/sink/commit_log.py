"""The compacted topic that holds the commit record of every query.

The newest record of a name is looked for from the end: a query that runs finds its own within a
few records, however long the log is; only one that never ran reads all of it.

Invariant: what `newest` gives is the last record of the name below the end that comes with it.
"""

from __future__ import annotations

from typing import NamedTuple

from millstream.client.kafka import Cluster
from millstream.client.kafka.transactions import ProducerIdentity
from millstream.clock import Clock
from millstream.records.batch_builder import build
from millstream.records.compression import Codec
from millstream.records.record import Record
from millstream.spark.sink.commit_record import CommitRecord
from millstream.spark.state_topic import StateTopic

TOPIC = "millstream.spark.commits"

_CONFIG = {
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(16 << 20),
}
_FIRST_LOOK_RECORDS = 64
_LOOK_FACTOR = 16


class Found(NamedTuple):
    record: CommitRecord | None
    end_offset: int


class CommitLog:
    """Reads and appends; what may be appended is not its business."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._topic = StateTopic(cluster, TOPIC, _CONFIG)
        self._clock = clock

    def create(self) -> None:
        """Make sure that the topic is there."""
        self._topic.create()

    def newest(self, name: str) -> Found:
        """The last record of a name, if it has one, and the end of the log then."""
        start, end = self._topic.bounds()
        upper, look = end, _FIRST_LOOK_RECORDS
        while upper > start:
            lower = max(start, upper - look)
            has_any, record = self.last_between(name, lower, upper)
            if has_any:
                return Found(record, end)
            upper, look = lower, look * _LOOK_FACTOR
        return Found(None, end)

    def last_between(self, name: str, start: int, end: int) -> tuple[bool, CommitRecord | None]:
        """Whether a name has records from `start` to before `end`, and the last of them.

        None for one that was deleted.
        """
        key, found, value = name.encode(), False, None
        for record in self._topic.records(start, end):
            if record.key == key:
                found, value = True, record.value
        return found, None if value is None else CommitRecord.from_bytes(value)

    def append(
        self,
        name: str,
        record: CommitRecord | None,
        *,
        identity: ProducerIdentity,
        sequence: int,
    ) -> int:
        """The offset of the record; None deletes. On disk when this returns.

        -1 where the broker has forgotten. Raises RefusedByBroker when a newer identity has written.
        """
        value = None if record is None else record.to_bytes()
        batch = build(
            [Record(0, self._clock.now_ms(), name.encode(), value)],
            codec=Codec.GZIP,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
        )
        return self._topic.append(bytes(batch))
