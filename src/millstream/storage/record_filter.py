"""Decides which records of a log compaction keeps.

It first learns the newest offset of every key in the dirty part of the log, as far as its memory
reaches. Then it judges batches, those of the clean part too: a record goes when a newer one of its
key was learnt, and a tombstone when it has been kept for long enough. Records without a key stay.

The last batch of a log stays whatever it is. Nobody who reads to the end would get there otherwise,
for nothing can be sent that ends where the log does.

All that it is given lies below the last stable offset, so every transaction in it has ended. A
record of an aborted one replaces no other, and goes; one of a committed transaction is like any
other. The markers that end transactions are for `marker_filter`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import le

from millstream.records.batch import (
    CODEC_BITS,
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from millstream.records.batch_builder import rebuild
from millstream.records.compression import decompress
from millstream.records.record_keys import RUN_RECORDS, KeyRun, key_runs, select
from millstream.storage.aborted_records import AbortedRecords
from millstream.storage.filesystem import Buffer
from millstream.storage.key_map import KeyMap
from millstream.storage.marker_filter import MarkerFilter


class RecordFilter:
    """Learns the dirty part of a log, batch by batch, and then judges all of it."""

    def __init__(
        self,
        *,
        clean_offset: int,
        log_end_offset: int,
        tombstones_below: int,
        aborted: AbortedRecords,
        markers: MarkerFilter,
        buffer_bytes: int,
        max_decompressed_bytes: int,
    ) -> None:
        self._clean_offset = clean_offset
        self._log_end_offset = log_end_offset
        self._tombstones_below = tombstones_below
        self._aborted = aborted
        self._markers = markers
        self._max_decompressed_bytes = max_decompressed_bytes
        self._keys = KeyMap(buffer_bytes)
        self._newest: array[int] = array("q")
        self._saw_keyless = False
        self._is_full = False
        self._noted_keys: list[bytes | None] = []
        self._noted_offsets: list[int] = []
        # Where the part that has been learnt ends.
        self.end_offset = clean_offset
        # Whether the part that is learnt has tombstones or markers, which go when it is time.
        self.saw_mortals = False

    @property
    def key_count(self) -> int:
        return len(self._keys)

    @property
    def awaits_markers(self) -> bool:
        """Whether records were judged by a marker that has not been met."""
        return self._markers.is_one_missing

    def skip(self) -> None:
        """Leave out the segment that would come next: nothing is known of its transactions."""
        self._markers.skip()

    def learn(self, header: BatchHeader, batch: memoryview) -> bool:
        """Note the keys of a batch; whether there is room for more. Raises InvalidRequest."""
        if header.last_offset < self._clean_offset:
            return True
        if header.attributes & CONTROL_BIT:
            self.saw_mortals = True
            return True
        if self._is_aborted(header):
            return True
        for run in key_runs(header, self._body(header, batch)):
            self._note(header, run)
            # Keys of small batches go to the map together.
            if len(self._noted_keys) >= RUN_RECORDS and not self._add_noted():
                return False
        return True

    def _note(self, header: BatchHeader, run: KeyRun) -> None:
        offsets = _offsets(header, run)
        if run.tombstones:
            self.saw_mortals = True
        if not run.keyless and header.base_offset >= self._clean_offset:
            self._noted_keys += run.keys
            self._noted_offsets += offsets
            return
        self._saw_keyless |= bool(run.keyless)
        for key, offset in zip(run.keys, offsets, strict=True):
            if key is not None and offset >= self._clean_offset:
                self._noted_keys.append(key)
                self._noted_offsets.append(offset)

    def _add_noted(self) -> bool:
        count = self._keys.add(self._noted_keys, self._noted_offsets)
        self._is_full = count < len(self._noted_keys)
        if self._is_full:
            self.end_offset = self._noted_offsets[count]
        self._noted_keys.clear()
        self._noted_offsets.clear()
        return not self._is_full

    def end_learning(self, end_offset: int) -> None:
        """All dirty batches below an offset were learnt, or as many as there was room for."""
        if not self._is_full and self._add_noted():
            self.end_offset = end_offset
        self._newest = self._keys.offsets()

    def retain(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """What stays of a batch: the batch itself, a smaller one, or nothing.

        Batches come in the order of the log. Raises InvalidRequest when records cannot be read.
        """
        kept = self._judge(header, batch)
        is_last = header.next_offset == self._log_end_offset
        return batch if kept is None and is_last else kept

    def _judge(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        if header.attributes & CONTROL_BIT:
            return batch if self._markers.keeps(header) else None
        if self._is_aborted(header):
            self._markers.note_dropped(header.producer_id)
            return None
        kept = batch if header.base_offset >= self.end_offset else self._newest_of(header, batch)
        if kept is not None and header.attributes & TRANSACTIONAL_BIT:
            self._markers.note_records(header.producer_id)
        return kept

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.attributes & TRANSACTIONAL_BIT != 0 and self._aborted.include(
            header.producer_id, header.base_offset
        )

    def _newest_of(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        if not self._is_learnt(header):
            return self._retain_by_key(header, batch)
        first = bisect_left(self._newest, header.base_offset)
        end = bisect_right(
            self._newest,
            header.last_offset,
            lo=first,
            hi=min(first + header.records_count, len(self._newest)),
        )
        if end - first == header.records_count:
            return batch
        if end == first:
            return None
        if header.records_count <= header.last_offset_delta:
            return self._retain_by_key(header, batch)
        kept = bytearray(header.records_count)
        for offset in self._newest[first:end]:
            kept[offset - header.base_offset] = 1
        return _rebuilt(header, self._body(header, batch), kept)

    def _is_learnt(self, header: BatchHeader) -> bool:
        """Whether the offsets learnt say of each record of a batch if it stays.

        Every key in there was learnt, so that the newest offsets alone decide and no key has
        to be read again.
        """
        return (
            self._clean_offset <= header.base_offset
            and header.last_offset < self.end_offset
            and not self._saw_keyless
        )

    def _retain_by_key(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        body = self._body(header, batch)
        kept = bytearray()
        for run in key_runs(header, body):
            offsets = _offsets(header, run)
            marks = bytearray(map(le, self._keys.newest(run.keys), offsets))
            for number in run.tombstones:
                if offsets[number] < self._tombstones_below and run.keys[number] is not None:
                    marks[number] = 0
            kept += marks
        if all(kept):
            return batch
        return _rebuilt(header, body, kept) if any(kept) else None

    def _body(self, header: BatchHeader, batch: memoryview) -> bytes:
        packed = batch[HEADER_BYTES:]
        if not header.attributes & CODEC_BITS:
            return bytes(packed)
        return decompress(header.codec, packed, self._max_decompressed_bytes)


def _offsets(header: BatchHeader, run: KeyRun) -> Sequence[int]:
    base, deltas = header.base_offset, run.offset_deltas
    first, last = deltas[0], deltas[-1]
    if last - first < len(deltas):
        return range(base + first, base + last + 1)
    return [base + delta for delta in deltas]


def _rebuilt(header: BatchHeader, body: bytes, kept: bytearray) -> bytearray:
    parts, max_timestamp_ms = select(header, body, kept)
    return rebuild(
        header,
        parts,
        records_count=sum(kept),
        max_timestamp_ms=max_timestamp_ms,
        codec=header.codec,
    )
