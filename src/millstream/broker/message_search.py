"""Messages that hold some text: a scan of the log in slices, each asked for by itself.

The log is read by its owner, the event loop, some batches at a time; they are unpacked and looked
through in a thread. Batches whose bytes hold the text nowhere are not taken apart, which is nearly
all of them, so a million messages take seconds at most.

Letters from A to Z are found in both cases. Only committed messages are found.

Invariant: a slice ends when it has found enough, in number or bytes, when its time is over, or at
the end of what there is; it says where the next one begins, and nothing is kept in between. However
many search at once, few of them have a thread, so that the broker's own work finds one too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.broker.partition import Partition
from millstream.errors import CorruptData
from millstream.records import Record
from millstream.storage.batch_walk import end_of_batches
from millstream.storage.stored_records import stored_batches, stored_parts, stored_records

_PIECE_BYTES = 512 << 10
_RECORD_BYTES = 16 << 20
"""Largest message that is looked into."""
_STEP_BACK = 64
"""Offsets that are looked at together at first by who goes back."""
_SHORT_S, _LONG_S = 0.03, 0.12
"""A step that takes less is followed by one over more offsets; one that takes more, over fewer."""
MOST_THREADS = 2

IsAbandoned = Callable[[], Awaitable[bool]]


class Wanted(NamedTuple):
    """What is looked for. Empty is anything."""

    text: bytes = b""
    """In the value, the key or a header."""
    key: bytes = b""
    """The whole key, in the case that it has."""

    @property
    def needle(self) -> bytes:
        """What a batch must hold to be worth a look."""
        return self.text.lower() or self.key.lower()

    def matches(self, record: Record) -> bool:
        if self.key and record.key != self.key:
            return False
        return not self.text or self._holds_text(record)

    def _holds_text(self, record: Record) -> bool:
        text = self.text.lower()
        if text in (record.value or b"").lower() or text in (record.key or b"").lower():
            return True
        return any(
            text in name.encode("utf-8", "surrogateescape").lower()
            or text in (value or b"").lower()
            for name, value in record.headers
        )


class Room(NamedTuple):
    """For what is found. The first one always has room, whatever its size."""

    messages: int
    size_bytes: int

    @property
    def is_full(self) -> bool:
        return self.messages <= 0 or self.size_bytes <= 0

    def without(self, records: Iterable[Record]) -> Room:
        sizes = [size_of(each) for each in records]
        return Room(self.messages - len(sizes), self.size_bytes - sum(sizes))


def size_of(record: Record) -> int:
    """About what it takes up in an answer, in bytes."""
    size = len(record.value or b"") + len(record.key or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


@dataclass(slots=True)
class Slice:
    """What was found, and how far the scan has come."""

    records: list[Record] = field(default_factory=list)
    offset: int = 0
    """Where to go on: with this one; or when going back, with the ones before it."""
    is_over: bool = False


@dataclass(slots=True)
class Pace:
    """How many offsets who goes back looks at together."""

    offsets: int = _STEP_BACK

    def took(self, seconds: float) -> None:
        """Where much was compacted away, or messages are large, offsets say little of the work."""
        if seconds < _SHORT_S:
            self.offsets *= 2
        elif seconds > _LONG_S:
            self.offsets = max(self.offsets // 2, 1)


class Searches:
    """All searches of a broker. Lives on the event loop."""

    def __init__(self, *, max_unpacked_bytes: int) -> None:
        self._max_unpacked_bytes = max_unpacked_bytes
        self._threads = asyncio.Semaphore(MOST_THREADS)

    async def search(
        self,
        partition: Partition,
        wanted: Wanted,
        offset: int,
        *,
        room: Room,
        within_s: float,
        is_backward: bool = False,
        is_abandoned: IsAbandoned | None = None,
        pace: Pace | None = None,
    ) -> Slice:
        """Look from an offset on, or before it. Raises CorruptData, StorageFailure.

        A cancelled search ends when its turn comes. Callers that search several times share a
        `pace`.
        """
        scan = _Scan(partition, wanted, self._max_unpacked_bytes, pace or Pace())
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        found = Slice(offset=offset)
        while not found.is_over and not room.is_full:
            async with self._threads:
                if is_abandoned is not None and await is_abandoned():
                    found.is_over = True
                    break
                try:
                    records = await (scan.back if is_backward else scan.on)(found, room)
                except CorruptData as fault:
                    partition.note_damage(fault)
                    raise
            found.records += records
            room = room.without(records)
            if loop.time() >= deadline_s:
                break
        return found


class _Last:
    """The last records for which there is room."""

    def __init__(self, room: Room) -> None:
        self.records: deque[Record] = deque()
        self.is_all = True
        self._room = room

    def add(self, record: Record) -> None:
        self.records.append(record)
        self._room = self._room.without([record])
        while len(self.records) > 1 and (self._room.messages < 0 or self._room.size_bytes < 0):
            oldest = self.records.popleft()
            self._room = Room(self._room.messages + 1, self._room.size_bytes + size_of(oldest))
            self.is_all = False


class _Scan:
    """Goes through a partition, piece by piece."""

    def __init__(
        self, partition: Partition, wanted: Wanted, max_unpacked_bytes: int, pace: Pace
    ) -> None:
        self._partition = partition
        self._wanted = wanted
        self._max_unpacked_bytes = max_unpacked_bytes
        self._pace = pace

    async def on(self, found: Slice, room: Room) -> list[Record]:
        log = self._partition.log
        begin = max(found.offset, log.start_offset)
        batches, end = self._read(begin)
        records, found.offset = await asyncio.to_thread(self._first, batches, begin, end, room)
        found.is_over = found.offset >= log.last_stable_offset
        return records

    async def back(self, found: Slice, room: Room) -> list[Record]:
        log, loop = self._partition.log, asyncio.get_running_loop()
        end = min(found.offset, log.last_stable_offset)
        at = begin = max(end - self._pace.offsets, log.start_offset)
        last = _Last(room)
        begin_s = loop.time()
        while at < end:
            batches, after = self._read(at)
            await asyncio.to_thread(self._into, last, batches, at, min(after, end))
            at = after
        self._pace.took(loop.time() - begin_s)
        found.offset = begin if last.is_all else last.records[0].offset
        found.is_over = found.offset <= log.start_offset
        return [*reversed(last.records)]

    def _read(self, begin: int) -> tuple[list[bytes], int]:
        """Copies of batches, for a thread, and the offset after them."""
        log = self._partition.log
        stable = log.last_stable_offset
        if begin >= stable:
            return [], stable
        view = log.read(begin, _PIECE_BYTES, below=stable if stable < log.end_offset else None)
        if not view:
            return [], stable
        end = end_of_batches(view)
        aborted = log.aborted_transactions(begin, end) if log.has_aborted_transactions else ()
        chosen = [
            bytes(batch)
            for header, batch in stored_batches(view, begin, end_offset=log.end_offset)
            if not header.is_control
            and not any(
                each.producer_id == header.producer_id
                and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
                if header.is_transactional
            )
        ]
        return chosen, end

    def _first(
        self, batches: Sequence[bytes], begin: int, end: int, room: Room
    ) -> tuple[list[Record], int]:
        """Those for which there is room, and the offset to go on with. In a thread."""
        records: list[Record] = []
        for record in self._sift(batches, begin, end):
            if room.is_full:
                return records, record.offset
            records.append(record)
            room = room.without([record])
        return records, end

    def _into(self, last: _Last, batches: Sequence[bytes], begin: int, end: int) -> None:
        """In a thread."""
        for record in self._sift(batches, begin, end):
            last.add(record)

    def _sift(self, batches: Sequence[bytes], begin: int, end: int) -> Iterator[Record]:
        """The records that are looked for, from an offset on and below another."""
        needle, matches = self._wanted.needle, self._wanted.matches
        limit_bytes = self._max_unpacked_bytes
        for batch in batches:
            if needle and not may_hold(stored_parts(batch, limit_bytes=limit_bytes), needle):
                continue
            for record in stored_records(
                batch,
                limit_bytes=limit_bytes,
                record_limit_bytes=min(_RECORD_BYTES, limit_bytes),
                from_offset=begin,
            ):
                if record.offset >= end:
                    return
                if matches(record):
                    yield record


def may_hold(parts: Iterable[bytes], needle: bytes) -> bool:
    """Whether bytes that come in parts hold others, in whichever case."""
    rest = b""
    for part in parts:
        window = (rest + part).lower()
        if needle in window:
            return True
        rest = window[len(window) - len(needle) + 1 :] if len(needle) > 1 else b""
    return False
