"""The batches of a record file as they lie there, sound or not.

A batch that is damaged is told as such, and the next sound one is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.cli.message_content import content
from millstream.errors import InvalidRequest
from millstream.records import BatchHeader, parse_header, records_of
from millstream.records.batch import HEADER_BYTES
from millstream.storage.batch_walk import Place, checked_batch, next_good_batch
from millstream.storage.filesystem import LocalFilesystem, map_whole

_UNPACKED_BYTES = 1 << 30
_EVERY_OFFSET = 2**63 - 1
_WINDOW_BYTES = 1 << 20


def dumped(file: Path, *, offset: int, with_records: bool) -> Iterator[dict[str, Any]]:
    """Each batch that reaches an offset, as JSON has it."""
    log = map_whole(LocalFilesystem(), str(file))
    place = Place(0, 0)
    while place.position < len(log):
        try:
            header = checked_batch(log, place.position, len(log))
        except InvalidRequest as fault:
            if _is_room(log, place.position):
                return
            found = next_good_batch(log, place, end=len(log), limit_offset=_EVERY_OFFSET)
            if found is None or found.offset > offset:
                yield _damaged(log, place.position, str(fault))
            if found is None:
                return
            place = found
            continue
        if header.last_offset >= offset:
            yield _sound(log, place.position, header, with_records=with_records)
        place = Place(place.position + header.size_bytes, header.next_offset)


def _is_room(log: memoryview, position: int) -> bool:
    """Whether only zeros follow: what a file that grows has for batches to come."""
    return all(
        not any(log[at : at + _WINDOW_BYTES]) for at in range(position, len(log), _WINDOW_BYTES)
    )


def _sound(
    log: memoryview, position: int, header: BatchHeader, *, with_records: bool
) -> dict[str, Any]:
    shape = _shape(position, header)
    if with_records:
        batch = log[position : position + header.size_bytes]
        try:
            shape["records"] = [
                {
                    "offset": each.offset,
                    "timestamp": each.timestamp_ms,
                    **content(each.key, each.value, each.headers),
                }
                for each in records_of(batch, limit_bytes=_UNPACKED_BYTES)
            ]
        except InvalidRequest as fault:
            shape |= {"sound": False, "problem": str(fault)}
    return shape


def _damaged(log: memoryview, position: int, reason: str) -> dict[str, Any]:
    if len(log) - position < HEADER_BYTES:
        header = BatchHeader(-1, len(log) - position - 12, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, 0)
    else:
        header = parse_header(log, position)
    return _shape(position, header) | {"sound": False, "problem": reason}


def _shape(position: int, header: BatchHeader) -> dict[str, Any]:
    codec = header.attributes & 0x07
    names = ("none", "gzip", "snappy", "lz4", "zstd")
    return {
        "position": position,
        "bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count,
        "codec": names[codec] if codec < len(names) else str(codec),
        "base_timestamp": header.base_timestamp_ms,
        "max_timestamp": header.max_timestamp_ms,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "leader_epoch": header.leader_epoch,
        "checksum": header.crc,
        "sound": True,
        "problem": None,
    }
