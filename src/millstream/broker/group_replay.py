"""Groups and offsets from the records of `__consumer_offsets`.

Records that we do not understand are passed over: other versions may have written them, and each
stands for its own key only.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping

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

    __slots__ = ("classic", "consumer", "offsets")

    def __init__(self) -> None:
        self.classic: GroupMetadata | None = None
        self.consumer: ConsumerGroup | None = None
        self.offsets: dict[TopicPartition, Committed] = {}

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


def stored_groups(records: Iterable[Record]) -> Mapping[str, StoredGroup]:
    """By name, whatever the log holds of each group."""
    newest: dict[bytes, Record] = {}
    for record in records:
        # To the end, as compaction leaves them: most are never looked into.
        key = record.key or b""
        newest.pop(key, None)
        newest[key] = record
    groups: defaultdict[str, StoredGroup] = defaultdict(StoredGroup)
    for record in newest.values():
        decoded = _decoded(record)
        if decoded is not None:
            groups[decoded.group_id].apply(decoded)
    return groups


def _decoded(record: Record) -> StoredRecord | None:
    try:
        key = record.key or b""
        decode = DECODERS.get(number_of(key))
        if decode is not None:
            decoded: StoredRecord = decode(key, record.value)
            return decoded
        _log.warning("the group record at offset %d is of an unknown kind", record.offset)
    except MalformedMessage as error:
        _log.error("the group record at offset %d cannot be read: %s", record.offset, error)
    return None
