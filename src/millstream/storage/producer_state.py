"""What a partition remembers of its producers, to refuse gaps and repeats, and of transactions.

Per producer id: the newest epoch, and the last five batches that it wrote in that epoch. Five,
because a client keeps at most five requests under way, so that any one of them may come again.
Where the epoch came with a batch that has no sequence, that one stands in for them: a marker that
ended a transaction, or what the broker itself wrote as part of one. Sequence 0 comes after it, or
any if the producer was unknown before.

Invariant: a known producer has one to five batches, all of its newest epoch, each the successor
of the one before in sequence and in offset. Sequences run from 0 to 2**31 - 1 and then again
from 0. A producer whose transaction is under way is known, and its epoch is the transaction's.

After a crash: rebuilt from the newest valid snapshot, by recording the header of every batch at
or past its `next_offset`, as if it were appended again.

An append of several batches may fail as a whole after some of them were recorded. So recording
keeps, for each producer that it touches, the entry that it replaced first since `mark`;
`rollback` puts those back. Entries are immutable, which makes keeping one a single dictionary
operation, and what is kept is bounded by the number of producers.

Format of a snapshot: docs/formats/producer_snapshot.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from millstream.errors import (
    CorruptData,
    Fenced,
    InvalidBatch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from millstream.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from millstream.records.checksum import crc32c
from millstream.records.control import ControlType, parse_control
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.transaction_state import TransactionStates

BATCHES_KEPT: Final = 5
_MAX_COUNT: Final = 20_000
"""Until a log says how many it is to remember."""
MAX_SEQUENCE: Final = 2**31 - 1
# A batch with either is part of a transaction, or ends one.
TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT

_MAGIC: Final = b"MSPS"
_VERSION: Final = 2
_PREFIX: Final = struct.Struct(">4shI")  # magic, version, checksum of all that follows
# Next offset, segment offset, two flags, producers, aborted transactions.
_HEADER: Final = struct.Struct(">qqBII")
# Producer id, epoch, coordinator epoch, first offset of its transaction, batches.
_PRODUCER: Final = struct.Struct(">qhiqB")
_BATCH: Final = struct.Struct(">iiqqq")  # sequences, offsets, timestamp
_ABORTED: Final = struct.Struct(">qqqq")  # producer id, first, last and stable offset
_IN_SEGMENT: Final = 1
_HAS_ABORTED: Final = 2
_NONE: Final = -1
# The base sequence of a batch that has none, where nothing is known of those before either.
_ANY: Final = -2

# Plain tuples, laid out as RecentBatch and as (epoch, batches, coordinator epoch): a NamedTuple
# takes five times as long to build, and one of each is built per appended batch.
_Batch = tuple[int, int, int, int, int]
_Entry = tuple[int, tuple[_Batch, ...], int]


class RecentBatch(NamedTuple):
    """One batch that a producer wrote. Both its last sequence and its last offset are inclusive."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class Producer(NamedTuple):
    """One producer's state; its newest batch comes last."""

    producer_id: int
    epoch: int
    batches: tuple[RecentBatch, ...]
    last_timestamp_ms: int
    # Where its transaction begins, if one is under way.
    transaction_offset: int | None
    # That of the last marker; -1 when there was none.
    coordinator_epoch: int

    @property
    def last_sequence(self) -> int:
        """-1 when it has written none in its epoch."""
        return self.batches[-1].last_sequence if self.batches else _NONE


class OpenTransaction(NamedTuple):
    """A producer's transaction that is under way."""

    producer_id: int
    epoch: int
    first_offset: int
    is_doubtful: bool = False
    """Whether its marker may have been in a damaged part of the log."""


