"""A reader of segments that was written from docs/formats alone and shares no code with the engine.

If this file has to change with the engine, the formats changed: so must their documents.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from millstream.settings.log import LogSettings

# --- the reader

HEADER = struct.Struct(">qiibIhiqqqhii")
TABLE = list(range(256))
for _ in range(8):
    TABLE = [crc >> 1 ^ 0x82F63B78 * (crc & 1) for crc in TABLE]


def check(data: bytes, expected: int) -> None:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[crc & 0xFF ^ byte]
    if crc ^ 0xFFFFFFFF != expected:
        raise ValueError("checksum")


class Batch(NamedTuple):
    base_offset: int
    last_offset: int
    position: int
    size: int
    max_timestamp: int
    # (offset, timestamp, key, value, headers); none where the batch is compressed
    records: list[
        tuple[int, int, bytes | None, bytes | None, list[tuple[bytes | None, bytes | None]]]
    ]


def batches(log: bytes) -> Iterator[Batch]:
    position = 0
    while position < len(log):
        header = HEADER.unpack_from(log, position)
        base, length, _, magic, crc, attributes, delta, base_ms, max_ms, _, _, _, count = header
        batch = log[position : position + 12 + length]
        if magic != 2 or len(batch) != 12 + length:
            raise ValueError("no batch")
        check(batch[21:], crc)
        found, at = [], 61
        for _ in range(0 if attributes & 7 else count):
            _, at = varint(batch, at)
            timestamp, at = varint(batch, at + 1)
            offset, at = varint(batch, at)
            (key, value), at = sized(batch, at, 2)
            header_count, at = varint(batch, at)
            parts, at = sized(batch, at, 2 * header_count)
            headers = list(zip(parts[::2], parts[1::2], strict=True))
            time = max_ms if attributes & 8 else base_ms + timestamp
            found.append((base + offset, time, key, value, headers))
        yield Batch(base, base + delta, position, len(batch), max_ms, found)
        position += len(batch)


def varint(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        raw |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return raw >> 1 ^ -(raw & 1), at


def sized(data: bytes, at: int, count: int) -> tuple[list[bytes | None], int]:
    found: list[bytes | None] = []
    for _ in range(count):
        size, at = varint(data, at)
        found.append(data[at : at + size] if size >= 0 else None)
        at += max(size, 0)
    return found, at


def entries(index: bytes, form: str) -> list[tuple[int, ...]]:
    """Form `qqI` for an offset index, `qq` for a time index."""
    found = []
    for *entry, crc in struct.iter_unpack(f">{form}I", index):
        check(struct.pack(f">{form}", *entry), crc)
        found.append(tuple(entry))
    return found


# --- what it reads


Sent = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

INTERVAL_BYTES = 300
DOCUMENTS = Path(__file__).parents[3] / "docs" / "formats"


def sent_records() -> list[list[Sent]]:
    """Times, keys, values and headers of batches, with all that may be null or empty."""
    sent: list[list[Sent]] = []
    for number in range(60):
        time = 1_700_000_000_000 + 10 * number - 500 * (number % 5)
        batch: list[Sent] = [(time, b"key %d" % number, b"value" * (number % 40), [])]
        if number % 3:
            batch.append((time - 77, None, b"", [("trace", b"\x00\xff"), ("empty", None)]))
        if number % 4 == 3:
            batch.append((time + 100_000, b"", None, [("k" * 200, b"v" * 300)]))
        sent.append(batch)
    return sent


def write_log(directory: Path, sent: list[list[Sent]], settings: LogSettings) -> None:
    """Write batches with the engine, and stop it cleanly."""
    from millstream.clock import ManualClock
    from millstream.records import Record, build
    from millstream.storage.filesystem import LocalFilesystem
    from millstream.storage.local_log import LocalLog
    from millstream.storage.segment_cache import SegmentCache

    log = LocalLog(
        LocalFilesystem(),
        str(directory),
        name="orders/0",
        settings=settings,
        clock=ManualClock(),
        cache=SegmentCache(4),
    )
    for batch in sent:
        records = [
            Record(number, time, key, value, tuple(headers))
            for number, (time, key, value, headers) in enumerate(batch)
        ]
        assert log.append([build(records)]) == [log.end_offset - len(records)]
    log.close()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from millstream.settings.log import LogSettings

    directory = tmp_path_factory.mktemp("data") / "topics" / "orders" / "0"
    settings = LogSettings(segment_bytes=2000, index_interval_bytes=INTERVAL_BYTES)
    write_log(directory, sent_records(), settings)
    return directory


def stems(directory: Path) -> list[Path]:
    return sorted(path.with_suffix("") for path in directory.glob("*.log"))


def test_records_are_read_as_they_were_sent(directory: Path) -> None:
    expected, offset = [], 0
    for batch in sent_records():
        for time, key, value, headers in batch:
            expected.append((offset, time, key, value, [(n.encode(), v) for n, v in headers]))
            offset += 1
    found = [
        record
        for stem in stems(directory)
        for batch in batches(stem.with_suffix(".log").read_bytes())
        for record in batch.records
    ]
    assert found == expected
    assert len(stems(directory)) > 5


def test_segments_are_named_by_their_first_offset_and_follow_each_other(directory: Path) -> None:
    expected = 0
    for stem in stems(directory):
        assert re.fullmatch(r"\d{20}", stem.name)
        assert int(stem.name) == expected
        for batch in batches(stem.with_suffix(".log").read_bytes()):
            assert batch.base_offset == expected
            expected = batch.last_offset + 1


def test_offset_index_points_at_batches_and_ends_with_a_seal(directory: Path) -> None:
    for stem, following in pairwise(stems(directory)):
        log = stem.with_suffix(".log").read_bytes()
        expected: list[tuple[int, ...]] = []
        for batch in batches(log):
            if not expected or batch.position - expected[-1][1] >= INTERVAL_BYTES:
                expected.append((batch.base_offset, batch.position, batch.size))
        seal = (int(following.name), len(log), 0)
        assert entries(stem.with_suffix(".index").read_bytes(), "qqI") == [*expected, seal]


def test_offset_index_of_the_active_segment_has_no_seal(directory: Path) -> None:
    active = stems(directory)[-1]
    found = entries(active.with_suffix(".index").read_bytes(), "qqI")
    places = {(b.base_offset, b.position, b.size) for b in batches_of(active)}
    assert found
    assert set(found) <= places


def batches_of(stem: Path) -> list[Batch]:
    return list(batches(stem.with_suffix(".log").read_bytes()))


def test_time_index_tells_the_largest_time_below_each_offset(directory: Path) -> None:
    for stem in stems(directory):
        found = entries(stem.with_suffix(".timeindex").read_bytes(), "qq")
        stored = batches_of(stem)
        for time, offset in found:
            assert time == max(b.max_timestamp for b in stored if b.last_offset < offset)
        assert found == sorted(found, key=lambda entry: entry[1])
        assert found[-1][0] == max(b.max_timestamp for b in stored)


def test_time_of_append_is_the_time_of_every_record(tmp_path: Path) -> None:
    from millstream.records import Record, build, stamp_append_time

    batch = build([Record(0, 5, None, b"a"), Record(1, 9, None, b"b")])
    stamp_append_time(batch, 1234)
    (found,) = batches(bytes(batch))
    assert [record[1] for record in found.records] == [1234, 1234]


def test_flipped_byte_is_noticed(directory: Path) -> None:
    stem = stems(directory)[0]
    first = batches_of(stem)[0]
    content = stem.with_suffix(".log").read_bytes()[: first.size]
    for position in range(8, len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x40
        if 12 <= position < 16:
            continue  # the leader epoch, which a reader compares with 0
        with pytest.raises((ValueError, struct.error)):
            list(batches(bytes(damaged)))
    index = stem.with_suffix(".index").read_bytes()
    for position in range(len(index)):
        damaged = bytearray(index)
        damaged[position] ^= 0x40
        with pytest.raises(ValueError, match="checksum"):
            entries(bytes(damaged), "qqI")


# --- the examples in the documents


def example(name: str) -> bytes:
    """The bytes of a document's last example: what comes before the comment on each line."""
    text = (DOCUMENTS / name).read_text()
    block = text.split("## Example")[-1].split("```")[1]
    lines = [re.split(r"  +", line)[0] for line in block.splitlines()]
    return bytes.fromhex(" ".join(lines))


