"""Walks through a whole log, batch by batch.

`batches_of` raises at damage; `sound_batches` steps over it, for what only speeds up or describes;
`damage_in` finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from millstream.errors import CorruptData
from millstream.records.batch import BatchHeader
from millstream.storage.batch_walk import end_of_batches, split_batches

_READ_BYTES = 1 << 20


class Readable(Protocol):
    """A log, or the segments of one."""

    @property
    def end_offset(self) -> int: ...

    def read(self, offset: int, max_bytes: int) -> memoryview: ...


def batches_of(log: Readable, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch from an offset on. Raises CorruptData."""
    for found in _runs(log, offset):
        if isinstance(found, CorruptData):
            raise found
        yield from split_batches(found)


def sound_batches(
    log: Readable, offset: int, on_damage: Callable[[CorruptData], object] = lambda _: None
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch from an offset on that can be read."""
    for found in _runs(log, offset):
        if isinstance(found, CorruptData):
            on_damage(found)
        else:
            yield from split_batches(found)


def damage_in(log: Readable, offset: int) -> list[CorruptData]:
    """Every place from an offset on that cannot be read."""
    return [found for found in _runs(log, offset) if isinstance(found, CorruptData)]


def _runs(log: Readable, offset: int) -> Iterator[memoryview | CorruptData]:
    """Runs of sound batches, and the damage between them."""
    while offset < log.end_offset:
        try:
            view = log.read(offset, _READ_BYTES)
        except CorruptData as damage:
            offset = damage.next_offset
            yield damage
            continue
        if not view:
            return
        offset = end_of_batches(view)
        yield view
