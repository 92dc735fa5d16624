"""Which partition a record goes to when its sender does not say: Kafka's rule.

Records with a key go by a hash of it (murmur2, as Kafka's own clients do), so that a key stays in
one partition and in order, through whichever door it comes. Others take turns.
"""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Where a key belongs."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash 2 in 32 bits, with Kafka's seed."""
    length = len(data)
    whole = length & ~3
    hashed = _SEED ^ length
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ k
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ (hashed >> 13)) * _M & _MASK
    return hashed ^ (hashed >> 15)
