"""The bytes of consumer-protocol group records, as Kafka writes them to `__consumer_offsets`.

Keys 3 and 5 to 8. Key 4, the partitions of subscribed topics, is not written: like Kafka since 4.1
we store a hash of them with the epoch. Read, it is passed over, as is every kind of record that we
do not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.errors import MalformedMessage
from millstream.groups.commands import SupportedProtocol
from millstream.groups.consumer_group import (
    ClassicMembership,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
)
from millstream.groups.consumer_partitions import Partitions, gathered, listed
from millstream.groups.consumer_records import (
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
)
from millstream.groups.group_records_format import Decoder, Encoder, Entry, number_of, pack
from millstream.protocol.codec import Message, decode
from millstream.protocol.notation import Bytes, Int8, Int32, Int64, String, Struct, Uuid, field

EPOCH_KEY = 3
MEMBER_KEY = 5
TARGET_EPOCH_KEY = 6
TARGET_KEY = 7
CURRENT_KEY = 8

_NUMBER_BYTES = 2


class GroupKey(Struct, versions=(3, 6)):
    group_id: String = field()


class MemberKey(Struct, versions=(5, 8)):
    group_id: String = field()
    member_id: String = field()


class EpochValue(Struct, versions=(0, 0), flexible=0):
    epoch: Int32 = field()
    metadata_hash: Int64 = field(tag=0)


class StoredProtocol(Struct):
    name: String = field()
    metadata: Bytes = field()


class StoredClassicMembership(Struct):
    session_timeout_ms: Int32 = field()
    supported_protocols: Sequence[StoredProtocol] = field()


class MemberValue(Struct, versions=(0, 0), flexible=0):
    instance_id: String | None = field(nullable=0)
    rack_id: String | None = field(nullable=0)
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: Sequence[String] = field()
    subscribed_topic_regex: String | None = field(nullable=0)
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None = field(nullable=0)
    classic_member_metadata: StoredClassicMembership | None = field(nullable=0, tag=0)


class TargetEpochValue(Struct, versions=(0, 0), flexible=0):
    assignment_epoch: Int32 = field()


class StoredPartitions(Struct):
    topic_id: Uuid = field()
    partitions: Sequence[Int32] = field()


class TargetValue(Struct, versions=(0, 0), flexible=0):
    topic_partitions: Sequence[StoredPartitions] = field()


class CurrentValue(Struct, versions=(0, 0), flexible=0):
    member_epoch: Int32 = field()
    previous_member_epoch: Int32 = field()
    state: Int8 = field()
    assigned_partitions: Sequence[StoredPartitions] = field()
    partitions_pending_revocation: Sequence[StoredPartitions] = field()


def _encode_epoch(record: GroupEpochRecord) -> Entry:
    key = pack(EPOCH_KEY, GroupKey(group_id=record.group_id))
    if record.value is None:
        return key, None
    epoch, metadata_hash = record.value
    return key, pack(0, EpochValue(epoch=epoch, metadata_hash=metadata_hash))


def _decode_epoch(key: bytes, value: bytes | None) -> GroupEpochRecord:
    group_id = _key(GroupKey, key).group_id
    if value is None:
        return GroupEpochRecord(group_id, None)
    stored = _value(EpochValue, value)
    return GroupEpochRecord(group_id, GroupEpoch(stored.epoch, stored.metadata_hash))


def _encode_member(record: MemberRecord) -> Entry:
    key = pack(MEMBER_KEY, MemberKey(group_id=record.group_id, member_id=record.member_id))
    metadata = record.value
    if metadata is None:
        return key, None
    classic = metadata.classic
    value = MemberValue(
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topics),
        subscribed_topic_regex=metadata.regex,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        server_assignor=metadata.assignor,
        classic_member_metadata=None
        if classic is None
        else StoredClassicMembership(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                StoredProtocol(name=name, metadata=data) for name, data in classic.protocols
            ],
        ),
    )
    return key, pack(0, value)


def _decode_member(key: bytes, value: bytes | None) -> MemberRecord:
    place = _key(MemberKey, key)
    if value is None:
        return MemberRecord(place.group_id, place.member_id, None)
    stored = _value(MemberValue, value)
    classic = stored.classic_member_metadata
    metadata = MemberMetadata(
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        topics=frozenset(stored.subscribed_topic_names),
        regex=stored.subscribed_topic_regex or None,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        assignor=stored.server_assignor,
        classic=None
        if classic is None
        else ClassicMembership(
            classic.session_timeout_ms,
            tuple(SupportedProtocol(p.name, p.metadata) for p in classic.supported_protocols),
        ),
    )
    return MemberRecord(place.group_id, place.member_id, metadata)


def _encode_target_epoch(record: TargetEpochRecord) -> Entry:
    key = pack(TARGET_EPOCH_KEY, GroupKey(group_id=record.group_id))
    if record.value is None:
        return key, None
    return key, pack(0, TargetEpochValue(assignment_epoch=record.value))


def _decode_target_epoch(key: bytes, value: bytes | None) -> TargetEpochRecord:
    group_id = _key(GroupKey, key).group_id
    if value is None:
        return TargetEpochRecord(group_id, None)
    return TargetEpochRecord(group_id, _value(TargetEpochValue, value).assignment_epoch)


def _encode_target(record: TargetRecord) -> Entry:
    key = pack(TARGET_KEY, MemberKey(group_id=record.group_id, member_id=record.member_id))
    if record.value is None:
        return key, None
    return key, pack(0, TargetValue(topic_partitions=_stored(record.value)))


def _decode_target(key: bytes, value: bytes | None) -> TargetRecord:
    place = _key(MemberKey, key)
    if value is None:
        return TargetRecord(place.group_id, place.member_id, None)
    partitions = _partitions(_value(TargetValue, value).topic_partitions)
    return TargetRecord(place.group_id, place.member_id, partitions)


def _encode_current(record: CurrentRecord) -> Entry:
    key = pack(CURRENT_KEY, MemberKey(group_id=record.group_id, member_id=record.member_id))
    current = record.value
    if current is None:
        return key, None
    value = CurrentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state.value,
        assigned_partitions=_stored(current.assigned),
        partitions_pending_revocation=_stored(current.revoking),
    )
    return key, pack(0, value)


def _decode_current(key: bytes, value: bytes | None) -> CurrentRecord:
    place = _key(MemberKey, key)
    if value is None:
        return CurrentRecord(place.group_id, place.member_id, None)
    stored = _value(CurrentValue, value)
    if stored.state not in list(MemberState):
        raise MalformedMessage(f"a member of a consumer group in unknown state {stored.state}")
    current = CurrentAssignment(
        epoch=stored.member_epoch,
        previous_epoch=stored.previous_member_epoch,
        state=MemberState(stored.state),
        assigned=_partitions(stored.assigned_partitions),
        revoking=_partitions(stored.partitions_pending_revocation),
    )
    return CurrentRecord(place.group_id, place.member_id, current)


def _stored(partitions: Partitions) -> list[StoredPartitions]:
    return [StoredPartitions(topic_id=t, partitions=numbers) for t, numbers in listed(partitions)]


def _partitions(stored: Sequence[StoredPartitions]) -> Partitions:
    return gathered((part.topic_id, part.partitions) for part in stored)


def _key(cls: type[Message], key: bytes) -> Message:
    return decode(cls, number_of(key), key, _NUMBER_BYTES)


def _value(cls: type[Message], value: bytes) -> Message:
    version = number_of(value)
    if version != 0:
        raise MalformedMessage(f"{cls.__name__} of unknown version {version}")
    return decode(cls, version, value, _NUMBER_BYTES)


ENCODERS: Mapping[type, Encoder] = {
    GroupEpochRecord: _encode_epoch,
    MemberRecord: _encode_member,
    TargetEpochRecord: _encode_target_epoch,
    TargetRecord: _encode_target,
    CurrentRecord: _encode_current,
}
DECODERS: Mapping[int, Decoder] = {
    EPOCH_KEY: _decode_epoch,
    MEMBER_KEY: _decode_member,
    TARGET_EPOCH_KEY: _decode_target_epoch,
    TARGET_KEY: _decode_target,
    CURRENT_KEY: _decode_current,
}
