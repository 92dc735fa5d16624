"""Reads the batches of one partition into Arrow columns.

Invariant: a record comes out once, in the order of offsets, and only when the checksum of its
batch holds. After an error the reader is of no more use.
After a crash: nothing is kept; a new reader starts at any offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import CorruptData, InvalidBatch, MessageTooLarge, UnsupportedCodec
from millstream.records.arrow_twin import ColumnBuilder
from millstream.records.arrow_types import schema
from millstream.records.batch import (
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    validate,
)
from millstream.records.compression import Codec, decompress
from millstream.records.control import ControlType, parse_control

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

BATCH_ROWS = 32 * 1024
BATCH_BYTES = 16 * 1024 * 1024
MAX_UNPACKED_BYTES = 512 * 1024 * 1024
"""Of one batch. Arrow counts the bytes of a column in 31 bits."""

MAX_OFFSET = 2**63 - 1
_CONSTANT_COLUMNS = {"topic", "partition"}


class ColumnReader:
    """Turns what a Fetch answer or a segment holds into Arrow, one partition and range each."""

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        columns: Sequence[str],
        start: int,
        end: int | None,
        committed: bool,
        batch_rows: int = BATCH_ROWS,
        builder: type[ColumnBuilder] = ColumnBuilder,
    ) -> None:
        """Records of start <= offset < end. `committed` leaves aborted transactions out."""
        self.next_offset = start
        """Where to fetch next: behind all that was fed, gaps included, and never behind `end`."""
        self._schema = schema(columns)
        self._topic = pa.scalar(topic, pa.string())
        self._partition = pa.scalar(partition, pa.int32())
        self._name = f"{topic}-{partition}"
        self._end = MAX_OFFSET if end is None else end
        self._committed = committed
        # Invariant: of each producer, the offset of the last abort seen.
        self._aborts: dict[int, int] = {}
        self._builder = builder(
            [name for name in columns if name not in _CONSTANT_COLUMNS],
            max_rows=batch_rows,
            max_bytes=BATCH_BYTES,
        )

    def feed(
        self, data: ReadableBuffer, aborted: Iterable[tuple[int, int]] = ()
    ) -> list[pa.RecordBatch]:
        """Read whole batches, of which the last may be cut off; it is left for the next time.

        `aborted` are the producer id and first offset of the transactions that ended in an abort,
        of all that reach into the data. What comes back is what is full; see `rest`.
        Raises CorruptData; UnsupportedCodec or MessageTooLarge where only we cannot read it.
        """
        out: list[pa.RecordBatch] = []
        firsts = _first_offsets(aborted)
        view = memoryview(data)
        for position, header in self._headers(view):
            if header.base_offset >= self._end:
                self.next_offset = max(self.next_offset, self._end)
                break
            batch = view[position : position + header.size_bytes]
            if header.is_control:
                self._note_abort(header, position, batch)
            elif header.next_offset > self.next_offset and not self._is_aborted(header, firsts):
                try:
                    self._read(header, batch, out)
                except InvalidBatch as cause:
                    raise self._damage(position, header, cause) from cause
                except MessageTooLarge as cause:
                    cause.add_note(f"in {self._name}, the batch at offset {header.base_offset}")
                    raise
            self.next_offset = max(self.next_offset, min(header.next_offset, self._end))
        return out

    def rest(self) -> list[pa.RecordBatch]:
        """What is gathered and not yet given out."""
        return [self._take()] if self._builder.rows else []

    def _headers(self, view: memoryview) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each whole batch, once it is known to be sound."""
        position, next_offset = 0, 0
        while len(view) - position > MAGIC_AT:
            length = int.from_bytes(view[position + LENGTH_AT : position + LENGTH_PREFIX_BYTES])
            magic = view[position + MAGIC_AT]
            if magic < MAGIC and length:
                raise InvalidBatch(
                    f"{self._name} holds messages of format {magic}, from before Kafka 0.11, at "
                    f"byte {position}: copy them to a new topic with a Kafka client"
                )
            size_bytes = length + LENGTH_PREFIX_BYTES
            # A segment that is being written ends in a hole of zeros.
            if not length or len(view) - position < size_bytes:
                return
            try:
                header = validate(view[position : position + size_bytes])
            except InvalidBatch as cause:
                raise self._damage(position, None, cause) from cause
            except UnsupportedCodec as cause:
                cause.add_note(f"in {self._name}, after offset {self.next_offset}")
                raise
            if not next_offset <= header.base_offset <= header.last_offset < MAX_OFFSET:
                reason = f"offset {header.base_offset} where {next_offset} comes next"
                raise self._damage(position, None, InvalidBatch(reason))
            yield position, header
            position += size_bytes
            next_offset = header.next_offset

    def _read(self, header: BatchHeader, batch: memoryview, out: list[pa.RecordBatch]) -> None:
        body: ReadableBuffer = batch[HEADER_BYTES:]
        if header.codec is not Codec.NONE:
            body = decompress(header.codec, body, MAX_UNPACKED_BYTES)
        elif len(batch) > MAX_UNPACKED_BYTES:
            raise MessageTooLarge(size_bytes=len(batch), limit_bytes=MAX_UNPACKED_BYTES)
        self._builder.open(
            body,
            count=header.records_count,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            base_timestamp_ms=header.base_timestamp_ms,
            append_time_ms=header.max_timestamp_ms if header.timestamp_type_append else None,
            low=self.next_offset,
            high=self._end,
        )
        while not self._builder.fill():
            out.append(self._take())

    def _take(self) -> pa.RecordBatch:
        rows = self._builder.rows
        columns = self._builder.take()
        constants = {"topic": self._topic, "partition": self._partition}
        return pa.RecordBatch.from_arrays(
            [
                columns[name] if name in columns else pa.repeat(constants[name], rows)
                for name in self._schema.names
            ],
            schema=self._schema,
        )

    def _note_abort(self, header: BatchHeader, position: int, batch: memoryview) -> None:
        # Kafka's compaction may keep the batch of a marker and not the marker.
        if not header.is_transactional or not header.records_count:
            return
        try:
            marker = parse_control(batch)
        except InvalidBatch as cause:
            raise self._damage(position, header, cause) from cause
        if marker.kind is ControlType.ABORT:
            self._aborts[header.producer_id] = header.base_offset

    def _is_aborted(self, header: BatchHeader, firsts: Mapping[int, Sequence[int]]) -> bool:
        """Whether a transaction holds the batch that began before it and was aborted after it."""
        if not self._committed or not header.is_transactional:
            return False
        ended_at = self._aborts.get(header.producer_id, -1)
        return any(
            ended_at < first <= header.base_offset for first in firsts.get(header.producer_id, ())
        )

    def _damage(
        self, position: int, header: BatchHeader | None, cause: InvalidBatch
    ) -> CorruptData:
        where = f"after offset {self.next_offset}" if header is None else f"{header.base_offset}"
        return CorruptData(
            path=self._name, position=position, reason=f"the batch at {where}: {cause.reason}"
        )


def _first_offsets(aborted: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    firsts: dict[int, list[int]] = {}
    for producer_id, first_offset in aborted:
        firsts.setdefault(producer_id, []).append(first_offset)
    return firsts
