"""Reading several partitions at once, for as long as the caller wants.

One request to each broker asks for all partitions that it leads; the next one is under way while
the caller is busy with an answer. Partitions take turns at being asked for first, so that none
starves. For one partition and a range that is known, StreamFetcher is as fast and simpler.

Invariant: every batch from the positions on is given out once, in the order of its partition;
`positions` are behind what was given out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from select import select

from millstream.client.kafka.address import Address
from millstream.client.kafka.cluster import Cluster
from millstream.client.kafka.connection import Connection
from millstream.client.kafka.error_codes import OFFSET_OUT_OF_RANGE, check
from millstream.client.kafka.fetch_messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.places import Place
from millstream.client.kafka.reading import Fetched, fetched_partition
from millstream.errors import Unavailable

_ANSWER_BYTES = 4 << 20
_PARTITION_BYTES = 1 << 20
_MAX_WAIT_MS = 500


class PartitionsReader:
    """Reads on and on. Not for several threads."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[Place, int], *, committed: bool = True
    ) -> None:
        self._cluster = cluster
        self._committed = committed
        self._lanes: dict[Address, tuple[Connection, list[Place]]] = {}
        self._turn = 0
        self.positions = dict(positions)
        """What comes next of each partition. One that is removed is not read any more."""

    def poll(self, timeout_s: float) -> Iterator[tuple[Place, Fetched]]:
        """What has come; nothing if nothing does in time. Raises OffsetOutOfRange, UnknownTopic.

        What is not available for a while is asked for until the cluster's timeout is over.
        """
        for place, found in self._persist(timeout_s) if self.positions else ():
            # Whoever removes a partition while it is looked at wants no more of it.
            if place in self.positions:
                yield place, found

    def close(self) -> None:
        for connection, _ in self._lanes.values():
            connection.close()
        self._lanes.clear()

    def _persist(self, timeout_s: float) -> list[tuple[Place, Fetched]]:
        patience = self._cluster.patience()
        while True:
            try:
                return self._receive(timeout_s, patience)
            except Unavailable as cause:
                self.close()
                self._cluster.forget()
                patience.wait(cause)

    def _receive(self, timeout_s: float, patience: Patience) -> list[tuple[Place, Fetched]]:
        if not self._lanes:
            self._connect(patience)
        for connection, places in self._lanes.values():
            if not connection.due:
                self._begin(connection, places)
        waiting = [connection for connection, _ in self._lanes.values() if connection.due]
        ready, _, _ = select(waiting, [], [], timeout_s)
        found = []
        for connection, places in list(self._lanes.values()):
            if connection in ready:
                connection.limit(patience.left_s)
                found += self._take(connection.receive(FetchResponse))
                # Read ahead: the broker works while the caller does.
                self._begin(connection, places)
        return found

    def _connect(self, patience: Patience) -> None:
        for address, places in self._cluster.leaders(self.positions, patience).items():
            self._lanes[address] = self._cluster.connect(address, patience), places

    def _begin(self, connection: Connection, places: list[Place]) -> None:
        wanted = [place for place in places if place in self.positions]
        if not wanted:
            return
        self._turn += 1
        first = self._turn % len(wanted)
        most_bytes = _ANSWER_BYTES if len(wanted) == 1 else _PARTITION_BYTES
        topics: dict[str, list[FetchPartition]] = {}
        for topic, number in [*wanted[first:], *wanted[:first]]:
            topics.setdefault(topic, []).append(
                FetchPartition(
                    partition=number,
                    fetch_offset=self.positions[topic, number],
                    partition_max_bytes=most_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            max_bytes=_ANSWER_BYTES,
            isolation_level=int(self._committed),
            topics=[FetchTopic(topic=topic, partitions=each) for topic, each in topics.items()],
        )
        connection.begin(request, FetchResponse)

    def _take(self, answer: FetchResponse) -> list[tuple[Place, Fetched]]:
        check(answer.error_code, "reading")
        found = []
        for topic in answer.responses:
            for told in topic.partitions:
                place = topic.topic, told.partition_index
                if place in self.positions:
                    found += self._take_partition(place, told)
        return found

    def _take_partition(self, place: Place, told: PartitionData) -> list[tuple[Place, Fetched]]:
        offset = self.positions[place]
        if told.error_code == OFFSET_OUT_OF_RANGE:
            raise self._cluster.out_of_range(place, offset)
        check(told.error_code, f"reading {place[0]}/{place[1]}")
        found = fetched_partition(told, offset)
        if not found.records:
            return []
        self.positions[place] = found.next_offset
        return [(place, found)]