class ProducerStates:
    """The producers of one partition, and their transactions."""

    __slots__ = ("_entries", "_replaced", "max_count", "transactions")

    def __init__(self) -> None:
        self.max_count = _MAX_COUNT
        """Past so many producers, those that were silent for longest are forgotten."""
        self.transactions = TransactionStates()
        self._entries: dict[int, _Entry] = {}
        # Invariant: what each producer touched since the last mark was then, None if unknown.
        self._replaced: dict[int, _Entry | None] = {}

    def check(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        *,
        is_transactional: bool = False,
    ) -> int | None:
        """Decide on a batch: None says append it, an offset is where the same batch already lies.

        Raises Fenced when a newer epoch has written, OutOfOrderSequence when the batch neither
        follows the last one nor repeats one of the last five, InvalidTransactionState when it is
        not part of the transaction that its producer has under way.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            # All it wrote may have been deleted, or it was silent for too long: any start will do.
            return None
        if producer_id in self.transactions.under_way and not is_transactional:
            raise InvalidTransactionState(
                identity=producer_id, state="under way", operation="write outside of it"
            )
        epoch, batches, _ = entry
        if producer_epoch == epoch:
            expected = (batches[-1][1] + 1) & MAX_SEQUENCE
            if base_sequence == expected:
                return None
            for batch in batches:
                if batch[0] == base_sequence and batch[1] == last_sequence:
                    return batch[2]
            if batches[-1][0] == _ANY:
                return None
        elif producer_epoch < epoch:
            raise _fenced(producer_id, producer_epoch, epoch)
        elif base_sequence == 0:
            return None
        else:
            expected = 0
        raise OutOfOrderSequence(producer_id=producer_id, expected=expected, actual=base_sequence)

    def _has_ended(self, producer_id: int, offset: int) -> bool:
        """Whether what a producer wrote there is part of a transaction that has ended.

        Nothing of the next one repeats it: to say that it is stored would be to lose it.
        """
        first_offset = self.transactions.under_way.get(producer_id)
        return first_offset is None or offset < first_offset

    def check_transactional(self, header: BatchHeader, batch: bytearray | memoryview) -> int | None:
        """The same for a batch that is part of a transaction, or the marker that ends one.

        Raises also InvalidBatch for a marker that is none, InvalidTransactionState when the
        transaction under way is that of an older epoch: its end must come first, and
        OutOfOrderSequence when the batch repeats one of a transaction that has ended.
        """
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        if header.is_control:
            parse_control(batch)
        if producer_id < 0:
            return None
        known = self._entries.get(producer_id)
        epoch = known[0] if known else _NONE
        if producer_epoch < epoch:
            raise _fenced(producer_id, producer_epoch, epoch)
        if header.is_control:
            return None
        if producer_epoch > epoch and producer_id in self.transactions.under_way:
            raise InvalidTransactionState(
                identity=producer_id,
                state=f"under way with epoch {epoch}",
                operation=f"write with epoch {producer_epoch}",
            )
        if header.base_sequence < 0:
            return None
        stored_at = self.check(
            producer_id,
            producer_epoch,
            header.base_sequence,
            header.last_sequence,
            is_transactional=True,
        )
        if stored_at is not None and self._has_ended(producer_id, stored_at):
            expected = (self._entries[producer_id][1][-1][1] + 1) & MAX_SEQUENCE
            raise OutOfOrderSequence(
                producer_id=producer_id, expected=expected, actual=header.base_sequence
            )
        return stored_at

    def record(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
    ) -> None:
        """Note a batch that was checked and is being appended, or that is replayed."""
        entry = self._entries.get(producer_id)
        self._replaced.setdefault(producer_id, entry)
        batch = (base_sequence, last_sequence, base_offset, last_offset, timestamp_ms)
        if entry is None:
            if len(self._entries) >= self.max_count:
                self._make_room()
            self._entries[producer_id] = (producer_epoch, (batch,), _NONE)
            return
        epoch, batches, coordinator_epoch = entry
        if epoch != producer_epoch:
            batches = (batch,)
        elif len(batches) == BATCHES_KEPT:
            # Spelled out because it takes half the time of a slice.
            _, second, third, fourth, fifth = batches
            batches = (second, third, fourth, fifth, batch)
        else:
            batches = (*batches, batch)
        self._entries[producer_id] = (producer_epoch, batches, coordinator_epoch)

    def record_transactional(
        self,
        header: BatchHeader,
        batch: bytearray | memoryview,
        *,
        base_offset: int,
        timestamp_ms: int,
    ) -> None:
        """The same for a batch that is part of a transaction, or the marker that ends one."""
        transactions, producer_id = self.transactions, header.producer_id
        transactions.note()
        if producer_id < 0:
            return
        last_offset = base_offset + header.last_offset_delta
        if header.is_control:
            marker = parse_control(batch)
            self._record_unsequenced(
                header, base_offset, last_offset, timestamp_ms, marker.coordinator_epoch
            )
            is_commit = marker.kind is ControlType.COMMIT
            transactions.end(producer_id, base_offset, is_commit=is_commit)
            return
        if header.base_sequence < 0:
            self._record_unsequenced(header, base_offset, last_offset, timestamp_ms)
        else:
            self.record(
                producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_sequence,
                base_offset,
                last_offset,
                timestamp_ms,
            )
        # One without records is what compaction left of a transaction that has ended.
        if header.records_count:
            transactions.begin(producer_id, base_offset)

    def _record_unsequenced(
        self,
        header: BatchHeader,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
        coordinator_epoch: int | None = None,
    ) -> None:
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        entry = self._entries.get(producer_id)
        self._replaced.setdefault(producer_id, entry)
        sequence = _ANY
        batches: tuple[_Batch, ...] = ()
        if entry is not None:
            # In the same epoch its sequence goes on where it was.
            sequence = entry[1][-1][0] if entry[0] == producer_epoch else _NONE
            batches = entry[1] if sequence >= 0 else ()
        batches = batches or ((sequence, _NONE, base_offset, last_offset, timestamp_ms),)
        if coordinator_epoch is None:
            coordinator_epoch = entry[2] if entry else _NONE
        self._entries[producer_id] = (producer_epoch, batches, coordinator_epoch)

    def replay(
        self, header: BatchHeader, batch: bytearray | memoryview, *, timestamp_ms: int
    ) -> None:
        """Note any batch of the log, with the next after it to come."""
        if header.attributes & TRANSACTION_BITS:
            # A marker that is none ends nothing.
            with suppress(InvalidBatch):
                self.record_transactional(
                    header, batch, base_offset=header.base_offset, timestamp_ms=timestamp_ms
                )
        elif header.has_producer:
            self.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_sequence,
                header.base_offset,
                header.last_offset,
                timestamp_ms,
            )

    def mark(self) -> None:
        """Begin an append: `rollback` returns to here."""
        self._replaced.clear()
        self.transactions.undo = None

    def rollback(self) -> None:
        """Forget all that was recorded since the last mark, because it was not written."""
        for producer_id, entry in self._replaced.items():
            if entry is None:
                # Not there if room was made for others since.
                self._entries.pop(producer_id, None)
            else:
                self._entries[producer_id] = entry
        self._replaced.clear()
        self.transactions.rollback()

    def expire(self, *, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers whose last batch is at least `expiration_ms` old.

        One whose transaction is under way is not silent, however long it may take.
        """
        self.mark()
        newest_expired_ms = now_ms - expiration_ms
        under_way = self.transactions.under_way
        self._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if entry[1][-1][4] > newest_expired_ms or producer_id in under_way
        }

    def _make_room(self) -> None:
        """Forget the tenth of the producers that was silent for longest."""
        under_way, replaced = self.transactions.under_way, self._replaced
        last_ms = sorted(entry[1][-1][4] for entry in self._entries.values())
        newest_doomed_ms = last_ms[len(last_ms) // 10]
        doomed = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry[1][-1][4] <= newest_doomed_ms and producer_id not in under_way
        ]
        for producer_id in doomed[: len(last_ms) // 10 + 1]:
            replaced.setdefault(producer_id, self._entries.pop(producer_id))

    def truncate(self, end_offset: int) -> bool:
        """Forget the batches that reach to or past `end_offset`; whether there were any.

        If so the state is no longer exact: the older batches that those had pushed out do not
        come back, and a producer that has none left is unknown. Replay the log to have both. So
        it is with transactions, of which this knows nothing.
        """
        self.mark()
        entries: dict[int, _Entry] = {}
        exact = True
        for producer_id, (epoch, batches, coordinator_epoch) in self._entries.items():
            kept = tuple(batch for batch in batches if batch[3] < end_offset)
            exact &= len(kept) == len(batches)
            if kept:
                entries[producer_id] = (epoch, kept, coordinator_epoch)
        self._entries = entries
        return not exact

    def copy(self) -> ProducerStates:
        """The same state, which goes its own way from here on. Cheap: entries are immutable."""
        copied = ProducerStates()
        copied.max_count = self.max_count
        copied._entries = self._entries.copy()
        copied.transactions = self.transactions.copy()
        return copied

    def producers(self) -> Iterator[Producer]:
        under_way = self.transactions.under_way
        for producer_id, (epoch, batches, coordinator_epoch) in self._entries.items():
            yield Producer(
                producer_id,
                epoch,
                tuple(RecentBatch._make(batch) for batch in batches if batch[0] >= 0),
                batches[-1][4],
                under_way.get(producer_id),
                coordinator_epoch,
            )

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """The transactions under way, the oldest first."""
        for producer_id in self.transactions.under_way:
            if (found := self.open_transaction(producer_id)) is not None:
                yield found

    def open_transaction(self, producer_id: int) -> OpenTransaction | None:
        """That of one producer."""
        first_offset = self.transactions.under_way.get(producer_id)
        if first_offset is None:
            return None
        is_doubtful = producer_id in self.transactions.doubtful
        return OpenTransaction(
            producer_id, self._entries[producer_id][0], first_offset, is_doubtful
        )

    def snapshot(self, next_offset: int) -> bytes:
        """The state after every batch below `next_offset`, as the content of a file."""
        transactions = self.transactions
        parts = [
            _HEADER.pack(
                next_offset,
                transactions.segment_offset,
                transactions.is_in_segment * _IN_SEGMENT + transactions.has_aborted * _HAS_ABORTED,
                len(self._entries),
                len(transactions.aborted),
            )
        ]
        for producer_id, (epoch, batches, coordinator_epoch) in self._entries.items():
            first_offset = transactions.under_way.get(producer_id, _NONE)
            parts.append(
                _PRODUCER.pack(producer_id, epoch, coordinator_epoch, first_offset, len(batches))
            )
            parts.extend(_BATCH.pack(*batch) for batch in batches)
        parts.extend(_ABORTED.pack(*aborted) for aborted in transactions.aborted)
        body = b"".join(parts)
        return _PREFIX.pack(_MAGIC, _VERSION, crc32c(body)) + body

    @classmethod
    def load(cls, snapshot: bytes, *, path: str) -> tuple[ProducerStates, int]:
        """The state that a snapshot holds, and its next offset.

        Raises CorruptData, naming `path`, for anything but a whole and undamaged snapshot.
        """
        body = _checked_body(snapshot, path)
        try:
            return cls._decoded(body)
        except struct.error as error:
            raise CorruptData(path=path, position=_PREFIX.size, reason=str(error)) from None

    @classmethod
    def _decoded(cls, body: memoryview) -> tuple[ProducerStates, int]:
        """What the body of a snapshot says. Raises struct.error."""
        states = cls()
        transactions = states.transactions
        next_offset, segment_offset, flags, count, aborted_count = _HEADER.unpack_from(body)
        transactions.segment_offset = segment_offset
        transactions.is_in_segment = bool(flags & _IN_SEGMENT)
        transactions.has_aborted = bool(flags & _HAS_ABORTED)
        under_way: list[tuple[int, int]] = []
        position = _HEADER.size
        for _ in range(count):
            producer_id, epoch, coordinator_epoch, first_offset, batch_count = (
                _PRODUCER.unpack_from(body, position)
            )
            position += _PRODUCER.size
            end = position + batch_count * _BATCH.size
            batches = tuple(_BATCH.iter_unpack(body[position:end]))
            if not 1 <= len(batches) == batch_count <= BATCHES_KEPT:
                raise struct.error(f"producer {producer_id} has {batch_count} batches")
            states._entries[producer_id] = (epoch, batches, coordinator_epoch)
            if first_offset >= 0:
                under_way.append((first_offset, producer_id))
            position = end
        if len(body) - position != aborted_count * _ABORTED.size:
            raise struct.error(f"{len(body) - position} bytes for {aborted_count} transactions")
        transactions.aborted = [
            AbortedTransaction._make(entry) for entry in _ABORTED.iter_unpack(body[position:])
        ]
        for first_offset, producer_id in sorted(under_way):
            transactions.begin(producer_id, first_offset)
        transactions.undo = None
        return states, next_offset


def _fenced(producer_id: int, epoch: int, current_epoch: int) -> Fenced:
    return Fenced(kind="producer", identity=producer_id, epoch=epoch, current_epoch=current_epoch)


def _checked_body(snapshot: bytes, path: str) -> memoryview:
    if len(snapshot) < _PREFIX.size + _HEADER.size:
        raise CorruptData(path=path, position=len(snapshot), reason="the producer snapshot is cut")
    magic, version, checksum = _PREFIX.unpack_from(snapshot)
    if magic != _MAGIC:
        raise CorruptData(path=path, position=0, reason="not a producer snapshot")
    if version != _VERSION:
        raise CorruptData(path=path, position=4, reason=f"unknown snapshot version {version}")
    body = memoryview(snapshot)[_PREFIX.size :]
    if crc32c(body) != checksum:
        raise CorruptData(path=path, position=6, reason="the snapshot's checksum does not match")
    return body
