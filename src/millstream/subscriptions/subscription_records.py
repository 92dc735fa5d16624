"""The bytes of subscriptions, in `__subscriptions`.

Three kinds of records, told apart by the number that a key begins with: a subscription, the head of
one of its partitions, and a block of 1024 offsets of that. Values begin with the version of their
format.

Invariant: what was encoded is decoded to an equal value.
After a crash: the newest value of each key is what was known; see `progress`.
Format: docs/formats/subscription_state.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from millstream.errors import MalformedMessage
from millstream.protocol import codec
from millstream.protocol.notation import Bytes, Int16, Int32, Int64, String, Struct, field
from millstream.subscriptions.progress import BLOCK_OFFSETS, Block, Changes, Failure, Head
from millstream.subscriptions.subscription import SubscriptionSettings

Entry = tuple[bytes, bytes | None]

_NUMBER = struct.Struct(">h")
_SUBSCRIPTION = 0
_HEAD = 1
_BLOCK = 2
_VERSION = 0
_KEY_VERSION = 0

_Message = TypeVar("_Message", bound=Struct)


class SubscriptionKey(Struct, versions=(0, 0)):
    topic: String = field()
    name: String = field()


class PartitionKey(Struct, versions=(0, 0)):
    topic: String = field()
    name: String = field()
    partition: Int32 = field()


class BlockKey(Struct, versions=(0, 0)):
    topic: String = field()
    name: String = field()
    partition: Int32 = field()
    number: Int64 = field()


class SubscriptionValue(Struct, versions=(0, 0), flexible=0):
    type: String = field()
    ack_timeout_ms: Int32 = field()
    max_deliveries: Int16 = field()
    dead_letter_topic: String | None = field(nullable=0)
    redelivery_min_ms: Int32 = field()
    redelivery_max_ms: Int32 = field()


class HeadValue(Struct, versions=(0, 0), flexible=0):
    floor: Int64 = field()
    lost: Int64 = field()
    dead: Int64 = field()


class StoredFailure(Struct):
    index: Int16 = field()
    deliveries: Int32 = field()
    due_ms: Int64 = field()
    reason: String = field()


class BlockValue(Struct, versions=(0, 0), flexible=0):
    bits: Bytes = field()
    failures: Sequence[StoredFailure] = field()


class StoredSubscription(NamedTuple):
    topic: str
    name: str
    settings: SubscriptionSettings | None


class StoredHead(NamedTuple):
    topic: str
    name: str
    partition: int
    head: Head | None


class StoredBlock(NamedTuple):
    topic: str
    name: str
    partition: int
    number: int
    block: Block | None


def encode_subscription(topic: str, name: str, settings: SubscriptionSettings | None) -> Entry:
    """Key and value; without settings it is gone."""
    key = _packed(SubscriptionKey(topic=topic, name=name), _SUBSCRIPTION)
    if settings is None:
        return key, None
    value = SubscriptionValue(
        type=str(settings.type),
        ack_timeout_ms=settings.ack_timeout_ms,
        max_deliveries=settings.max_deliveries,
        dead_letter_topic=settings.dead_letter_topic,
        redelivery_min_ms=settings.redelivery_min_ms,
        redelivery_max_ms=settings.redelivery_max_ms,
    )
    return key, _packed(value, _VERSION)


def encode_changes(
    topic: str, name: str, partition: int, changes: Changes, *, wall_ahead_ms: int = 0
) -> list[Entry]:
    """What is to be stored of a partition; times are stored by the wall clock."""
    entries: list[Entry] = []
    if changes.head is not None:
        entries.append(encode_head(topic, name, partition, changes.head))
    for number, block in changes.blocks.items():
        entry = encode_block(topic, name, partition, number, block, wall_ahead_ms=wall_ahead_ms)
        entries.append(entry)
    return entries


def encode_head(topic: str, name: str, partition: int, head: Head | None) -> Entry:
    key = _packed(PartitionKey(topic=topic, name=name, partition=partition), _HEAD)
    if head is None:
        return key, None
    value = HeadValue(floor=head.floor, lost=head.lost, dead=head.dead)
    return key, _packed(value, _VERSION)


def encode_block(
    topic: str,
    name: str,
    partition: int,
    number: int,
    block: Block | None,
    *,
    wall_ahead_ms: int = 0,
) -> Entry:
    key = _packed(BlockKey(topic=topic, name=name, partition=partition, number=number), _BLOCK)
    if block is None:
        return key, None
    bits = block.bits
    value = BlockValue(
        bits=bits.to_bytes((bits.bit_length() + 7) // 8, "little"),
        failures=[
            StoredFailure(
                index=offset % BLOCK_OFFSETS,
                deliveries=failure.deliveries,
                due_ms=max(failure.due_ms + wall_ahead_ms, 0),
                reason=failure.reason,
            )
            for offset, failure in block.failures.items()
        ],
    )
    return key, _packed(value, _VERSION)


def decode(key: bytes, value: bytes | None) -> StoredSubscription | StoredHead | StoredBlock | None:
    """What a record says; None for a key of another kind. Raises MalformedMessage."""
    kind = _number_of(key)
    if kind == _SUBSCRIPTION:
        subscription = _unpacked(SubscriptionKey, key)
        settings = None if value is None else _settings(_value(SubscriptionValue, value))
        return StoredSubscription(subscription.topic, subscription.name, settings)
    if kind == _HEAD:
        place = _unpacked(PartitionKey, key)
        head = None if value is None else _head(_value(HeadValue, value))
        return StoredHead(place.topic, place.name, place.partition, head)
    if kind == _BLOCK:
        at = _unpacked(BlockKey, key)
        block = None if value is None else _block(at.number, _value(BlockValue, value))
        return StoredBlock(at.topic, at.name, at.partition, at.number, block)
    return None


def _settings(stored: SubscriptionValue) -> SubscriptionSettings:
    return SubscriptionSettings(
        type=stored.type,
        ack_timeout_ms=stored.ack_timeout_ms,
        max_deliveries=stored.max_deliveries,
        dead_letter_topic=stored.dead_letter_topic,
        redelivery_min_ms=stored.redelivery_min_ms,
        redelivery_max_ms=stored.redelivery_max_ms,
    )


def _head(stored: HeadValue) -> Head:
    return Head(stored.floor, stored.lost, stored.dead)


def _block(number: int, stored: BlockValue) -> Block:
    base = number * BLOCK_OFFSETS
    return Block(
        int.from_bytes(stored.bits, "little"),
        {
            base + each.index: Failure(each.deliveries, each.due_ms, each.reason)
            for each in stored.failures
        },
    )


def _packed(message: Struct, number: int) -> bytes:
    return _NUMBER.pack(number) + codec.encode(message, _KEY_VERSION)


def _unpacked(cls: type[_Message], data: bytes) -> _Message:
    return codec.decode(cls, _KEY_VERSION, data, _NUMBER.size)


def _value(cls: type[_Message], data: bytes) -> _Message:
    if _number_of(data) != _VERSION:
        raise MalformedMessage(f"a subscription in unknown version {_number_of(data)}")
    return _unpacked(cls, data)


def _number_of(data: bytes) -> int:
    if len(data) < _NUMBER.size:
        raise MalformedMessage(f"{len(data)} bytes are too few for a key or a value")
    number: int = _NUMBER.unpack_from(data)[0]
    return number
