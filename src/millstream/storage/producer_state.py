"""What a partition remembers of its idempotent producers, to refuse gaps and repeats.

Per producer id: the newest epoch, and the last five batches that it wrote in that epoch. Five,
because a client keeps at most five requests under way, so that any one of them may come again.

Invariant: a known producer has one to five batches, all of its newest epoch, each the successor
of the one before in sequence and in offset. Sequences run from 0 to 2**31 - 1 and then again
from 0.

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
from typing import Final, NamedTuple

from millstream.errors import CorruptData, Fenced, OutOfOrderSequence
from millstream.records.checksum import crc32c

BATCHES_KEPT: Final = 5
MAX_SEQUENCE: Final = 2**31 - 1

_MAGIC: Final = b"MSPS"
_VERSION: Final = 1
_PREFIX: Final = struct.Struct(">4shI")  # magic, version, checksum of all that follows
_HEADER: Final = struct.Struct(">qI")  # next offset, producers
_PRODUCER: Final = struct.Struct(">qhB")  # producer id, epoch, batches
_BATCH: Final = struct.Struct(">iiqqq")  # sequences, offsets, timestamp

# Plain tuples, laid out as RecentBatch and as (epoch, batches): a NamedTuple takes five times
# as long to build, and one of each is built per appended batch.
_Batch = tuple[int, int, int, int, int]
_Entry = tuple[int, tuple[_Batch, ...]]


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

    @property
    def last_timestamp_ms(self) -> int:
        return self.batches[-1].timestamp_ms


class ProducerStates:
    """The idempotent producers of one partition."""

    __slots__ = ("_entries", "_replaced")

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        # Invariant: what each producer touched since the last mark was then, None if unknown.
        self._replaced: dict[int, _Entry | None] = {}

    def check(
        self, producer_id: int, producer_epoch: int, base_sequence: int, last_sequence: int
    ) -> int | None:
        """Decide on a batch: None says append it, an offset is where the same batch already lies.

        Raises Fenced when a newer epoch has written, OutOfOrderSequence when the batch neither
        follows the last one nor repeats one of the last five.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            # All it wrote may have been deleted, or it was silent for too long: any start will do.
            return None
        epoch, batches = entry
        if producer_epoch == epoch:
            expected = (batches[-1][1] + 1) & MAX_SEQUENCE
            if base_sequence == expected:
                return None
            for batch in batches:
                if batch[0] == base_sequence and batch[1] == last_sequence:
                    return batch[2]
        elif producer_epoch < epoch:
            raise Fenced(
                kind="producer", identity=producer_id, epoch=producer_epoch, current_epoch=epoch
            )
        elif base_sequence == 0:
            return None
        else:
            expected = 0
        raise OutOfOrderSequence(producer_id=producer_id, expected=expected, actual=base_sequence)

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
        if entry is None or entry[0] != producer_epoch:
            self._entries[producer_id] = (producer_epoch, (batch,))
            return
        batches = entry[1]
        if len(batches) == BATCHES_KEPT:
            # Spelled out because it takes half the time of a slice.
            _, second, third, fourth, fifth = batches
            self._entries[producer_id] = (producer_epoch, (second, third, fourth, fifth, batch))
        else:
            self._entries[producer_id] = (producer_epoch, (*batches, batch))

    def mark(self) -> None:
        """Begin an append: `rollback` returns to here."""
        self._replaced.clear()

    def rollback(self) -> None:
        """Forget all that was recorded since the last mark, because it was not written."""
        for producer_id, entry in self._replaced.items():
            if entry is None:
                del self._entries[producer_id]
            else:
                self._entries[producer_id] = entry
        self._replaced.clear()

    def expire(self, *, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers whose last batch is at least `expiration_ms` old."""
        self._replaced.clear()
        newest_expired_ms = now_ms - expiration_ms
        self._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if entry[1][-1][4] > newest_expired_ms
        }

    def truncate(self, end_offset: int) -> bool:
        """Forget the batches that reach to or past `end_offset`; whether there were any.

        If so the state is no longer exact: the older batches that those had pushed out do not
        come back, and a producer that has none left is unknown. Replay the log to have both.
        """
        self._replaced.clear()
        entries: dict[int, _Entry] = {}
        exact = True
        for producer_id, (epoch, batches) in self._entries.items():
            kept = tuple(batch for batch in batches if batch[3] < end_offset)
            exact &= len(kept) == len(batches)
            if kept:
                entries[producer_id] = (epoch, kept)
        self._entries = entries
        return not exact

    def copy(self) -> ProducerStates:
        """The same state, which goes its own way from here on. Cheap: entries are immutable."""
        copied = ProducerStates()
        copied._entries = self._entries.copy()
        return copied

    def producers(self) -> Iterator[Producer]:
        for producer_id, (epoch, batches) in self._entries.items():
            yield Producer(producer_id, epoch, tuple(map(RecentBatch._make, batches)))

    def snapshot(self, next_offset: int) -> bytes:
        """The state after every batch below `next_offset`, as the content of a file."""
        parts = [_HEADER.pack(next_offset, len(self._entries))]
        for producer_id, (epoch, batches) in self._entries.items():
            parts.append(_PRODUCER.pack(producer_id, epoch, len(batches)))
            parts.extend(_BATCH.pack(*batch) for batch in batches)
        body = b"".join(parts)
        return _PREFIX.pack(_MAGIC, _VERSION, crc32c(body)) + body

    @classmethod
    def load(cls, snapshot: bytes, *, path: str) -> tuple[ProducerStates, int]:
        """The state that a snapshot holds, and its next offset.

        Raises CorruptData, naming `path`, for anything but a whole and undamaged snapshot.
        """
        body = _checked_body(snapshot, path)
        states = cls()
        try:
            next_offset, count = _HEADER.unpack_from(body)
            position = _HEADER.size
            for _ in range(count):
                producer_id, epoch, batch_count = _PRODUCER.unpack_from(body, position)
                position += _PRODUCER.size
                end = position + batch_count * _BATCH.size
                batches = tuple(_BATCH.iter_unpack(body[position:end]))
                if not 1 <= len(batches) == batch_count <= BATCHES_KEPT:
                    raise struct.error(f"producer {producer_id} has {batch_count} batches")
                states._entries[producer_id] = (epoch, batches)
                position = end
            if position != len(body):
                raise struct.error(f"{len(body) - position} bytes too many")
        except struct.error as error:
            raise CorruptData(path=path, position=_PREFIX.size, reason=str(error)) from None
        return states, next_offset


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
