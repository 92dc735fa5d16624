"""The compacted topic that holds the commit record of every query.

It has one partition, so that nobody can change where a name belongs. The newest record of a name
is looked for from the end: a query that runs finds its own within a few records, however long the
log is; only one that never ran reads all of it.

Invariant: what `newest` gives is the last record of the name below the end that comes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millstream.client.kafka import EARLIEST, LATEST, Cluster
from millstream.client.kafka.transactions import ProducerIdentity
from millstream.clock import Clock
from millstream.errors import UnknownTopic
from millstream.records.batch import HEADER_BYTES, BatchHeader, parse_header
from millstream.records.batch_builder import build
from millstream.records.batch_reader import records_of
from millstream.records.compression import Codec
from millstream.records.record import Record
from millstream.spark.sink.commit_record import CommitRecord

TOPIC = "millstream.spark.commits"

_PLACE = (TOPIC, 0)
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(16 << 20),
}
_FIRST_LOOK_RECORDS = 64
_LOOK_FACTOR = 16
_RECORD_LIMIT_BYTES = 64 << 20
# Nobody waits for this but where the end of the log was compacted away, or a broker is busy.
_WAIT_MS = 100


class Found(NamedTuple):
    record: CommitRecord | None
    end_offset: int


class CommitLog:
    """Reads and appends; what may be appended is not its business."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def create(self) -> None:
        """Make sure that the topic is there."""
        try:
            self._cluster.partitions([TOPIC])
        except UnknownTopic:
            self._cluster.create_topic(TOPIC, partitions=1, config=_CONFIG, exist_ok=True)

    def newest(self, name: str) -> Found:
        """The last record of a name, if it has one, and the end of the log then."""
        start = self._cluster.offsets([_PLACE], EARLIEST)[_PLACE]
        end = self._cluster.offsets([_PLACE], LATEST)[_PLACE]
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
        for record in self._records(start, end):
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
        [offset] = self._cluster.produce(_PLACE, [bytes(batch)])
        return offset

    def _records(self, start: int, end: int) -> Iterator[Record]:
        offset = start
        while offset < end:
            found = self._cluster.fetch(_PLACE, offset, max_wait_ms=_WAIT_MS, committed=False)
            if not found.records and found.high_watermark >= end:
                return  # compaction has taken all that was here, and nothing has come since
            for header, batch in _batches(found.records):
                offset = header.next_offset
                if header.is_control:
                    continue
                for record in records_of(batch, limit_bytes=_RECORD_LIMIT_BYTES):
                    if start <= record.offset < end:
                        yield record


def _batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    position = 0
    while len(data) - position >= HEADER_BYTES:
        header = parse_header(data, position)
        after = position + header.size_bytes
        if after > len(data):
            return  # cut off: it comes first in the next answer
        yield header, data[position:after]
        position = after
