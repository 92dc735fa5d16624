"""The records of stored batches: the one way in which the broker decodes what it has kept.

A batch that was proved when it was first read may have been damaged since, on the disk behind its
mapping. So it is proved each time before a record is taken out: its bytes are copied, the copy is
held against its checksum, and its place against those of its neighbours. It is unpacked as its
records are asked for: see `records.batch_reader`.

Whatever is wrong is told with the offset: CorruptData for damage, and for what its sender has made
unreadable; RecordTooLarge for what unpacks to more than may be held.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.errors import CorruptData, InvalidRequest, MessageTooLarge, RecordTooLarge
from millstream.records.batch import HEADER_BYTES, BatchHeader, parse_header, validate
from millstream.records.batch_reader import records_of, times_of
from millstream.records.compression import unpack
from millstream.records.record import Record

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MAX_RECORDS = 1_000_000
"""Batches of more records are not taken apart: that would keep everybody else waiting."""


def stored_batches(
    view: memoryview, offset: int, *, end_offset: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch of a run that was read at an offset of a log, which ends at another one.

    Headers may have changed since the run was found, too. Raises CorruptData.
    """
    position = 0
    while position < len(view):
        header = _header_in(view, position, offset)
        behind = position + header.size_bytes
        limit = _header_in(view, behind, offset).base_offset if behind < len(view) else end_offset
        # Compaction leaves gaps, but nothing makes batches overlap.
        is_in_place = position == 0 or offset <= header.base_offset
        if not (is_in_place and offset < header.next_offset <= limit):
            raise _corrupt(offset, f"its offsets are said to be up to {header.last_offset}", limit)
        yield header, view[position:behind]
        position, offset = behind, header.next_offset


def stored_records(
    batch: ReadableBuffer,
    *,
    limit_bytes: int,
    record_limit_bytes: int | None = None,
    from_offset: int = 0,
) -> Iterator[Record]:
    """The records of a stored batch from an offset on; it unpacks to at most `limit_bytes`.

    Raises CorruptData or RecordTooLarge, at the first record or at a later one.
    """
    proved = prove(batch)
    header = _countable(proved)
    next_offset = max(header.base_offset, from_offset)
    records = records_of(
        proved,
        limit_bytes=limit_bytes,
        record_limit_bytes=record_limit_bytes,
        from_offset=from_offset,
    )
    try:
        for record in records:
            next_offset = record.offset + 1
            yield record
    except MessageTooLarge as fault:
        is_one = record_limit_bytes is not None and fault.limit_bytes == record_limit_bytes
        raise _too_large(header, next_offset, fault, is_one=is_one) from fault
    except InvalidRequest as fault:
        raise _corrupt(next_offset, str(fault), header.next_offset) from fault


def stored_times(batch: ReadableBuffer, *, limit_bytes: int) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record of a stored batch. Raises as `stored_records` does."""
    proved = prove(batch)
    header = _countable(proved)
    with _told_with_offset(header):
        yield from times_of(proved, limit_bytes=limit_bytes)


def stored_parts(batch: ReadableBuffer, *, limit_bytes: int) -> Iterator[bytes]:
    """The bytes of all records of a stored batch, unpacked in parts as they are asked for.

    Raises as `stored_records` does.
    """
    proved = prove(batch)
    header = parse_header(proved)
    with _told_with_offset(header):
        yield from unpack(header.codec, memoryview(proved)[HEADER_BYTES:], limit_bytes)


def _countable(proved: bytes) -> BatchHeader:
    """The header of a batch that may be taken apart. Raises RecordTooLarge."""
    header = parse_header(proved)
    if header.records_count > MAX_RECORDS:
        raise RecordTooLarge(
            offset=header.base_offset,
            next_offset=header.next_offset,
            reason=f"it is in a batch of {header.records_count} records, of at most {MAX_RECORDS}",
        )
    return header


@contextmanager
def _told_with_offset(header: BatchHeader) -> Generator[None]:
    try:
        yield
    except MessageTooLarge as fault:
        raise _too_large(header, header.base_offset, fault, is_one=False) from fault
    except InvalidRequest as fault:
        raise _corrupt(header.base_offset, str(fault), header.next_offset) from fault


def prove(batch: ReadableBuffer) -> bytes:
    """A copy of a stored batch, once its checksum holds. Raises CorruptData."""
    copy = bytes(batch)
    try:
        validate(copy)
    except InvalidRequest as fault:
        header = parse_header(copy)
        raise _corrupt(header.base_offset, str(fault), header.next_offset) from fault
    return copy


def _header_in(view: memoryview, position: int, offset: int) -> BatchHeader:
    """Raises CorruptData, naming `offset`, unless a batch fits in there."""
    left_bytes = len(view) - position
    if left_bytes >= HEADER_BYTES:
        header = parse_header(view, position)
        if HEADER_BYTES <= header.size_bytes <= left_bytes:
            return header
    raise _corrupt(offset, "there is no whole batch", offset + 1)


def _too_large(
    header: BatchHeader, offset: int, fault: MessageTooLarge, *, is_one: bool
) -> RecordTooLarge:
    if is_one:
        reason = f"it has {fault.size_bytes} bytes, of at most {fault.limit_bytes} for one message"
        return RecordTooLarge(offset=offset, next_offset=offset + 1, reason=reason)
    reason = (
        f"its batch unpacks to more than the {fault.limit_bytes} bytes of "
        "millstream.max.decompressed.bytes"
    )
    return RecordTooLarge(offset=offset, next_offset=header.next_offset, reason=reason)


def _corrupt(offset: int, reason: str, next_offset: int) -> CorruptData:
    return CorruptData(
        path=f"the stored batch at offset {offset}",
        position=0,
        reason=reason,
        offset=offset,
        next_offset=max(next_offset, offset + 1),
    )
