"""Batches laid out as in a record file, and whole segments made of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from millstream.records import BatchHeader, assign_offset, parse_header
from millstream.storage.index_builder import IndexBuilder
from millstream.storage.segment import Segment, SegmentState, segment_stem
from tests.fakes.sample_batches import batch_of


class Laid(NamedTuple):
    """One batch in its place."""

    header: BatchHeader
    position: int
    content: bytes

    @property
    def offset(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        return self.position + len(self.content)


def lay(*batches: bytearray, base_offset: int = 0, gaps: tuple[int, ...] = ()) -> list[Laid]:
    """Batches one after the other; `gaps` are the numbers of those that five offsets precede."""
    laid, position, offset = [], 0, base_offset
    for number, batch in enumerate(batches):
        offset += 5 * (number in gaps)
        assign_offset(batch, offset, 0)
        header = parse_header(batch)
        laid.append(Laid(header, position, bytes(batch)))
        position += len(batch)
        offset = header.next_offset
    return laid


def lay_some(count: int, *, base_offset: int = 0, gaps: tuple[int, ...] = ()) -> list[Laid]:
    """Batches of one to three records with values of growing size."""
    batches = [
        batch_of(*(b"v" * (number + n) for n in range(number % 3 + 1))) for number in range(count)
    ]
    return lay(*batches, base_offset=base_offset, gaps=gaps)


def content_of(laid: list[Laid]) -> bytes:
    return b"".join(batch.content for batch in laid)


def flipped(content: bytes | memoryview, position: int, bit: int = 0) -> bytes:
    damaged = bytearray(content)
    damaged[position] ^= 1 << bit
    return bytes(damaged)


def indexes_of(laid: list[Laid], *, index_interval_bytes: int = 200) -> IndexBuilder:
    """The entries of both indexes, not sealed."""
    builder = IndexBuilder(index_interval_bytes)
    next_offset = laid[0].offset
    for header, position, content in laid:
        builder.add(
            header.base_offset,
            position,
            len(content),
            header.max_timestamp_ms,
            follows=header.base_offset == next_offset,
        )
        next_offset = header.next_offset
    return builder


def store_segment(directory: Path, laid: list[Laid], *, index_interval_bytes: int = 200) -> Segment:
    """A closed segment of these batches, in real files."""
    builder = indexes_of(laid, index_interval_bytes=index_interval_bytes)
    base_offset, next_offset = laid[0].offset, laid[-1].header.next_offset
    size = laid[-1].end
    builder.seal(next_offset, size)
    stem = segment_stem(str(directory), base_offset)
    segment = Segment(stem, base_offset, next_offset, size, SegmentState.ARCHIVED)
    Path(segment.log_path).write_bytes(content_of(laid))
    Path(segment.index_path).write_bytes(builder.offset_entries)
    Path(segment.time_index_path).write_bytes(builder.time_entries)
    return segment
