"""Looking up offsets and positions in an index, sound or damaged."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.offset_index import (
    ENTRY_BYTES,
    DamagedIndex,
    IndexEntry,
    OffsetIndex,
    encode_entry,
)
from millstream.storage.segment import new_segment

ENTRIES = [
    IndexEntry(100, 0, 80),
    IndexEntry(103, 80, 200),
    IndexEntry(110, 400, 75),
    IndexEntry(500, 475, 75),
    IndexEntry(501, 550, 9000),
    IndexEntry(2**40, 2**34, 61),
]


def encoded(entries: list[IndexEntry]) -> bytes:
    return b"".join(encode_entry(*entry) for entry in entries)


def index_of(content: bytes, recent: bytes = b"") -> OffsetIndex:
    index = OffsetIndex("the.index", memoryview(b""), 0)
    index.extend(memoryview(content), len(content) // ENTRY_BYTES, recent)
    return index


def floor_of(entries: list[IndexEntry], keys: list[int], target: int) -> IndexEntry | None:
    number = bisect_right(keys, target)
    return entries[number - 1] if number else None


def targets(keys: list[int]) -> list[int]:
    """Every key and its neighbours."""
    return sorted({key + step for key in keys for step in (-1, 0, 1)} | {-1, 2**62})


@st.composite
def index_entries(draw: st.DrawFn) -> list[IndexEntry]:
    """Entries with steps that grow by chance, slowly or all at once."""
    steps = draw(
        st.lists(
            st.tuples(
                st.integers(1, 5) | st.integers(1, 2**40), st.integers(61, 2**20), st.integers(0, 9)
            ),
            max_size=50,
        )
    )
    offset, position = draw(st.integers(0, 2**40)), 0
    entries = []
    for offsets, size, walked in steps:
        entries.append(IndexEntry(offset, position, size))
        offset += offsets
        position += size * (walked + 1)
    return entries


def test_entry_is_24_bytes_big_endian() -> None:
    entry = encode_entry(0x0102030405060708, 0x1112131415161718, 0x21222324)
    assert entry.hex() == "0102030405060708111213141516171821222324fcd5d93b"
    assert len(entry) == ENTRY_BYTES


def test_entries_are_read_back() -> None:
    index = index_of(encoded(ENTRIES))
    assert index.count == len(ENTRIES)
    assert [index.entry(number) for number in range(index.count)] == ENTRIES


@given(index_entries(), st.integers(0, 50))
def test_floor_agrees_with_bisection(entries: list[IndexEntry], mapped: int) -> None:
    """Also when the last entries have not been written to the file yet."""
    index = index_of(encoded(entries[:mapped]), encoded(entries[mapped:]))
    offsets = [entry.offset for entry in entries]
    positions = [entry.position for entry in entries]
    for offset in targets(offsets):
        assert index.floor_offset(offset) == floor_of(entries, offsets, offset)
    for position in targets(positions):
        assert index.floor_position(position) == floor_of(entries, positions, position)


def test_lookup_is_exact_where_interpolation_guesses_worst() -> None:
    entries = [IndexEntry(2**number, 100 * number, 100) for number in range(62)]
    offsets = [entry.offset for entry in entries]
    index = index_of(encoded(entries))
    for offset in targets(offsets):
        assert index.floor_offset(offset) == floor_of(entries, offsets, offset)


def test_empty_index_knows_nothing() -> None:
    index = index_of(b"")
    assert index.floor_offset(5) is None
    assert index.floor_position(5) is None


@pytest.mark.parametrize("bit", range(8))
def test_flipped_bit_gives_the_right_answer_or_none(bit: int) -> None:
    offsets = [entry.offset for entry in ENTRIES]
    positions = [entry.position for entry in ENTRIES]
    content = encoded(ENTRIES)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << bit
        index = index_of(bytes(damaged))
        noticed = 0
        for target in targets(offsets + positions):
            try:
                assert index.floor_offset(target) == floor_of(ENTRIES, offsets, target)
                assert index.floor_position(target) == floor_of(ENTRIES, positions, target)
            except DamagedIndex:
                noticed += 1
        assert noticed


def test_hidden_seal_is_never_found() -> None:
    seal = IndexEntry(2**41, 2**34 + 61, 0)
    index = index_of(encoded([*ENTRIES, seal]))
    segment = new_segment("", ENTRIES[0].offset)
    segment.next_offset, segment.size = seal.offset, seal.position
    assert index.take_seal(segment) == seal
    assert index.count == len(ENTRIES)
    assert index.floor_offset(seal.offset) == ENTRIES[-1]
    assert index.floor_position(seal.position) == ENTRIES[-1]


def test_last_entry_must_lie_in_the_record_file() -> None:
    index = index_of(encoded(ENTRIES[:2]))
    assert index.last_within(280) == ENTRIES[1]
    assert index.last_within(0) is None
    with pytest.raises(DamagedIndex, match="points past the record file"):
        index.last_within(279)


def test_seal_is_no_entry_of_a_segment_that_takes_appends() -> None:
    index = index_of(encoded([*ENTRIES[:2], IndexEntry(110, 280, 0)]))
    with pytest.raises(DamagedIndex):
        index.last_within(280)


def test_empty_index_of_a_segment_with_records_is_damaged() -> None:
    with pytest.raises(DamagedIndex, match="empty"):
        index_of(b"").last_within(100)


def test_index_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.index"
    path.write_bytes(encoded(ENTRIES))
    index = OffsetIndex.open(LocalFilesystem(), str(path))
    assert [index.entry(number) for number in range(index.count)] == ENTRIES


@pytest.mark.parametrize("missing", [1, 23])
def test_index_file_of_no_whole_number_of_entries_is_damaged(tmp_path: Path, missing: int) -> None:
    path = tmp_path / "00000000000000000100.index"
    path.write_bytes(encoded(ENTRIES)[:-missing])
    with pytest.raises(DamagedIndex, match="cut"):
        OffsetIndex.open(LocalFilesystem(), str(path))


def test_missing_index_file_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamagedIndex, match="missing"):
        OffsetIndex.open(LocalFilesystem(), str(tmp_path / "00000000000000000100.index"))
