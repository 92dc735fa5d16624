"""The file that tells of a segment's aborted transactions: its bytes, and every damage to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.aborted_transactions import (
    ENTRY_BYTES,
    AbortedIndex,
    AbortedTransaction,
    index_between,
    overlapping,
)
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.offset_index import DamagedIndex

FIRST = AbortedTransaction(producer_id=7, first_offset=103, last_offset=104, last_stable_offset=105)
SECOND = AbortedTransaction(8, 90, 110, 111)
INDEX = AbortedIndex([FIRST, SECOND], 111)


def opened(path: Path, content: bytes, next_offset: int = 120) -> AbortedIndex:
    path.write_bytes(content)
    return AbortedIndex.open(LocalFilesystem(), str(path), next_offset=next_offset)


def test_file_has_the_bytes_that_its_format_shows() -> None:
    assert AbortedIndex([FIRST], 105).encode(next_offset=106).hex() == (
        "0000000000000007" "0000000000000067" "0000000000000068" "0000000000000069" "23261c63"
        "ffffffffffffffff" "0000000000000001" "000000000000006a" "0000000000000069" "df6e655d"
    )  # fmt: skip


def test_file_says_what_was_written(tmp_path: Path) -> None:
    assert opened(tmp_path / "index", INDEX.encode(next_offset=120)) == INDEX


def test_file_without_transactions_is_a_seal(tmp_path: Path) -> None:
    content = AbortedIndex([], 3).encode(next_offset=5)
    assert len(content) == ENTRY_BYTES
    assert opened(tmp_path / "index", content, 5) == AbortedIndex([], 3)


def test_missing_file_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedIndex):
        AbortedIndex.open(LocalFilesystem(), str(tmp_path / "none"), next_offset=1)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    content = INDEX.encode(next_offset=120)
    for position in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            with pytest.raises(DamagedIndex):
                opened(tmp_path / "index", bytes(damaged))


def test_every_cut_is_found(tmp_path: Path) -> None:
    content = INDEX.encode(next_offset=120)
    for size in range(len(content)):
        with pytest.raises(DamagedIndex):
            opened(tmp_path / "index", content[:size])


def test_lost_entry_is_found(tmp_path: Path) -> None:
    content = INDEX.encode(next_offset=120)
    with pytest.raises(DamagedIndex):
        opened(tmp_path / "index", content[ENTRY_BYTES:])


def test_file_of_another_segment_is_found(tmp_path: Path) -> None:
    with pytest.raises(DamagedIndex):
        opened(tmp_path / "index", INDEX.encode(next_offset=121))


@pytest.mark.parametrize(
    ("from_offset", "to_offset", "expected"),
    [
        (0, 90, []),
        (0, 91, [SECOND]),
        (95, 103, [SECOND]),
        (104, 106, [FIRST, SECOND]),
        (105, 106, [SECOND]),
        (110, 111, [SECOND]),
        (111, 500, []),
    ],
)
def test_transactions_that_reach_into_a_range(
    from_offset: int, to_offset: int, expected: list[AbortedTransaction]
) -> None:
    # The first one ends while the second is under way.
    found = overlapping([FIRST._replace(last_stable_offset=90), SECOND], from_offset, to_offset)
    assert [each.last_offset for each in found] == [each.last_offset for each in expected]


transactions = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 30)), unique_by=lambda pair: pair[0]
).map(
    lambda pairs: [
        AbortedTransaction(7, max(0, last - size), last, 0) for last, size in sorted(pairs)
    ]
)


@given(transactions, st.integers(0, 100), st.integers(0, 50))
def test_index_of_a_segment_leaves_out_nothing_that_began_before_its_end(
    aborted: list[AbortedTransaction], base_offset: int, size: int
) -> None:
    next_offset = base_offset + size
    index = index_between(aborted, base_offset=base_offset, next_offset=next_offset)
    assert list(index.transactions) == [
        each for each in aborted if each.last_offset in range(base_offset, next_offset)
    ]
    later = [each for each in aborted if each.last_offset >= next_offset]
    assert all(each.first_offset >= index.last_stable_offset for each in later)
    assert index.last_stable_offset <= next_offset
