"""A task's rows on their way into topics, inside one transaction or in none.

Invariant: sequences count from 0 in every partition, as the epoch is new. A partition takes part
in the transaction before a row is sent to it.
After a crash: what was sent is aborted by the driver's sweep, or when it times out.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millstream.client.kafka import Cluster, Place, Producer
from millstream.client.kafka.transactions import ProducerIdentity
from millstream.clock import Clock
from millstream.records.arrow import encode
from millstream.records.batch import parse_header
from millstream.spark.sink.commit_record import TaskTransaction
from millstream.spark.sink.options import SinkOptions
from millstream.spark.sink.routing import Router, Rows
from millstream.spark.target_topic import ensure_topic

_NO_SEQUENCE = -1
_SEQUENCES = 2**31
_NOBODY = ProducerIdentity(-1, -1)


class TopicWriter:
    """Writes Arrow batches. Without a transactional id, each row at least once."""

    def __init__(
        self,
        cluster: Cluster,
        options: SinkOptions,
        *,
        task: int,
        clock: Clock,
        transactional_id: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._task = task
        self._clock = clock
        self._id = transactional_id
        self._identity = _NOBODY
        self._router = Router(options.topic, self._partition_count, first_turn=task)
        self._producer: Producer = cluster.producer(transactional_id=transactional_id)
        self._counts: dict[str, int] = {}
        self._sequences: dict[Place, int] = {}
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Begin to send the rows of a batch."""
        shares = list(self._router.route(batch))
        self._take_in([place for place, _ in shares if place not in self._sequences])
        for place, rows in shares:
            self._send(place, batch, rows)
        self._rows += batch.num_rows

    def finish(self) -> TaskTransaction | None:
        """All rows are stored. The transaction that they are in, which is not ended."""
        self._producer.flush()
        if self._id is None or not self._sequences:
            return None
        return TaskTransaction(
            task=self._task,
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            rows=self._rows,
            places=tuple(f"{topic}-{number}" for topic, number in sorted(self._sequences)),
        )

    def close(self) -> None:
        self._producer.close()

    def give_up(self) -> None:
        """Abort, so that readers need not wait for the driver to do it."""
        self.close()
        if self._id is not None and self._sequences:
            self._cluster.transactions.end(self._id, *self._identity, commit=False)

    def _take_in(self, places: Sequence[Place]) -> None:
        if not places:
            return
        if self._id is not None:
            if not self._sequences:
                timeout_ms = self._options.transaction_timeout_ms
                self._identity = self._cluster.transactions.init(self._id, timeout_ms)
            self._cluster.transactions.add(self._id, *self._identity, places)
        self._sequences.update(dict.fromkeys(places, 0))

    def _send(self, place: Place, batch: pa.RecordBatch, rows: Rows) -> None:
        is_transactional = self._id is not None
        sequence = self._sequences[place]
        for encoded in encode(
            batch,
            rows=rows,
            now_ms=self._clock.now_ms(),
            max_bytes=self._options.max_batch_bytes,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=sequence if is_transactional else _NO_SEQUENCE,
            transactional=is_transactional,
            compression=self._options.compression,
        ):
            self._producer.send(place, encoded)
            sequence = (sequence + parse_header(encoded).records_count) % _SEQUENCES
        self._sequences[place] = sequence

    def _partition_count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = len(ensure_topic(self._cluster, topic))
        return self._counts[topic]
