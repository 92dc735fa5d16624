"""The bytes of group and offset records, as Kafka writes them to `__consumer_offsets`.

A key begins with a number of two bytes that says what it is the key of; a value begins with the
version of its format. Old versions of values are read, the newest that all Kafkas know is written.
Other kinds of records bring tables of their own, to be joined with these.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.errors import MalformedMessage
from millstream.groups.group_records import (
    Committed,
    GroupMetadata,
    GroupTombstone,
    MemberMetadata,
    OffsetCommitted,
    OffsetTombstone,
)
from millstream.protocol.codec import decode, encode
from millstream.protocol.notation import Bytes, Int32, Int64, String, Struct, field

Entry = tuple[bytes, bytes | None]
Encoder = Callable[[Any], Entry]
Decoder = Callable[[bytes, bytes | None], Any]
"""From the whole key and the whole value."""

_NUMBER = struct.Struct(">h")

OFFSET_KEY = 1
GROUP_KEY = 2
_OLDEST_OFFSET_KEY = 0
"""Offsets had two kinds of keys, which look the same."""

_OFFSET_VALUE = 3
_EXPIRING_OFFSET_VALUE = 1
"""The only version that says when an offset expires."""
_GROUP_VALUE = 3
_NEWEST_VALUE = 4


class OffsetCommitKey(Struct, versions=(0, 1)):
    group: String = field()
    topic: String = field()
    partition: Int32 = field()


class OffsetCommitValue(Struct, versions=(0, 4), flexible=4):
    offset: Int64 = field()
    leader_epoch: Int32 = field(since=3, default=-1)
    metadata: String = field()
    commit_timestamp: Int64 = field()
    expire_timestamp: Int64 = field(since=1, until=1, default=-1)


class GroupMetadataKey(Struct, versions=(2, 2)):
    group: String = field()


class StoredMember(Struct):
    member_id: String = field()
    group_instance_id: String | None = field(since=3, nullable=3)
    client_id: String = field()
    client_host: String = field()
    rebalance_timeout: Int32 = field(since=1, default=-1)
    session_timeout: Int32 = field()
    subscription: Bytes = field()
    assignment: Bytes = field()


class GroupMetadataValue(Struct, versions=(0, 4), flexible=4):
    protocol_type: String = field()
    generation: Int32 = field()
    protocol: String | None = field(nullable=0)
    leader: String | None = field(nullable=0)
    current_state_timestamp: Int64 = field(since=2, default=-1)
    members: Sequence[StoredMember] = field()


def number_of(data: bytes) -> int:
    """The number that a key or a value begins with."""
    if len(data) < _NUMBER.size:
        raise MalformedMessage(f"{len(data)} bytes are too few for a key or a value")
    number: int = _NUMBER.unpack_from(data)[0]
    return number


def pack(number: int, body: Struct) -> bytes:
    """A key or a value: its number, then the rest in the format of that version."""
    return _NUMBER.pack(number) + encode(body, number)


def _unpack_value(cls: type[Any], value: bytes) -> Any:
    version = number_of(value)
    if not 0 <= version <= _NEWEST_VALUE:
        raise MalformedMessage(f"{cls.__name__} of unknown version {version}")
    return decode(cls, version, value, _NUMBER.size)


def _encode_offset(record: OffsetCommitted) -> Entry:
    committed = record.committed
    expires = committed.expire_timestamp_ms >= 0
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    version = _EXPIRING_OFFSET_VALUE if expires else _OFFSET_VALUE
    return _offset_key(record), pack(version, value)


def _encode_offset_tombstone(record: OffsetTombstone) -> Entry:
    return _offset_key(record), None


def _offset_key(record: OffsetCommitted | OffsetTombstone) -> bytes:
    key = OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
    return pack(OFFSET_KEY, key)


def _decode_offset(key: bytes, value: bytes | None) -> OffsetCommitted | OffsetTombstone:
    place = decode(OffsetCommitKey, number_of(key), key, _NUMBER.size)
    if value is None:
        return OffsetTombstone(place.group, place.topic, place.partition)
    stored: OffsetCommitValue = _unpack_value(OffsetCommitValue, value)
    committed = Committed(
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp,
        expire_timestamp_ms=stored.expire_timestamp,
    )
    return OffsetCommitted(place.group, place.topic, place.partition, committed)


def _encode_group(record: GroupMetadata) -> Entry:
    value = GroupMetadataValue(
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol_name,
        leader=record.leader_id,
        current_state_timestamp=record.state_since_ms,
        members=[
            StoredMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in record.members
        ],
    )
    return pack(GROUP_KEY, GroupMetadataKey(group=record.group_id)), pack(_GROUP_VALUE, value)


def _encode_group_tombstone(record: GroupTombstone) -> Entry:
    return pack(GROUP_KEY, GroupMetadataKey(group=record.group_id)), None


def _decode_group(key: bytes, value: bytes | None) -> GroupMetadata | GroupTombstone:
    group_id = decode(GroupMetadataKey, number_of(key), key, _NUMBER.size).group
    if value is None:
        return GroupTombstone(group_id)
    stored: GroupMetadataValue = _unpack_value(GroupMetadataValue, value)
    return GroupMetadata(
        group_id=group_id,
        protocol_type=stored.protocol_type,
        generation=stored.generation,
        protocol_name=stored.protocol,
        leader_id=stored.leader,
        state_since_ms=stored.current_state_timestamp,
        members=tuple(_decode_member(member) for member in stored.members),
    )


def _decode_member(member: StoredMember) -> MemberMetadata:
    has_own = member.rebalance_timeout >= 0
    return MemberMetadata(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout if has_own else member.session_timeout,
        session_timeout_ms=member.session_timeout,
        subscription=member.subscription,
        assignment=member.assignment,
    )


ENCODERS: Mapping[type, Encoder] = {
    OffsetCommitted: _encode_offset,
    OffsetTombstone: _encode_offset_tombstone,
    GroupMetadata: _encode_group,
    GroupTombstone: _encode_group_tombstone,
}
DECODERS: Mapping[int, Decoder] = {
    _OLDEST_OFFSET_KEY: _decode_offset,
    OFFSET_KEY: _decode_offset,
    GROUP_KEY: _decode_group,
}
