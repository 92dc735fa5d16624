"""Touches memory and frees it again, before anything is measured.

On a virtual machine the first touch of a page costs ten times what later ones do, because the host
has to find it. Whoever is measured first would pay for that.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

_CHUNK_BYTES = 64 << 20


def warm_memory(wanted_bytes: int, *, tell: Callable[[float], None]) -> int:
    """Touch up to half of what is available; returns how much. `tell` gets the share done."""
    total_bytes = min(wanted_bytes, available_bytes() // 2)
    chunks: list[mmap.mmap] = []
    for touched in range(0, total_bytes, _CHUNK_BYTES):
        chunk = mmap.mmap(-1, min(_CHUNK_BYTES, total_bytes - touched))
        pages = -(-len(chunk) // mmap.PAGESIZE)
        chunk[:: mmap.PAGESIZE] = b"\x01" * pages
        chunks.append(chunk)
        tell((touched + len(chunk)) / total_bytes)
    for chunk in chunks:
        chunk.close()
    return total_bytes


def available_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as memory:
        for line in memory:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("the kernel tells no available memory")
