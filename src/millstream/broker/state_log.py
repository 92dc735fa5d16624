"""The broker's own state, as keyed records in an internal compacted topic.

Invariant: what is replayed is what was appended, in order; for each key the newest entry decides,
and an entry without a value says that the key is gone. Entries of a transaction count if it was
committed, from where they lie in the log; whoever appends such entries replays by `batches`.
After a crash: all that `durable` vouched for is there; of the rest, a prefix.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millstream.broker.durability import durable
from millstream.clock import Clock
from millstream.errors import MillstreamError
from millstream.records import ControlType, Record, build, parse_control, records_of
from millstream.storage.flusher import Flusher
from millstream.storage.log_walk import batches_of
from millstream.storage.partition_log import PartitionLog

Entry = tuple[bytes, bytes | None]


class TransactionalProducer(NamedTuple):
    """In whose transaction entries are appended."""

    producer_id: int
    epoch: int


class StoredBatch(NamedTuple):
    """Entries, or the end of the transaction that a producer had open."""

    records: Iterator[Record]
    producer: TransactionalProducer | None = None
    """None where there is no transaction."""
    is_commit: bool | None = None
    """How the transaction ended; None for entries."""


class StateLog:
    """Appends entries and replays them."""

    def __init__(
        self, log: PartitionLog, flusher: Flusher, *, clock: Clock, max_decompressed_bytes: int
    ) -> None:
        self._log = log
        self._flusher = flusher
        self._clock = clock
        self._max_decompressed_bytes = max_decompressed_bytes

    @property
    def log(self) -> PartitionLog:
        return self._log

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    def replay(self) -> Iterator[Record]:
        """Everything in the log, oldest first. Raises CorruptData."""
        for batch in self.batches():
            yield from batch.records

    def batches(self) -> Iterator[StoredBatch]:
        """The same, with what is known of transactions."""
        for header, batch in batches_of(self._log, self._log.start_offset):
            if header.is_control:
                is_commit = parse_control(batch).kind is ControlType.COMMIT
                producer = TransactionalProducer(header.producer_id, header.producer_epoch)
                yield StoredBatch(iter(()), producer, is_commit)
                continue
            records = records_of(batch, limit_bytes=self._max_decompressed_bytes)
            if header.is_transactional:
                producer = TransactionalProducer(header.producer_id, header.producer_epoch)
                yield StoredBatch(records, producer)
            else:
                yield StoredBatch(records)

    def append(
        self, entries: Sequence[Entry], *, producer: TransactionalProducer | None = None
    ) -> int:
        """Store entries, all or none; returns the offset to wait for. Raises MillstreamError."""
        now_ms = self._clock.now_ms()
        records = [Record(n, now_ms, key, value) for n, (key, value) in enumerate(entries)]
        if producer is None:
            batch = build(records)
        else:
            # No sequence: nobody sends this batch again.
            producer_id, epoch = producer
            batch = build(
                records, producer_id=producer_id, producer_epoch=epoch, transactional=True
            )
        [outcome] = self._log.append([batch])
        if isinstance(outcome, MillstreamError):
            raise outcome
        return self._log.end_offset

    def all_durable(self) -> asyncio.Future[None]:
        """Done once everything appended so far is on disk; StorageFailure if it cannot be."""
        return self.durable(self._log.end_offset)

    def durable(self, offset: int) -> asyncio.Future[None]:
        """Done once everything below an offset is on disk; StorageFailure if it cannot be."""
        return durable(self._flusher, self._log, offset)
