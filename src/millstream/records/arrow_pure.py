"""Records to columns and rows to records, in Python: what serves where nothing was compiled.

The twin of `_arrow.pyx`, which gives the same for the same input, damaged input included.
Cost: benchmarks/arrow.py.
Format: docs/formats/record_batch.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import InvalidBatch
from millstream.records.arrow_types import MAX_MICROSECONDS, MIN_MICROSECONDS, TYPES
from millstream.records.batch import HEADER_BYTES
from millstream.records.record import (
    MAX_INT64,
    MIN_INT64,
    Headers,
    Record,
    encode_record,
    read_headers,
)
from millstream.records.varint import INT32_BITS, INT64_BITS, read_rest, read_varint

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Offset, timestamp, key, value, headers, and the bytes of it all.
_Row = tuple[int, int, bytes | None, bytes | None, Headers, int]
_PLACES = {"offset": 0, "key": 2, "value": 3}


class ColumnBuilder:
    """Gathers the records of one batch after another, until there are enough for a take.

    Open a batch; fill until that says that the batch is done; take whenever it says that it is not.
    After an error it is of no more use.
    """

    def __init__(self, columns: Collection[str], *, max_rows: int, max_bytes: int) -> None:
        """Columns are those that differ from record to record. Bytes are those of records."""
        self._columns = columns
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._clear()

    @property
    def rows(self) -> int:
        """How many are gathered."""
        return len(self._rows)

    def open(
        self,
        body: ReadableBuffer,
        *,
        count: int,
        base_offset: int,
        last_offset: int,
        base_timestamp_ms: int,
        append_time_ms: int | None,
        low: int,
        high: int,
    ) -> None:
        """Go on with this batch: `count` records, of which low <= offset < high are wanted."""
        self._batch = _rows(bytes(body), count, base_offset, base_timestamp_ms)
        self._previous_offset = base_offset - 1
        self._last_offset = last_offset
        self._append_time_ms = append_time_ms
        self._low = low
        self._high = high

    def fill(self) -> bool:
        """Whether the batch is done; else take, and fill again. Raises InvalidBatch."""
        gathered = len(self._rows)
        try:
            is_done = self._gather()
        except IndexError as cause:
            raise InvalidBatch("its records are cut short") from cause
        added = len(self._rows) - gathered
        append_time_ms = self._append_time_ms
        if append_time_ms is None:
            self._timestamp_types += [0] * added
        else:
            self._timestamp_types += [1] * added
            self._rows[gathered:] = [
                (row[0], append_time_ms, *row[2:]) for row in self._rows[gathered:]
            ]
        return is_done

    def take(self) -> dict[str, pa.Array]:
        """The columns of all that is gathered, which is then forgotten."""
        taken = {name: pa.array(self._column(name), TYPES[name]) for name in self._columns}
        self._clear()
        return taken

    def _clear(self) -> None:
        self._rows: list[_Row] = []
        self._timestamp_types: list[int] = []
        self._room_rows = self._max_rows
        self._room_bytes = self._max_bytes

    def _gather(self) -> bool:
        """Hot."""
        previous_offset, last_offset = self._previous_offset, self._last_offset
        low, high = self._low, self._high
        room_rows, room_bytes = self._room_rows, self._room_bytes
        add = self._rows.append
        is_done = True
        for row in self._batch:
            offset = row[0]
            if not previous_offset < offset <= last_offset:
                raise InvalidBatch(f"offset {offset} after {previous_offset}, up to {last_offset}")
            previous_offset = offset
            if offset >= high:
                break
            if offset >= low:
                add(row)
                room_rows -= 1
                room_bytes -= row[5]
                if room_rows <= 0 or room_bytes <= 0:
                    is_done = False
                    break
        self._previous_offset = previous_offset
        self._room_rows, self._room_bytes = room_rows, room_bytes
        return is_done

    def _column(self, name: str) -> Sequence[object]:
        rows = self._rows
        if name == "timestampType":
            return self._timestamp_types
        if name == "timestamp":
            return [_microseconds(row[1]) for row in rows]
        if name == "headers":
            return [_texts(row[4]) for row in rows]
        place = _PLACES[name]
        return [row[place] for row in rows]


class RowEncoder:
    """Packs rows as the records of one batch after another."""

    def __init__(
        self,
        *,
        key: pa.Array | None,
        value: pa.Array,
        headers: pa.Array | None,
        timestamp_ms: pa.Array | None,
        now_ms: int,
    ) -> None:
        """Arrays of binary, of `HEADERS` and of int64 without nulls, of one length."""
        nothing = [None] * len(value)
        self._keys = nothing if key is None else key.to_pylist()
        self._values = value.to_pylist()
        self._headers = nothing if headers is None else headers.to_pylist()
        self._times = [now_ms] * len(value) if timestamp_ms is None else timestamp_ms.to_pylist()

    def pack(self, start: int, limit_bytes: int) -> tuple[bytearray, int, int, int]:
        """A batch from this row on, its header still zeros; the row after it; first and last time.

        The batch is within the limit if its first record is.
        """
        out = bytearray(HEADER_BYTES)
        base_timestamp_ms = max_timestamp_ms = self._times[start]
        for row in range(start, len(self._values)):
            timestamp_ms = self._times[row]
            size_bytes = len(out)
            record = Record(
                row - start, timestamp_ms, self._keys[row], self._values[row], self._pairs(row)
            )
            encode_record(out, record, base_offset=0, base_timestamp_ms=base_timestamp_ms)
            if len(out) > limit_bytes and row > start:
                del out[size_bytes:]
                return out, row, base_timestamp_ms, max_timestamp_ms
            if timestamp_ms > max_timestamp_ms:
                max_timestamp_ms = timestamp_ms
        return out, len(self._values), base_timestamp_ms, max_timestamp_ms

    def _pairs(self, row: int) -> Headers:
        headers = self._headers[row]
        if not headers:
            return ()
        if any(header is None or header["key"] is None for header in headers):
            raise InvalidBatch(f"row {row} has a header without a key")
        return tuple((header["key"], header["value"]) for header in headers)


def _rows(  # noqa: C901, PLR0912, PLR0915 - numbers of up to two bytes are inline
    body: bytes, count: int, base_offset: int, base_timestamp_ms: int
) -> Iterator[_Row]:
    """The records of a batch's body. Hot: as `decode_record`, without a call for each.

    Lengths are never trusted: see there. Reading past the end raises IndexError.
    """
    position = 0
    for _ in range(count):
        start = position
        raw = body[position]
        position += 1
        if raw > 0x7F:
            more = body[position]
            if more > 0x7F:
                raw, position = read_rest(body, position, raw, INT32_BITS)
            else:
                raw += (more << 7) - 0x80
                position += 1
        if raw & 1:
            raise InvalidBatch("a record of negative length")
        end = position + (raw >> 1)
        raw = body[position + 1]  # behind its attributes
        position += 2
        if raw > 0x7F:
            raw, position = read_rest(body, position, raw, INT64_BITS)
        timestamp_ms = base_timestamp_ms + ((raw >> 1) ^ -(raw & 1))
        if not MIN_INT64 <= timestamp_ms <= MAX_INT64:
            raise InvalidBatch(f"a timestamp of {timestamp_ms}")
        raw = body[position]
        position += 1
        if raw > 0x7F:
            more = body[position]
            if more > 0x7F:
                raw, position = read_rest(body, position, raw, INT32_BITS)
            else:
                raw += (more << 7) - 0x80
                position += 1
        offset = base_offset + ((raw >> 1) ^ -(raw & 1))
        key = value = None
        size_bytes, position = read_varint(body, position)
        if size_bytes >= 0:
            key = body[position : position + size_bytes]
            position += size_bytes
        elif size_bytes != -1:
            raise InvalidBatch("a key of negative length")
        raw = body[position]
        position += 1
        if raw > 0x7F:
            more = body[position]
            if more > 0x7F:
                raw, position = read_rest(body, position, raw, INT32_BITS)
            else:
                raw += (more << 7) - 0x80
                position += 1
        if not raw & 1:
            value = body[position : position + (raw >> 1)]
            position += raw >> 1
        elif raw != 1:
            raise InvalidBatch("a value of negative length")
        headers: Headers = ()
        if body[position]:
            headers, position = read_headers(body, position)
        else:
            position += 1
        if position != end or position > len(body):
            raise InvalidBatch(f"a record that ends at byte {position} where its length says {end}")
        yield offset, timestamp_ms, key, value, headers, position - start
    if position != len(body):
        raise InvalidBatch(f"{len(body) - position} bytes after its last record")


def _microseconds(timestamp_ms: int) -> int:
    """Clamped: a producer may send any 64 bits as a time."""
    return max(MIN_MICROSECONDS, min(timestamp_ms * 1000, MAX_MICROSECONDS))


def _texts(headers: Headers) -> Headers | None:
    """Arrow holds text alone: bytes of a key that are not UTF-8 are replaced."""
    if not headers:
        return None
    return tuple(
        (key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value)
        for key, value in headers
    )
