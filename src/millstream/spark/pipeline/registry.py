"""What pipelines tell of themselves, in a compacted topic of the cluster they read.

The key is a pipeline's name, the value its last snapshot as JSON. The snapshot also holds the
generation: how often the pipeline was made to begin anew. That names its checkpoints and its
transactions, so a reset is one record, and is done once that is on disk.
After a crash: a snapshot that claims to run and is old tells of a process that is gone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from millstream.client.kafka import LATEST, Cluster
from millstream.clock import Clock
from millstream.records import Record, build
from millstream.spark.pipeline.progress import Place, Snapshot
from millstream.spark.state_topic import StateTopic

TOPIC = "__millstream_pipelines"

_CONFIG = {
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}


class Registry:
    """The topic, as a map from names to snapshots."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._topic = StateTopic(cluster, TOPIC, _CONFIG)
        self._clock = clock

    def create(self) -> None:
        """Make sure that the topic is there."""
        self._topic.create()

    def publish(self, name: str, snapshot: Snapshot | None) -> None:
        """On disk when this returns. None forgets the pipeline."""
        value = None if snapshot is None else json.dumps(snapshot).encode()
        batch = build([Record(0, self._clock.now_ms(), name.encode(), value)])
        self._topic.append(bytes(batch))

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
        return self._topic.records(*self._topic.bounds()) if self._topic.exists() else iter(())


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
