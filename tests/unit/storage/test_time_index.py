"""Looking up times in a time index, sound or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.offset_index import DamagedIndex
from millstream.storage.partition_log import TimedOffset
from millstream.storage.segment import new_segment
from millstream.storage.time_index import (
    ENTRY_BYTES,
    TimeIndex,
    encode_time_entry,
    open_time_index,
)

ENTRIES = [TimedOffset(5, -1), TimedOffset(9, 1000), TimedOffset(10, 1001), TimedOffset(50, 9000)]


def encoded(entries: list[TimedOffset]) -> bytes:
    return b"".join(encode_time_entry(entry.timestamp_ms, entry.offset) for entry in entries)


def index_of(content: bytes) -> TimeIndex:
    return TimeIndex("the.timeindex", content, len(content) // ENTRY_BYTES)


def last_before(entries: list[TimedOffset], timestamp_ms: int) -> TimedOffset | None:
    earlier = [entry for entry in entries if entry.timestamp_ms < timestamp_ms]
    return earlier[-1] if earlier else None


def test_entry_is_20_bytes_big_endian() -> None:
    entry = encode_time_entry(0x0102030405060708, 0x1112131415161718)
    assert entry.hex() == "010203040506070811121314151617182171d48e"
    assert len(entry) == ENTRY_BYTES


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=30))
def test_last_entry_before_a_time_is_found(steps: list[tuple[int, int]]) -> None:
    entries, timestamp_ms, offset = [], 0, 0
    for milliseconds, offsets in steps:
        timestamp_ms += milliseconds
        offset += offsets
        entries.append(TimedOffset(offset, timestamp_ms))
    index = index_of(encoded(entries))
    for time_ms in range(-2, timestamp_ms + 3):
        assert index.last_before(time_ms) == last_before(entries, time_ms)


def test_empty_index_knows_no_time() -> None:
    assert index_of(b"").last_before(10**15) is None


@pytest.mark.parametrize("bit", range(8))
def test_flipped_bit_gives_the_right_answer_or_none(bit: int) -> None:
    content = encoded(ENTRIES)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << bit
        index = index_of(bytes(damaged))
        noticed = 0
        for time_ms in (-5, 0, 1000, 1001, 1002, 9000, 9001, 10**15):
            try:
                assert index.last_before(time_ms) == last_before(ENTRIES, time_ms)
            except DamagedIndex:
                noticed += 1
        assert noticed


def test_missing_file_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamagedIndex, match="missing"):
        open_time_index(LocalFilesystem(), new_segment(str(tmp_path), 0))


@pytest.mark.parametrize("missing", [1, 19])
def test_file_of_no_whole_number_of_entries_is_damaged(tmp_path: Path, missing: int) -> None:
    segment = new_segment(str(tmp_path), 0)
    Path(segment.time_index_path).write_bytes(encoded(ENTRIES)[:-missing])
    with pytest.raises(DamagedIndex, match="cut"):
        open_time_index(LocalFilesystem(), segment)


def test_index_that_ends_at_another_offset_is_damaged(tmp_path: Path) -> None:
    segment = new_segment(str(tmp_path), 0)
    Path(segment.time_index_path).write_bytes(encoded(ENTRIES))
    with pytest.raises(DamagedIndex, match="another offset"):
        open_time_index(LocalFilesystem(), segment)
    segment.next_offset = ENTRIES[-1].offset
    assert open_time_index(LocalFilesystem(), segment).last() == ENTRIES[-1]
