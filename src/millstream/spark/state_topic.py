"""A compacted topic of one partition, which keeps what Spark must remember under names.

It has one partition, so that nobody can change where a name belongs.

Invariant: `records` gives all that is left between two offsets, in their order, also where
compaction has taken what was last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millstream.client.kafka import EARLIEST, LATEST, Cluster
from millstream.client.kafka.visible_records import visible_batches
from millstream.errors import UnknownTopic
from millstream.records.batch_reader import records_of
from millstream.records.record import Record

_RECORD_LIMIT_BYTES = 64 << 20
# Nobody waits for this but where the end of the log was compacted away, or a broker is busy.
_WAIT_MS = 100


class StateTopic:
    """Reads and appends; what the records mean is not its business."""

    def __init__(self, cluster: Cluster, name: str, config: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._place = (name, 0)
        self._config = {"cleanup.policy": "compact", **config}

    def create(self) -> None:
        """Make sure that it is there."""
        if not self.exists():
            name, _ = self._place
            self._cluster.create_topic(name, partitions=1, config=self._config, exist_ok=True)

    def exists(self) -> bool:
        try:
            self._cluster.partitions([self._place[0]])
        except UnknownTopic:
            return False
        return True

    def bounds(self) -> tuple[int, int]:
        """Where it begins and ends now."""
        start = self._cluster.offsets([self._place], EARLIEST)[self._place]
        end = self._cluster.offsets([self._place], LATEST)[self._place]
        return start, end

    def records(self, start: int, end: int) -> Iterator[Record]:
        offset = start
        while offset < end:
            found = self._cluster.fetch(self._place, offset, max_wait_ms=_WAIT_MS, committed=False)
            if not found.records and found.high_watermark >= end:
                return  # compaction has taken all that was here, and nothing has come since
            for _, batch in visible_batches(found):
                for record in records_of(batch, limit_bytes=_RECORD_LIMIT_BYTES):
                    if start <= record.offset < end:
                        yield record
            offset = found.next_offset

    def append(self, batch: bytes) -> int:
        """The offset of a batch, which is on disk when this returns; -1 if the broker forgot it."""
        [offset] = self._cluster.produce(self._place, [batch])
        return offset
