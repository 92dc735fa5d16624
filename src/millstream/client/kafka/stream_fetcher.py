"""Reading a range of one partition as fast as its leader can send.

The next request is under way before the last answer is given out: while the caller is busy with
one, the broker sends the next into the socket. There is no thread, and no more than one answer in
memory beside the caller's.

A broken connection or a new leader costs a new request from where the last whole batch ended.
Invariant: every batch that touches the range is given out once, in order.
Cost: benchmarks/kafka_client.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.client.kafka.cluster import Cluster
from millstream.client.kafka.connection import Connection
from millstream.client.kafka.error_codes import OFFSET_OUT_OF_RANGE, check
from millstream.client.kafka.fetch_messages import FetchResponse
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.places import Place
from millstream.client.kafka.reading import Fetched, fetch_request, fetched
from millstream.errors import RefusedByBroker, TimedOut, Unavailable

MAX_BYTES = 4 << 20
_MAX_WAIT_MS = 500


class StreamFetcher:
    """Reads offsets `start` to `end`, the last not included. To be iterated once.

    With `committed`, the end must be a last stable offset or less. Raises OffsetOutOfRange where
    the log has begun after the next offset, and TimedOut when nothing comes in the cluster's
    timeout, as for an end that the log has not reached.
    """

    def __init__(
        self,
        cluster: Cluster,
        place: Place,
        *,
        start: int,
        end: int,
        committed: bool = True,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._cluster = cluster
        self._place = place
        self._end = end
        self._committed = committed
        self._max_bytes = max_bytes
        self._connection: Connection | None = None
        self.next_offset = start
        """What comes next: where it was read to."""

    def __iter__(self) -> Iterator[Fetched]:
        patience = self._cluster.patience()
        try:
            while self.next_offset < self._end:
                try:
                    answer = self._receive(patience)
                    if not answer.records:
                        if self._is_gap(answer):
                            self.next_offset = self._end
                        elif patience.is_over:
                            break
                        continue
                except Unavailable as cause:
                    self._disconnect()
                    self._cluster.forget()
                    patience.wait(cause)
                    continue
                self.next_offset = answer.next_offset
                self._read_ahead()
                yield answer
                # However long the caller took, the broker has all its time.
                patience.renew()
        finally:
            self._disconnect()
        if self.next_offset < self._end:
            topic, partition = self._place
            what = f"reading {topic}/{partition} from {self.next_offset} to {self._end}"
            raise TimedOut(operation=what, timeout_ms=patience.timeout_ms)

    def _receive(self, patience: Patience) -> Fetched:
        if self._connection is None:
            self._connection = self._cluster.connect_to_leader(self._place, patience)
        self._connection.limit(patience.left_s + _MAX_WAIT_MS / 1000)
        if not self._connection.due:
            self._begin()
        answer = fetched(self._connection.receive(FetchResponse), self.next_offset)
        if answer.error_code == OFFSET_OUT_OF_RANGE:
            raise self._cluster.out_of_range(self._place, self.next_offset)
        check(answer.error_code, f"reading {self._place[0]}/{self._place[1]}")
        return answer

    def _is_gap(self, answer: Fetched) -> bool:
        """Whether compaction has left nothing of the rest of the range, nor anything behind it.

        The log goes on, and yet there is nothing to give out. Of a topic that is not compacted
        that proves nothing: a broker may still be looking for it in remote storage.
        """
        reached = answer.last_stable_offset if self._committed else answer.high_watermark
        return reached >= self._end and self._is_compacted()

    def _is_compacted(self) -> bool:
        try:
            settings = self._cluster.administration.settings(self._place[0])
        except RefusedByBroker:
            # Who may read a topic may not always read its settings.
            return False
        return any(
            each.name == "cleanup.policy" and "compact" in (each.value or "") for each in settings
        )

    def _read_ahead(self) -> None:
        if self.next_offset < self._end:
            try:
                self._begin()
            except Unavailable:
                # The answer in hand is good: what follows it is asked for through another one.
                self._disconnect()

    def _begin(self) -> None:
        assert self._connection is not None
        request = fetch_request(
            self._place,
            self.next_offset,
            max_bytes=self._max_bytes,
            max_wait_ms=_MAX_WAIT_MS,
            committed=self._committed,
        )
        self._connection.begin(request, FetchResponse)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
