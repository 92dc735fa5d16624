"""The map of newest offsets: what it remembers, and how much memory that takes."""

from __future__ import annotations

import tracemalloc

import pytest

from millstream.storage.key_map import ENTRY_BYTES, KeyMap


def test_newest_offset_of_a_key_counts() -> None:
    keys = KeyMap(1 << 20)
    assert keys.add([b"a", b"b", b"a"], [3, 4, 5]) == 3
    assert keys.add([b"b"], range(9, 10)) == 1
    assert list(keys.newest([b"a", b"b", b"c", None])) == [5, 9, -1, -1]
    assert list(keys.offsets()) == [5, 9]


def test_empty_key_is_a_key() -> None:
    keys = KeyMap(1 << 20)
    keys.add([b""], [7])
    assert list(keys.newest([b"", None])) == [7, -1]


@pytest.mark.parametrize("size", [15, 16, 17, 64, 1000])
def test_keys_that_differ_in_one_byte_are_told_apart(size: int) -> None:
    keys = KeyMap(1 << 20)
    first, second = bytes(size), bytes(size - 1) + b"\1"
    keys.add([first, second, b"short"], [0, 1, 2])
    assert list(keys.newest([first, second, bytes(size + 1), b"short"])) == [0, 1, -1, 2]


def test_full_map_takes_keys_that_it_knows() -> None:
    keys = KeyMap(2 * ENTRY_BYTES)
    assert keys.add([b"a", b"b", b"a", b"b", b"c", b"a"], range(6)) == 4
    assert len(keys) == keys.limit == 2
    assert list(keys.newest([b"a", b"b", b"c"])) == [2, 3, -1]


def test_smallest_map_holds_a_key() -> None:
    keys = KeyMap(1)
    assert keys.add([b"a", b"b"], [0, 1]) == 1


@pytest.mark.parametrize("step", [1, 2, 1000, 2**40])
def test_offsets_come_in_order_however_they_lie(step: int) -> None:
    crowded = [7 * step + n for n in range(20_000)]
    offsets = sorted({*crowded, *(2**50 + n * step for n in range(5000))})
    keys = KeyMap(1 << 30)
    # Keys that are noted again keep their place in the map, not in the log.
    keys.add([b"%d" % n for n in reversed(range(len(offsets)))], range(len(offsets)))
    keys.add([b"%d" % n for n in range(len(offsets))], offsets)
    assert list(keys.offsets()) == offsets


@pytest.mark.parametrize("entries", [700, 5461, 5462, 43_690, 43_691, 60_000])
@pytest.mark.parametrize("key_size", [8, 15, 40])
def test_full_map_stays_within_its_memory(entries: int, key_size: int) -> None:
    """The table doubles at 5461 and 43,690 entries, which is where memory peaks."""
    buffer_bytes = entries * ENTRY_BYTES
    tracemalloc.start()
    try:
        keys = KeyMap(buffer_bytes)
        for first in range(0, entries + 100, 100):
            numbers = range(first, first + 100)
            keys.add([b"%0*d" % (key_size, n) for n in numbers], [2**40 + n for n in numbers])
        keys.offsets()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(keys) == entries
    assert peak <= buffer_bytes + 64 * 1024
