"""Walks through a whole log, batch by batch, stepping over what is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from millstream.errors import CorruptData
from millstream.records.batch import BatchHeader
from millstream.storage.batch_walk import split_batches

_READ_BYTES = 1 << 20


class Readable(Protocol):
    """A log, or the segments of one."""

    @property
    def end_offset(self) -> int: ...

    def read(self, offset: int, max_bytes: int) -> memoryview: ...


def sound_batches(log: Readable, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch from an offset on that can be read."""
    while offset < log.end_offset:
        try:
            view = log.read(offset, _READ_BYTES)
        except CorruptData as damage:
            offset = damage.next_offset
            continue
        if not view:
            return
        for header, batch in split_batches(view):
            yield header, batch
            offset = header.next_offset