def test_example_of_a_record_file_is_read() -> None:
    found = list(batches(example("segment.md")))
    assert [(b.base_offset, b.last_offset, b.position) for b in found] == [
        (100, 101, 0),
        (102, 102, 85),
        (103, 103, 154),
    ]
    assert [record for batch in found for record in batch.records] == [
        (100, 1000, b"k", b"hello", []),
        (101, 1005, None, None, [(b"h", b"x")]),
        (102, 900, None, b"a", []),
        (103, 2000, None, b"b", []),
    ]
    (batch,) = batches(example("record_batch.md"))
    assert batch == found[0]


def test_examples_of_the_indexes_belong_to_the_record_file() -> None:
    log = example("segment.md")
    first, _, third = batches(log)
    assert entries(example("offset_index.md"), "qqI") == [
        (100, first.position, first.size),
        (103, third.position, third.size),
        (104, len(log), 0),
    ]
    assert entries(example("time_index.md"), "qq") == [(1005, 103), (2000, 104)]


def test_example_of_a_log_start_is_read() -> None:
    offset, crc = struct.unpack(">qI", example("log_start_offset.md"))
    check(offset.to_bytes(8, "big"), crc)
    assert offset == 1000


# --- the other files


def test_log_start_is_read(tmp_path: Path) -> None:
    from millstream.storage.filesystem import LocalFilesystem
    from millstream.storage.log_start import write_log_start

    write_log_start(LocalFilesystem(), str(tmp_path), 4711)
    offset, crc = struct.unpack(">qI", (tmp_path / "log-start-offset").read_bytes())
    check(offset.to_bytes(8, "big"), crc)
    assert offset == 4711


def test_checkpoint_of_a_clean_stop_is_read(tmp_path: Path) -> None:
    from millstream.clock import ManualClock
    from millstream.records import Record, build
    from millstream.settings.log import LogSettings
    from millstream.settings.storage import StorageSettings
    from millstream.storage.data_directory import DataDirectory
    from millstream.storage.filesystem import LocalFilesystem

    data = DataDirectory(
        LocalFilesystem(),
        str(tmp_path),
        storage=StorageSettings(),
        defaults=LogSettings(),
        clock=ManualClock(),
    )
    log = data.create("orders", 0)
    log.append([build([Record(0, 5, None, b"a"), Record(1, 9, None, b"b")])])
    data.close()
    digits, body = (tmp_path / "checkpoint").read_bytes().split(b"\n", 1)
    check(body, int(digits, 16))
    active = tmp_path / "topics" / "orders" / "0" / f"{0:020d}.log"
    entry = [2, 2, active.stat().st_size, 0, 0]
    assert json.loads(body) == {"version": 1, "logs": {"orders/0": entry}}
    assert re.fullmatch(rb"process \d+\n", (tmp_path / "lock").read_bytes())
