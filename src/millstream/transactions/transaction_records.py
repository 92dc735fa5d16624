"""The bytes of transactions, as Kafka writes them to `__transaction_state`.

A key is the transactional id, a value all that is known of it; each begins with the version of its
format in two bytes. Kafka does not store which epoch a producer had before, which one the records
of a transaction have, nor whether it has aborted and kept its epoch: those are tagged fields of our
own, which its tools pass over.

Invariant: what was encoded is decoded to an equal value.
After a crash: the newest value of each key is what was known.
Format: docs/formats/transaction_state.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from millstream.errors import MalformedMessage
from millstream.protocol import codec
from millstream.protocol.notation import Int8, Int16, Int32, Int64, String, Struct, field
from millstream.transactions.transaction import (
    NO_EPOCH,
    TopicPartition,
    Transaction,
    TransactionState,
)

_NUMBER = struct.Struct(">h")
_KEY = 0
_VALUE = 1
_OLDEST_VALUE = 0
_VERSION_THAT_BUMPS = 2
"""The `transaction.version` from which on a client takes a new epoch for every transaction."""

_STATUS: Mapping[TransactionState, int] = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
}
_STATES: Mapping[int, TransactionState] = {status: state for state, status in _STATUS.items()}


class TransactionLogKey(Struct, versions=(0, 0)):
    transactional_id: String = field()


class StoredPartitions(Struct):
    topic: String = field()
    partition_ids: Sequence[Int32] = field()


class TransactionLogValue(Struct, versions=(0, 1), flexible=1):
    producer_id: Int64 = field()
    previous_producer_id: Int64 = field(since=1, tag=0, default=-1)
    next_producer_id: Int64 = field(since=1, tag=1, default=-1)
    producer_epoch: Int16 = field()
    timeout_ms: Int32 = field()
    status: Int8 = field()
    partitions: Sequence[StoredPartitions] | None = field(nullable=0)
    last_update_timestamp_ms: Int64 = field()
    start_timestamp_ms: Int64 = field()
    client_transaction_version: Int16 = field(since=1, tag=2)
    last_producer_epoch: Int16 = field(since=1, tag=10_000, default=-1)
    data_epoch: Int16 = field(since=1, tag=10_001, default=-1)
    follows_abort: Int8 = field(since=1, tag=10_002)


_Message = TypeVar("_Message", bound=Struct)


def encode(transaction: Transaction) -> tuple[bytes, bytes]:
    """Key and value."""
    is_empty = transaction.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout_ms=transaction.timeout_ms,
        status=_STATUS[transaction.state],
        partitions=None if is_empty else _stored(transaction.partitions),
        last_update_timestamp_ms=transaction.updated_ms,
        start_timestamp_ms=transaction.started_ms,
        client_transaction_version=_VERSION_THAT_BUMPS if transaction.bumps_epoch else 0,
        last_producer_epoch=transaction.previous_epoch,
        data_epoch=transaction.data_epoch,
        follows_abort=int(transaction.follows_abort),
    )
    return _key(transaction.transactional_id), _NUMBER.pack(_VALUE) + codec.encode(value, _VALUE)


def tombstone(transactional_id: str) -> tuple[bytes, None]:
    """Key and value of an id that is forgotten."""
    return _key(transactional_id), None


def decode(key: bytes, value: bytes | None) -> tuple[str, Transaction | None] | None:
    """The id and what is known of it, None if nothing. None for a key of another kind."""
    if _number_of(key) != _KEY:
        return None
    transactional_id = _unpack(TransactionLogKey, key).transactional_id
    if value is None:
        return transactional_id, None
    if not _OLDEST_VALUE <= _number_of(value) <= _VALUE:
        raise MalformedMessage(f"a transaction in unknown version {_number_of(value)}")
    return transactional_id, _transaction(transactional_id, _unpack(TransactionLogValue, value))


def _transaction(transactional_id: str, stored: TransactionLogValue) -> Transaction:
    state = _STATES.get(stored.status)
    if state is None:
        raise MalformedMessage(f"a transaction in unknown state {stored.status}")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        previous_epoch=stored.last_producer_epoch,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        timeout_ms=stored.timeout_ms,
        state=state,
        partitions=frozenset(
            (part.topic, number)
            for part in stored.partitions or ()
            for number in part.partition_ids
        ),
        bumps_epoch=stored.client_transaction_version >= _VERSION_THAT_BUMPS,
        data_epoch=_data_epoch(state, stored),
        follows_abort=bool(stored.follows_abort),
        started_ms=stored.start_timestamp_ms,
        updated_ms=stored.last_update_timestamp_ms,
    )


def _data_epoch(state: TransactionState, stored: TransactionLogValue) -> int:
    """The epoch of the records; where it is not told, the one that Kafka would have ended."""
    if stored.data_epoch != NO_EPOCH:
        return stored.data_epoch
    if state is TransactionState.ONGOING:
        return stored.producer_epoch
    if not state.is_ending:
        return NO_EPOCH
    was_bumped = stored.client_transaction_version >= _VERSION_THAT_BUMPS
    return stored.producer_epoch - 1 if was_bumped else stored.producer_epoch


def _stored(partitions: frozenset[TopicPartition]) -> list[StoredPartitions]:
    return [
        StoredPartitions(topic=topic, partition_ids=[number for _, number in numbers])
        for topic, numbers in groupby(sorted(partitions), key=lambda partition: partition[0])
    ]


def _key(transactional_id: str) -> bytes:
    key = TransactionLogKey(transactional_id=transactional_id)
    return _NUMBER.pack(_KEY) + codec.encode(key, _KEY)


def _number_of(data: bytes) -> int:
    if len(data) < _NUMBER.size:
        raise MalformedMessage(f"{len(data)} bytes are too few for a key or a value")
    number: int = _NUMBER.unpack_from(data)[0]
    return number


def _unpack(cls: type[_Message], data: bytes) -> _Message:
    return codec.decode(cls, _number_of(data), data, _NUMBER.size)
