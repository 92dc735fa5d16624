"""The newest offset of each key in a part of a log, in memory of a set size.

A key of fewer than 16 bytes stands for itself, a longer one is stored as its 16-byte BLAKE2b
digest; so the two kinds never meet, and two keys of one digest are not to be expected on this
earth.

Invariant: never more than `limit` entries.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import repeat

# What an entry costs at worst, in CPython on a 64-bit machine: 64 bytes for the key, 32 for the
# offset, 60 for its share of a hash table that has just doubled and 30 for that of the old table
# while they exist side by side. tests/unit/storage/test_key_map.py measures it.
ENTRY_BYTES = 192

_DIGEST_BYTES = 16
_NOWHERE = -1
_SORTED_AT_ONCE = 8192
_PARTS_BITS = 8


class KeyMap:
    """Learns keys in the order of their offsets."""

    __slots__ = ("_newest", "limit")

    def __init__(self, buffer_bytes: int) -> None:
        # One entry at least, so that every pass gets somewhere.
        self.limit = max(buffer_bytes // ENTRY_BYTES, 1)
        # None is never a key here, but may be asked for.
        self._newest: dict[bytes | None, int] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> int:
        """Note keys, none of them None, at ascending offsets. Returns how many found room."""
        names = _names(keys)
        newest = self._newest
        if len(newest) + len(names) <= self.limit:
            newest.update(zip(names, offsets, strict=True))
            return len(names)
        for number, name in enumerate(names):
            if len(newest) >= self.limit and name not in newest:
                return number
            newest[name] = offsets[number]
        return len(names)

    def newest(self, keys: Sequence[bytes | None]) -> Iterator[int]:
        """The newest offset of each key; -1 for one that is not known, and for no key at all."""
        return map(self._newest.get, _names(keys), repeat(_NOWHERE))

    def offsets(self) -> array[int]:
        """All the offsets, ascending: one for each key."""
        offsets = array("q")
        for some in _ascending(list(self._newest.values())):
            offsets.extend(some)
        return offsets


def _ascending(offsets: list[int]) -> Iterator[list[int]]:
    """Distinct offsets, sorted a part at a time: to sort them all would hold up other threads."""
    if len(offsets) <= _SORTED_AT_ONCE:
        yield sorted(offsets)
        return
    lowest, highest = min(offsets), max(offsets)
    shift = max((highest - lowest).bit_length() - _PARTS_BITS, 0)
    parts: list[list[int]] = [[] for _ in range(((highest - lowest) >> shift) + 1)]
    for offset in offsets:
        parts[(offset - lowest) >> shift].append(offset)
    for part in parts:
        yield from _ascending(part)


def _names(keys: Sequence[bytes | None]) -> Sequence[bytes | None]:
    if max(map(len, filter(None, keys)), default=0) < _DIGEST_BYTES:
        return keys
    return [
        key
        if key is None or len(key) < _DIGEST_BYTES
        else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        for key in keys
    ]
