"""Groups and offsets from the records of `__consumer_offsets`.

For each key the newest record decides, by its offset in the log. A record of a transaction counts
if the transaction was committed, wherever its end is; so nothing depends on records that
compaction may drop: older ones of a key, aborted ones, and ends of transactions that nothing else
is left of. What no end was found for is pending.

Records that we do not understand are passed over: other versions may have written them, and each
stands for its own key only.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from millstream.broker.state_log import StoredBatch, TransactionalProducer
from millstream.errors import MalformedMessage
from millstream.groups import consumer_records_format, group_records_format
from millstream.groups.classic_group import from_record
from millstream.groups.consumer_group import ConsumerGroup
from millstream.groups.consumer_records import ConsumerRecord, restored
from millstream.groups.consumer_records import apply as apply_consumer_record
from millstream.groups.group_records import (
    ClassicRecord,
    Committed,
    GroupMetadata,
    GroupTombstone,
    OffsetCommitted,
    OffsetRecord,
    OffsetTombstone,
)
from millstream.groups.group_records_format import Decoder, Encoder, number_of
from millstream.groups.migration import AnyGroup
from millstream.groups.offsets import TopicPartition, apply_offset
from millstream.groups.pending_offsets import Pending, PendingOffsets
from millstream.records import Record
from millstream.settings.groups import GroupSettings

_log = logging.getLogger(__name__)

ENCODERS: Mapping[type, Encoder] = {
    **group_records_format.ENCODERS,
    **consumer_records_format.ENCODERS,
}
DECODERS: Mapping[int, Decoder] = {
    **group_records_format.DECODERS,
    **consumer_records_format.DECODERS,
}

StoredRecord = ClassicRecord | OffsetRecord | ConsumerRecord


class StoredGroup:
    """What the log holds of one group."""

    __slots__ = ("classic", "consumer", "offsets", "pending")

    def __init__(self) -> None:
        self.classic: GroupMetadata | None = None
        self.consumer: ConsumerGroup | None = None
        self.offsets: dict[TopicPartition, Committed] = {}
        self.pending = PendingOffsets()

    def apply(self, record: StoredRecord) -> None:
        if isinstance(record, OffsetCommitted | OffsetTombstone):
            apply_offset(self.offsets, record)
        elif isinstance(record, GroupMetadata):
            self.classic = record
        elif isinstance(record, GroupTombstone):
            self.classic = None
        else:
            self.consumer = apply_consumer_record(self.consumer, record)

    def group(self, now_ms: int, settings: GroupSettings) -> AnyGroup | None:
        """The group, its members with a whole session from now on."""
        if self.consumer is not None and self.consumer.epoch:
            return restored(self.consumer, now_ms, settings)
        return None if self.classic is None else from_record(self.classic, now_ms)


class NewestRecords:
    """The newest record of each key, and what may become that when its transaction ends."""

    def __init__(self) -> None:
        self._newest: dict[bytes, Record] = {}
        self._open: dict[int, tuple[TransactionalProducer, dict[bytes, Record]]] = {}

    def add(self, batch: StoredBatch) -> None:
        """The next batch of the log."""
        producer = batch.producer
        if producer is None:
            for record in batch.records:
                self._take(record)
        elif batch.is_commit is None:
            # A producer has one transaction at a time, all of one epoch.
            _, waiting = self._open.setdefault(producer.producer_id, (producer, {}))
            waiting.update((record.key or b"", record) for record in batch.records)
        else:
            # Its epoch may be a newer one, which the end fences the transaction with (KIP-890).
            _, ended = self._open.pop(producer.producer_id, (producer, {}))
            for record in ended.values() if batch.is_commit else ():
                self._take(record)

    def settled(self) -> Iterable[Record]:
        return self._newest.values()

    def pending(self) -> Iterator[tuple[TransactionalProducer, Record]]:
        """Of open transactions, what no newer record makes void."""
        for producer, waiting in self._open.values():
            for key, record in waiting.items():
                newest = self._newest.get(key)
                if newest is None or newest.offset < record.offset:
                    yield producer, record

    def _take(self, record: Record) -> None:
        key = record.key or b""
        # To the end, as compaction leaves them: most are never looked into.
        older = self._newest.pop(key, record)
        self._newest[key] = older if older.offset > record.offset else record


def stored_groups(batches: Iterable[StoredBatch]) -> Mapping[str, StoredGroup]:
    """By name, whatever the log holds of each group."""
    newest = NewestRecords()
    for batch in batches:
        newest.add(batch)
    groups: defaultdict[str, StoredGroup] = defaultdict(StoredGroup)
    for record in newest.settled():
        decoded = _decoded(record)
        if decoded is not None:
            groups[decoded.group_id].apply(decoded)
    for producer, record in newest.pending():
        decoded = _decoded(record)
        if isinstance(decoded, OffsetCommitted):
            pending = Pending(decoded.committed, record.offset, producer.epoch)
            key = (decoded.topic, decoded.partition)
            groups[decoded.group_id].pending.add(producer.producer_id, key, pending)
    return groups


def _decoded(record: Record) -> StoredRecord | None:
    try:
        key = record.key or b""
        decode = DECODERS.get(number_of(key))
        if decode is not None:
            decoded: StoredRecord = decode(key, record.value)
            return decoded
        _log.warning(
            "the group record at offset %(offset)d is of an unknown kind", {"offset": record.offset}
        )
    except MalformedMessage as error:
        _log.error(
            "the group record at offset %(offset)d cannot be read: %(error)s",
            {"offset": record.offset, "error": error},
        )
    return None
