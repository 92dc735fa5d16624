"""What pipelines tell of themselves, in a compacted topic of the cluster they read.

The key is a pipeline's name, the value its last snapshot as JSON. The snapshot also holds the
generation: how often the pipeline was made to begin anew. That names its checkpoints and its
transactions, so a reset is one record, and is done once that is on disk.
After a crash: a snapshot that claims to run and is old tells of a process that is gone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from millstream.client.kafka import EARLIEST, LATEST, Cluster
from millstream.clock import Clock
from millstream.errors import UnknownTopic
from millstream.records import Record, build, parse_header, records_of
from millstream.records.batch import HEADER_BYTES
from millstream.spark.pipeline.progress import Place, Snapshot

TOPIC = "__millstream_pipelines"

_PLACE = (TOPIC, 0)
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_RECORD_LIMIT_BYTES = 16 << 20


class Registry:
    """The topic, as a map from names to snapshots."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def create(self) -> None:
        """Make sure that the topic is there."""
        try:
            self._cluster.partitions([TOPIC])
        except UnknownTopic:
            self._cluster.create_topic(TOPIC, 1, _CONFIG, exist_ok=True)

    def publish(self, name: str, snapshot: Snapshot | None) -> None:
        """On disk when this returns. None forgets the pipeline."""
        value = None if snapshot is None else json.dumps(snapshot).encode()
        batch = build([Record(0, self._clock.now_ms(), name.encode(), value)])
        self._cluster.produce(_PLACE, [bytes(batch)])

    def all(self) -> dict[str, Snapshot]:
        """The last snapshot of every pipeline."""
        found: dict[str, Snapshot] = {}
        for record in self._records():
            name = bytes(record.key or b"").decode(errors="replace")
            snapshot = _snapshot(name, record.value)
            if record.value is None:
                found.pop(name, None)
            elif snapshot is not None:
                found[name] = snapshot
        return found

    def get(self, name: str) -> Snapshot | None:
        return self.all().get(name)

    def generation(self, name: str) -> int:
        return int((self.get(name) or {}).get("generation", 1))

    def ends(self, places: Collection[Place]) -> dict[Place, int]:
        """How far topics of the same cluster go, for readers of what is committed."""
        return self._cluster.offsets(places, LATEST, committed=True) if places else {}

    def _records(self) -> Iterator[Record]:
        try:
            self._cluster.partitions([TOPIC])
        except UnknownTopic:
            return
        offset = self._cluster.offsets([_PLACE], EARLIEST)[_PLACE]
        end = self._cluster.offsets([_PLACE], LATEST)[_PLACE]
        while offset < end:
            data = self._cluster.fetch(_PLACE, offset, max_wait_ms=0, committed=False).records
            before = offset
            for batch in _batches(data):
                header = parse_header(batch)
                if not header.is_control:
                    yield from records_of(batch, limit_bytes=_RECORD_LIMIT_BYTES)
                offset = header.next_offset
            if offset == before:
                # What was still there a moment ago has been compacted away.
                return


def _snapshot(name: str, told: bytes | None) -> Snapshot | None:
    """None for what no pipeline has written: anybody can write to the topic."""
    try:
        found = json.loads(bytes(told or b""))
    except ValueError:
        return None
    if not name or not isinstance(found, dict):
        return None
    if not all(isinstance(found.get(field), int) for field in ("at", "generation")):
        return None
    return {**found, "pipeline": name}


def _batches(data: memoryview) -> Iterator[memoryview]:
    position = 0
    while position + HEADER_BYTES <= len(data):
        size = parse_header(data[position:]).size_bytes
        if position + size > len(data):
            return
        yield data[position : position + size]
        position += size
