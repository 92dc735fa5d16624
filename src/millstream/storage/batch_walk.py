"""Walking from batch to batch through the bytes of a record file.

Two kinds of walk. `find_batch`, `batch_boundary` and `split_batches` hop over batches that are
known to be good and cost a fraction of a microsecond each. `checked_batch` and `check_run` trust
nothing: they prove each batch by its checksum, and its place by the chain of offsets, because
base offset, length and leader epoch lie outside the checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from millstream.errors import InvalidBatch, InvalidRequest
from millstream.records.batch import (
    CONTROL_BIT,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    parse_header,
    validate,
)

# The log of a single node has one leader epoch for all its life.
LEADER_EPOCH = 0

_PLACE = struct.Struct(">qi11xi")  # base offset, length, (skipped), last offset delta
_COUNT = struct.Struct(">8xi9xh34xi")  # length, attributes, count of records
_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8

# What stands between length and checksum in every batch of ours: a landmark to look for.
_LANDMARK = LEADER_EPOCH.to_bytes(4, "big") + bytes([MAGIC])
_LANDMARK_AT = 12
_SEARCH_BYTES = 1 << 20


class Place(NamedTuple):
    """Where a batch begins, and the offset it must have there."""

    position: int
    offset: int


def find_batch(log: memoryview, position: int, end: int, offset: int) -> int:
    """Position of the first batch whose last offset is at least `offset`, or `end`."""
    read = _PLACE.unpack_from
    while position < end:
        base, length, delta = read(log, position)
        if base + delta >= offset:
            return position
        position += length + LENGTH_PREFIX_BYTES
    return end


def batch_boundary(log: memoryview, position: int, limit: int) -> int:
    """The last place at or below `limit` where a batch ends, walking from `position`."""
    read = _LENGTH.unpack_from
    last_start = limit - HEADER_BYTES
    while position <= last_start:
        (length,) = read(log, position + _LENGTH_AT)
        following = position + length + LENGTH_PREFIX_BYTES
        if following > limit:
            break
        position = following
    return position


def end_of_batches(view: memoryview | bytes) -> int:
    """The offset after the last one of a run of good batches, which is not empty."""
    read = _LENGTH.unpack_from
    position = following = 0
    while following < len(view):
        position = following
        (length,) = read(view, position + _LENGTH_AT)
        following = position + length + LENGTH_PREFIX_BYTES
    base, _, delta = _PLACE.unpack_from(view, position)
    return int(base + delta) + 1


def count_messages(view: memoryview | bytes) -> int:
    """How many messages a run of good batches holds, by their headers; markers are none. Hot."""
    read = _COUNT.unpack_from
    position = count = 0
    end = len(view)
    while position < end:
        length, attributes, records = read(view, position)
        if not attributes & CONTROL_BIT:
            count += records
        position += length + LENGTH_PREFIX_BYTES
    return count


def batch_end(log: memoryview, position: int) -> int:
    (length,) = _LENGTH.unpack_from(log, position + _LENGTH_AT)
    return position + int(length) + LENGTH_PREFIX_BYTES


def base_offset_at(log: memoryview | bytes, position: int) -> int:
    """The base offset that a batch at a position would have; -1 when there is no room for one."""
    if len(log) - position < HEADER_BYTES:
        return -1
    return int(_BASE_OFFSET.unpack_from(log, position)[0])


def split_batches(view: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch of a run of good ones, with its header."""
    position = 0
    while position < len(view):
        header = parse_header(view, position)
        yield header, view[position : position + header.size_bytes]
        position += header.size_bytes


def checked_batch(log: memoryview, position: int, end: int) -> BatchHeader:
    """The header of the batch at a position, once its bytes are proved. Raises InvalidRequest."""
    if end - position < HEADER_BYTES:
        raise InvalidBatch(f"{end - position} bytes cannot hold a header")
    if log[position + _LANDMARK_AT : position + CRC_AT] != _LANDMARK:
        raise InvalidBatch("there is no batch header")
    following = batch_end(log, position)
    if not HEADER_BYTES <= following - position <= end - position:
        raise InvalidBatch(f"a batch of {following - position} bytes does not fit in the file")
    return validate(log[position:following])


def plausible_batch(log: memoryview, position: int, end: int) -> BatchHeader:
    """As `checked_batch`, but looks at the header alone."""
    if end - position < HEADER_BYTES:
        raise InvalidBatch(f"{end - position} bytes cannot hold a header")
    header = parse_header(log, position)
    if header.magic != MAGIC or header.leader_epoch != LEADER_EPOCH:
        raise InvalidBatch("there is no batch header")
    if not HEADER_BYTES <= header.size_bytes <= end - position:
        raise InvalidBatch(f"a batch of {header.size_bytes} bytes does not fit in the file")
    if header.last_offset_delta < 0:
        raise InvalidBatch(f"last offset delta {header.last_offset_delta}")
    return header


def check_run(
    log: memoryview,
    place: Place,
    *,
    limit: int,
    end: int,
    gap_is_known: Callable[[Place], bool],
) -> tuple[Place, str]:
    """Prove batches from a place on, until one reaches `limit` or the end.

    Returns where the proof stopped, and why if that was a fault: else an empty string.
    """
    position, offset = place
    while position < limit:
        try:
            header = checked_batch(log, position, end)
        except InvalidRequest as fault:
            return Place(position, offset), str(fault)
        base = header.base_offset
        if base != offset and not (base > offset and gap_is_known(Place(position, base))):
            return Place(position, offset), f"offset {base} where {offset} comes next"
        position += header.batch_length + LENGTH_PREFIX_BYTES
        offset = base + header.last_offset_delta + 1
    return Place(position, offset), ""


def next_good_batch(
    log: memoryview, damaged: Place, *, end: int, limit_offset: int
) -> Place | None:
    """The first sound batch after a damaged one.

    Where the damaged header still leads to a batch that continues it, that is the one. Otherwise
    look for the landmark of a header, and take only what then proves to be a whole batch.
    """
    offsets = range(damaged.offset, limit_offset)
    if end - damaged.position >= HEADER_BYTES:
        _, length, delta = _PLACE.unpack_from(log, damaged.position)
        behind = damaged.position + length + LENGTH_PREFIX_BYTES
        if behind > damaged.position:
            found = _sound_batch(log, behind, end, offsets)
            if found and found.offset == damaged.offset + delta + 1:
                return found
    candidates = _landmarks(log, damaged.position + 1, end)
    return next(filter(None, (_sound_batch(log, at, end, offsets) for at in candidates)), None)


def _sound_batch(log: memoryview, position: int, end: int, offsets: range) -> Place | None:
    """The place of a batch whose bytes are proved, if one begins here and its offsets may be."""
    if end - position < HEADER_BYTES:
        return None
    base, _, delta = _PLACE.unpack_from(log, position)
    # First what costs nothing: the bytes of records may look like headers.
    if delta < 0 or base not in offsets or base + delta not in offsets:
        return None
    try:
        checked_batch(log, position, end)
    except InvalidRequest:
        return None
    return Place(position, base)


def _landmarks(log: memoryview, position: int, end: int) -> Iterator[int]:
    """Every position from one on where a header may begin."""
    while position < end:
        window = bytes(log[position + _LANDMARK_AT : position + _LANDMARK_AT + _SEARCH_BYTES])
        at = window.find(_LANDMARK)
        while at >= 0:
            yield position + at
            at = window.find(_LANDMARK, at + 1)
        if len(window) < _SEARCH_BYTES:
            return
        # The last bytes of a window may be the beginning of a landmark.
        position += len(window) - len(_LANDMARK) + 1
