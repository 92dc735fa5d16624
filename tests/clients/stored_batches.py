"""What a broker has on disk, read without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millstream.groups.group_records import GroupMetadata
from millstream.groups.group_records_format import DECODERS, number_of
from millstream.records import BatchHeader, Record, parse_header, records_of, validate
from millstream.records.batch import HEADER_BYTES

_UNPACKED_MAX_BYTES = 64 * 1024**2


def batches_of(segment: Path) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a segment, proved to be whole. A live segment ends with room for more."""
    content = memoryview(segment.read_bytes())
    position = 0
    while position + HEADER_BYTES <= len(content):
        header = parse_header(content, position)
        if not header.magic:
            break
        end = position + header.size_bytes
        yield validate(content[position:end]), content[position:end]
        position = end
    assert not any(content[position:]), f"{segment} holds bytes that are no batch"


def records_in(segments: list[Path]) -> Iterator[Record]:
    for segment in segments:
        for _, batch in batches_of(segment):
            yield from records_of(batch, limit_bytes=_UNPACKED_MAX_BYTES)


def generation_of(segments: list[Path], group: str) -> int:
    """The last generation of a classic group, as `__consumer_offsets` has it."""
    generation = -1
    for record in records_in(segments):
        assert record.key is not None
        decode = DECODERS.get(number_of(record.key))
        found = decode(record.key, record.value) if decode else None
        if isinstance(found, GroupMetadata) and found.group_id == group:
            generation = found.generation
    return generation
