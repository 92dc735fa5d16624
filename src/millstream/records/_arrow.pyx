# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True, freethreading_compatible=False
"""Records to columns and rows to records, compiled: one pass over the bytes, no object per record.

The twin of `arrow_pure`, which gives the same for the same input, damaged input included.
Invariant: nothing is read past the end of a body, whatever lengths it claims, and nothing is
written past the end of a column: both are checked at each field.
Cost: benchmarks/arrow.py.
Format: docs/formats/record_batch.md.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    int32_t,
    int64_t,
    uint8_t,
    uint64_t,
    uintptr_t,
)
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

import pyarrow as pa

from millstream.errors import InvalidBatch
from millstream.records.arrow_types import HEADER, HEADERS, TYPES
from millstream.records.batch import HEADER_BYTES

cdef enum Fault:
    NONE = 0
    CUT_SHORT = 1
    TOO_MANY_BITS = 2
    NEGATIVE = 3
    WRONG_END = 4
    WRONG_OFFSET = 5
    WRONG_TIME = 6

_REASONS = {
    CUT_SHORT: "its records are cut short",
    TOO_MANY_BITS: "a number of more bits than it may have",
    NEGATIVE: "a length that is negative",
    WRONG_END: "a record that does not end where its length says",
    WRONG_OFFSET: "an offset that is not between the one before and the last of the batch",
    WRONG_TIME: "a timestamp of more than 64 bits",
}

cdef Py_ssize_t _FIRST_CAPACITY = 1024


cdef class Memory:
    """Bytes that an Arrow buffer is made of, freed with the last array that uses them."""

    cdef uint8_t* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


cdef object _buffer(void** data, Py_ssize_t size):
    """Hand memory over to Arrow. Whoever had it has it no more, even if this fails."""
    cdef Memory memory = Memory.__new__(Memory)
    memory.data = <uint8_t*>data[0]
    memory.size = size
    data[0] = NULL
    return pa.py_buffer(memory)


cdef void* _grown(void* data, Py_ssize_t size) except NULL:
    cdef void* grown = realloc(data, size)
    if grown == NULL:
        raise MemoryError(f"no {size} bytes for a column")
    return grown


cdef class BinaryColumn:
    """Bytes or nothing, row by row."""

    cdef uint8_t* data
    cdef int32_t* offsets
    cdef uint8_t* valid
    cdef Py_ssize_t used
    cdef Py_ssize_t data_capacity
    cdef Py_ssize_t rows
    cdef Py_ssize_t row_capacity
    cdef Py_ssize_t nulls

    def __cinit__(self):
        self.data_capacity = _FIRST_CAPACITY
        self.row_capacity = _FIRST_CAPACITY
        self._begin()

    def __dealloc__(self):
        free(self.data)
        free(self.offsets)
        free(self.valid)

    cdef int _begin(self) except -1:
        """With room for as much as there was before."""
        self.data = self.valid = NULL
        self.offsets = NULL
        self.used = self.rows = self.nulls = 0
        self.data = <uint8_t*>_grown(NULL, self.data_capacity)
        self._set_row_capacity(self.row_capacity)
        self.offsets[0] = 0
        return 0

    cdef int _set_row_capacity(self, Py_ssize_t rows) except -1:
        """A multiple of eight."""
        self.offsets = <int32_t*>_grown(self.offsets, (rows + 1) * sizeof(int32_t))
        self.valid = <uint8_t*>_grown(self.valid, rows >> 3)
        self.row_capacity = rows
        return 0

    cdef int _set_data_capacity(self, Py_ssize_t size) except -1:
        self.data = <uint8_t*>_grown(self.data, size)
        self.data_capacity = size
        return 0

    cdef inline int add(self, const uint8_t* start, int64_t size) except -1:
        """A row of these bytes; nothing where the size is negative."""
        cdef Py_ssize_t row = self.rows
        if row == self.row_capacity:
            self._set_row_capacity(2 * row)
        if not row & 7:
            self.valid[row >> 3] = 0
        if size >= 0:
            self.valid[row >> 3] |= 1 << (row & 7)
            if size > self.data_capacity - self.used:
                self._set_data_capacity(2 * (self.used + size))
            memcpy(self.data + self.used, start, size)
            self.used += size
        else:
            self.nulls += 1
        self.rows = row + 1
        self.offsets[row + 1] = <int32_t>self.used
        return 0

    cdef object take(self, object kind):
        assert self.used <= INT32_MAX
        array = pa.Array.from_buffers(
            kind,
            self.rows,
            [
                _buffer(<void**>&self.valid, (self.rows + 7) >> 3),
                _buffer(<void**>&self.offsets, (self.rows + 1) * sizeof(int32_t)),
                _buffer(<void**>&self.data, self.used),
            ],
            self.nulls,
        )
        self._begin()
        return array


cdef class HeadersColumn:
    """A list of keys and values, or nothing, row by row."""

    cdef BinaryColumn keys
    cdef BinaryColumn values
    cdef int32_t* offsets
    cdef uint8_t* valid
    cdef Py_ssize_t rows
    cdef Py_ssize_t max_rows
    cdef Py_ssize_t nulls

    def __cinit__(self, Py_ssize_t max_rows):
        self.keys = BinaryColumn()
        self.values = BinaryColumn()
        self.max_rows = max_rows
        self._begin()

    def __dealloc__(self):
        free(self.offsets)
        free(self.valid)

    cdef int _begin(self) except -1:
        self.valid = NULL
        self.offsets = NULL
        self.rows = self.nulls = 0
        self.offsets = <int32_t*>_grown(NULL, (self.max_rows + 1) * sizeof(int32_t))
        self.valid = <uint8_t*>_grown(NULL, (self.max_rows + 7) >> 3)
        self.offsets[0] = 0
        return 0

    cdef int end_row(self) except -1:
        """The row holds all headers that were added since the last one, or nothing."""
        cdef Py_ssize_t row = self.rows
        assert row < self.max_rows
        if not row & 7:
            self.valid[row >> 3] = 0
        if self.keys.rows > self.offsets[row]:
            self.valid[row >> 3] |= 1 << (row & 7)
        else:
            self.nulls += 1
        self.rows = row + 1
        self.offsets[row + 1] = <int32_t>self.keys.rows
        return 0

    cdef int add(
        self, const uint8_t* key, int64_t key_size, const uint8_t* value, int64_t value_size
    ) except -1:
        cdef int64_t at
        for at in range(key_size):
            if key[at] > 0x7F:
                # Arrow holds text alone: bytes of a key that are not UTF-8 are replaced.
                text = PyUnicode_DecodeUTF8(<const char*>key, key_size, "replace").encode()
                self.keys.add(<const uint8_t*><const char*><bytes>text, len(text))
                break
        else:
            self.keys.add(key, key_size)
        self.values.add(value, value_size)
        return 0

    cdef object take(self):
        count = self.keys.rows
        keys = self.keys.take(pa.string())
        values = self.values.take(pa.binary())
        pairs = pa.Array.from_buffers(HEADER, count, [None], 0, children=[keys, values])
        array = pa.Array.from_buffers(
            HEADERS,
            self.rows,
            [
                _buffer(<void**>&self.valid, (self.rows + 7) >> 3),
                _buffer(<void**>&self.offsets, (self.rows + 1) * sizeof(int32_t)),
            ],
            self.nulls,
            children=[pairs],
        )
        self._begin()
        return array


cdef class NumberColumn:
    """Numbers of 64 or 32 bits, as many as there is room for."""

    cdef void* data
    cdef Py_ssize_t max_rows
    cdef Py_ssize_t width

    def __cinit__(self, Py_ssize_t max_rows, Py_ssize_t width):
        self.max_rows = max_rows
        self.width = width
        self.data = _grown(NULL, max_rows * width)

    def __dealloc__(self):
        free(self.data)

    cdef object take(self, object kind, Py_ssize_t rows):
        values = _buffer(&self.data, rows * self.width)
        array = pa.Array.from_buffers(kind, rows, [None, values], 0)
        self.data = _grown(NULL, self.max_rows * self.width)
        return array


cdef class ColumnBuilder:
    """Gathers the records of one batch after another, until there are enough for a take.

    Open a batch; fill until that says that the batch is done; take whenever it says that it is not.
    After an error it is of no more use.
    """

    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t max_rows
    cdef int64_t max_bytes
    cdef int64_t gathered_bytes
    cdef list columns
    cdef BinaryColumn keys
    cdef BinaryColumn values
    cdef HeadersColumn headers
    cdef NumberColumn offsets
    cdef NumberColumn times
    cdef NumberColumn time_types
    cdef bint is_broken
    # The batch that is open.
    cdef Py_buffer body
    cdef bint is_open
    cdef const uint8_t* position
    cdef const uint8_t* stop
    cdef int64_t left
    cdef int64_t base_offset
    cdef int64_t last_offset
    cdef int64_t previous_offset
    cdef int64_t base_ms
    cdef int64_t append_ms
    cdef bint has_append_time
    cdef int64_t low
    cdef int64_t high

    def __init__(self, columns, *, Py_ssize_t max_rows, int64_t max_bytes):
        """Columns are those that differ from record to record. Bytes are those of records."""
        self.columns = list(columns)
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.keys = BinaryColumn() if "key" in columns else None
        self.values = BinaryColumn() if "value" in columns else None
        self.headers = HeadersColumn(max_rows) if "headers" in columns else None
        self.offsets = NumberColumn(max_rows, 8) if "offset" in columns else None
        self.times = NumberColumn(max_rows, 8) if "timestamp" in columns else None
        self.time_types = NumberColumn(max_rows, 4) if "timestampType" in columns else None

    def __dealloc__(self):
        self._close()

    cdef void _close(self):
        if self.is_open:
            self.is_open = False
            PyBuffer_Release(&self.body)

    def open(
        self,
        body,
        *,
        int64_t count,
        int64_t base_offset,
        int64_t last_offset,
        int64_t base_timestamp_ms,
        append_time_ms,
        int64_t low,
        int64_t high,
    ):
        """Go on with this batch: `count` records, of which low <= offset < high are wanted."""
        self._close()
        PyObject_GetBuffer(body, &self.body, PyBUF_SIMPLE)
        self.is_open = True
        self.position = <const uint8_t*>self.body.buf
        self.stop = self.position + self.body.len
        self.left = count
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.previous_offset = base_offset - 1
        self.base_ms = base_timestamp_ms
        self.has_append_time = append_time_ms is not None
        self.append_ms = append_time_ms if self.has_append_time else 0
        self.low = low
        self.high = high

    def fill(self):
        """Whether the batch is done; else take, and fill again. Raises InvalidBatch."""
        cdef const uint8_t* start
        cdef int64_t offset = 0
        cdef Fault fault
        if self.is_broken or self.rows >= self.max_rows:
            raise AssertionError("filled after an error, or when it was to be taken from")
        while self.left:
            start = self.position
            fault = self._record(&offset)
            if fault != NONE:
                self.is_broken = True
                raise InvalidBatch(_REASONS[fault])
            self.left -= 1
            if offset >= self.high:
                self._close()
                return True
            if offset >= self.low:
                self.gathered_bytes += self.position - start
                if self.rows >= self.max_rows or self.gathered_bytes >= self.max_bytes:
                    return False
        if self.position != self.stop:
            raise InvalidBatch(f"{self.stop - self.position} bytes after its last record")
        self._close()
        return True

    def take(self):
        """The columns of all that is gathered, which is then forgotten."""
        cdef Py_ssize_t rows = self.rows
        taken = {}
        if self.is_broken:
            raise AssertionError("taken from after an error")
        # Columns that were handed over have no memory until they begin anew.
        self.is_broken = True
        for name in self.columns:
            if name == "key":
                taken[name] = self.keys.take(TYPES[name])
            elif name == "value":
                taken[name] = self.values.take(TYPES[name])
            elif name == "headers":
                taken[name] = self.headers.take()
            elif name == "offset":
                taken[name] = self.offsets.take(TYPES[name], rows)
            elif name == "timestamp":
                taken[name] = self.times.take(TYPES[name], rows)
            else:
                taken[name] = self.time_types.take(TYPES[name], rows)
        self.rows = 0
        self.gathered_bytes = 0
        self.is_broken = False
        return taken

    cdef Fault _record(self, int64_t* offset_out) except *:
        """Read one record and add it to the columns if it is wanted. Hot."""
        cdef const uint8_t* at = self.position
        cdef const uint8_t* stop = self.stop
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef int64_t size = 0, time_delta = 0, delta = 0, key_size = 0, value_size = 0, headers = 0
        cdef int64_t offset, time_ms
        cdef const uint8_t* end
        cdef Fault fault
        cdef bint is_wanted
        fault = _number(&at, stop, 32, &size)
        if fault != NONE:
            return fault
        if size < 0:
            return NEGATIVE
        # One byte of attributes, which every record has and nobody uses.
        if size > stop - at or size < 1:
            return CUT_SHORT
        end = at + size
        at += 1
        fault = _number(&at, stop, 64, &time_delta)
        if fault != NONE:
            return fault
        fault = _number(&at, stop, 32, &delta)
        if fault != NONE:
            return fault
        fault = _bytes(&at, stop, &key, &key_size)
        if fault != NONE:
            return fault
        fault = _bytes(&at, stop, &value, &value_size)
        if fault != NONE:
            return fault
        fault = _number(&at, stop, 32, &headers)
        if fault != NONE:
            return fault
        if _overflows(self.base_ms, time_delta):
            return WRONG_TIME
        time_ms = self.append_ms if self.has_append_time else self.base_ms + time_delta
        # Both are far from the ends of their range: the reader of batches has seen to it.
        offset = self.base_offset + delta
        if offset <= self.previous_offset or offset > self.last_offset:
            return WRONG_OFFSET
        is_wanted = self.low <= offset < self.high
        if headers:
            fault = self._headers(&at, headers, is_wanted)
            if fault != NONE:
                return fault
        if at != end:
            return WRONG_END
        if is_wanted:
            self._add(offset, time_ms, key, key_size, value, value_size)
        self.position = at
        self.previous_offset = offset
        offset_out[0] = offset
        return NONE

    cdef inline int _add(
        self,
        int64_t offset,
        int64_t time_ms,
        const uint8_t* key,
        int64_t key_size,
        const uint8_t* value,
        int64_t value_size,
    ) except -1:
        cdef Py_ssize_t row = self.rows
        if self.keys is not None:
            self.keys.add(key, key_size)
        if self.values is not None:
            self.values.add(value, value_size)
        if self.headers is not None:
            self.headers.end_row()
        if self.offsets is not None:
            (<int64_t*>self.offsets.data)[row] = offset
        if self.times is not None:
            (<int64_t*>self.times.data)[row] = _microseconds(time_ms)
        if self.time_types is not None:
            (<int32_t*>self.time_types.data)[row] = self.has_append_time
        self.rows = row + 1
        return 0

    cdef Fault _headers(self, const uint8_t** at, int64_t count, bint is_wanted) except *:
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef int64_t key_size = 0, value_size = 0
        cdef Fault fault
        if count < 0:
            return NEGATIVE
        while count:
            count -= 1
            fault = _bytes(at, self.stop, &key, &key_size)
            if fault != NONE:
                return fault
            if key_size < 0:
                return NEGATIVE
            fault = _bytes(at, self.stop, &value, &value_size)
            if fault != NONE:
                return fault
            if is_wanted and self.headers is not None:
                self.headers.add(key, key_size, value, value_size)
        return NONE


cdef inline Fault _number(
    const uint8_t** at, const uint8_t* stop, int bits, int64_t* out
) noexcept:
    """A number of variable size, at most so many bits."""
    cdef const uint8_t* next = at[0]
    cdef uint64_t raw
    cdef uint64_t byte
    cdef int shift = 7
    if next >= stop:
        return CUT_SHORT
    raw = next[0]
    next += 1
    if raw > 0x7F:
        raw &= 0x7F
        while True:
            if shift >= bits:
                return TOO_MANY_BITS
            if next >= stop:
                return CUT_SHORT
            byte = next[0]
            next += 1
            if shift == 63 and byte > 1:
                return TOO_MANY_BITS
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte <= 0x7F:
                break
        if bits == 32 and raw >> 32:
            return TOO_MANY_BITS
    at[0] = next
    out[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    return NONE


cdef inline Fault _bytes(
    const uint8_t** at, const uint8_t* stop, const uint8_t** start, int64_t* size
) noexcept:
    """Bytes behind their size, of which -1 stands for nothing."""
    cdef Fault fault = _number(at, stop, 32, size)
    if fault != NONE:
        return fault
    start[0] = at[0]
    if size[0] > stop - at[0]:
        return CUT_SHORT
    if size[0] >= 0:
        at[0] += size[0]
    elif size[0] != -1:
        return NEGATIVE
    return NONE


cdef inline bint _overflows(int64_t base, int64_t delta) noexcept:
    if delta >= 0:
        return base > INT64_MAX - delta
    return base < INT64_MIN - delta


cdef inline int64_t _microseconds(int64_t time_ms) noexcept:
    """Clamped: a producer may send any 64 bits as a time."""
    if time_ms > INT64_MAX // 1000:
        return INT64_MAX
    if time_ms < INT64_MIN // 1000:
        return INT64_MIN
    return time_ms * 1000


cdef class BinaryRows:
    """The bytes of an Arrow array, which is kept alive."""

    cdef object array
    cdef const uint8_t* valid
    cdef const int32_t* offsets
    cdef const uint8_t* data
    cdef Py_ssize_t first

    def __init__(self, array):
        """An array of binary or of strings, a slice or a whole one."""
        valid, offsets, data = array.buffers()
        self.array = array
        self.first = array.offset
        self.valid = _address(valid)
        self.offsets = <const int32_t*>_address(offsets)
        self.data = _address(data)

    cdef inline int64_t at(self, Py_ssize_t row, const uint8_t** start) noexcept:
        """The size of a row, and where it starts; -1 where it holds nothing."""
        row += self.first
        if self.valid != NULL and not self.valid[row >> 3] >> (row & 7) & 1:
            return -1
        start[0] = self.data + self.offsets[row]
        return self.offsets[row + 1] - self.offsets[row]


cdef class HeaderRows:
    """The headers of an Arrow array, which is kept alive."""

    cdef object array
    cdef const uint8_t* valid
    cdef const int32_t* offsets
    cdef Py_ssize_t first
    cdef object pairs
    cdef const uint8_t* pair_valid
    cdef Py_ssize_t pair_first
    cdef BinaryRows keys
    cdef BinaryRows values

    def __init__(self, array):
        valid, offsets = array.buffers()[:2]
        self.array = array
        self.first = array.offset
        self.valid = _address(valid)
        self.offsets = <const int32_t*>_address(offsets)
        self.pairs = array.values
        self.pair_valid = _address(self.pairs.buffers()[0])
        self.pair_first = self.pairs.offset
        self.keys = BinaryRows(self.pairs.field(0))
        self.values = BinaryRows(self.pairs.field(1))

    cdef inline Py_ssize_t at(self, Py_ssize_t row, Py_ssize_t* start) noexcept:
        """How many headers a row has, and which is its first."""
        row += self.first
        start[0] = 0
        if self.valid != NULL and not self.valid[row >> 3] >> (row & 7) & 1:
            return 0
        start[0] = self.offsets[row]
        return self.offsets[row + 1] - self.offsets[row]

    cdef inline bint has_key(self, Py_ssize_t pair) noexcept:
        cdef const uint8_t* start = NULL
        cdef Py_ssize_t place = pair + self.pair_first
        if self.pair_valid != NULL and not self.pair_valid[place >> 3] >> (place & 7) & 1:
            return False
        return self.keys.at(pair, &start) >= 0


cdef class RowEncoder:
    """Packs rows as the records of one batch after another."""

    cdef BinaryRows keys
    cdef BinaryRows values
    cdef HeaderRows headers
    cdef object times_array
    cdef const int64_t* times
    cdef int64_t now_ms
    cdef Py_ssize_t rows

    def __init__(self, *, key, value, headers, timestamp_ms, int64_t now_ms):
        """Arrays of binary, of `HEADERS` and of int64 without nulls, of one length."""
        cdef Py_ssize_t first
        self.rows = len(value)
        self.keys = None if key is None else BinaryRows(key)
        self.values = BinaryRows(value)
        self.headers = None if headers is None else HeaderRows(headers)
        self.times_array = timestamp_ms
        self.times = NULL
        if timestamp_ms is not None:
            first = timestamp_ms.offset
            self.times = <const int64_t*>_address(timestamp_ms.buffers()[1]) + first
        self.now_ms = now_ms

    def pack(self, Py_ssize_t start, Py_ssize_t limit_bytes):
        """A batch from this row on, its header still zeros; the row after it; first and last time.

        The batch is within the limit if its first record is.
        """
        cdef Py_ssize_t row = start
        cdef Py_ssize_t used = HEADER_BYTES
        cdef int64_t first_ms = self._time(start)
        cdef int64_t last_ms = first_ms
        cdef int64_t time_ms, size
        cdef Py_ssize_t capacity = max(min(limit_bytes, 1 << 16), used)
        cdef uint8_t* data
        out = PyByteArray_FromStringAndSize(NULL, capacity)
        memset(PyByteArray_AS_STRING(out), 0, used)
        while row < self.rows:
            time_ms = self._time(row)
            size = self._size(row, row - start, time_ms - first_ms)
            if row > start and used + size + _number_size(size) > limit_bytes:
                break
            if used + size + _number_size(size) > capacity:
                capacity = 2 * (used + size + _number_size(size))
                PyByteArray_Resize(out, capacity)
            data = <uint8_t*>PyByteArray_AS_STRING(out)
            used = self._write(data, used, size, row, row - start, time_ms - first_ms)
            if time_ms > last_ms:
                last_ms = time_ms
            row += 1
        PyByteArray_Resize(out, used)
        return out, row, first_ms, last_ms

    cdef inline int64_t _time(self, Py_ssize_t row) noexcept:
        return self.now_ms if self.times == NULL else self.times[row]

    cdef int64_t _size(self, Py_ssize_t row, int64_t delta, int64_t time_delta) except -1:
        """The bytes of a record without those of its length, once it is known to be sound."""
        cdef const uint8_t* start = NULL
        cdef int64_t size = 1 + _number_size(time_delta) + _number_size(delta)
        cdef Py_ssize_t pair = 0, count = 0
        size += _bytes_size(self.keys.at(row, &start)) if self.keys is not None else 1
        size += _bytes_size(self.values.at(row, &start))
        if self.headers is not None:
            count = self.headers.at(row, &pair)
        size += _number_size(count)
        for pair in range(pair, pair + count):
            if not self.headers.has_key(pair):
                raise InvalidBatch(f"row {row} has a header without a key")
            size += _bytes_size(self.headers.keys.at(pair, &start))
            size += _bytes_size(self.headers.values.at(pair, &start))
        if size > INT32_MAX:
            raise InvalidBatch("a number does not fit in 32 bits")
        return size

    cdef Py_ssize_t _write(
        self,
        uint8_t* out,
        Py_ssize_t used,
        int64_t size,
        Py_ssize_t row,
        int64_t delta,
        int64_t time_delta,
    ) noexcept:
        """Where the record ends. There is room for it."""
        cdef const uint8_t* start = NULL
        cdef int64_t length
        cdef Py_ssize_t pair = 0, count = 0
        used = _write_number(out, used, size)
        out[used] = 0
        used = _write_number(out, used + 1, time_delta)
        used = _write_number(out, used, delta)
        length = self.keys.at(row, &start) if self.keys is not None else -1
        used = _write_bytes(out, used, start, length)
        length = self.values.at(row, &start)
        used = _write_bytes(out, used, start, length)
        if self.headers is not None:
            count = self.headers.at(row, &pair)
        used = _write_number(out, used, count)
        for pair in range(pair, pair + count):
            length = self.headers.keys.at(pair, &start)
            used = _write_bytes(out, used, start, length)
            length = self.headers.values.at(pair, &start)
            used = _write_bytes(out, used, start, length)
        return used


cdef uint8_t* _address(buffer) except? NULL:
    return NULL if buffer is None else <uint8_t*><uintptr_t>buffer.address


cdef inline int _number_size(int64_t number) noexcept:
    cdef uint64_t raw = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    cdef int size = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size


cdef inline int64_t _bytes_size(int64_t length) noexcept:
    return 1 if length < 0 else _number_size(length) + length


cdef inline Py_ssize_t _write_number(uint8_t* out, Py_ssize_t used, int64_t number) noexcept:
    cdef uint64_t raw = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    while raw > 0x7F:
        out[used] = <uint8_t>(raw & 0x7F | 0x80)
        used += 1
        raw >>= 7
    out[used] = <uint8_t>raw
    return used + 1


cdef inline Py_ssize_t _write_bytes(
    uint8_t* out, Py_ssize_t used, const uint8_t* start, int64_t length
) noexcept:
    used = _write_number(out, used, length)
    if length > 0:
        memcpy(out + used, start, length)
        used += length
    return used
