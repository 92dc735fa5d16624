"""Records out of stored batches: proved each time, and unpacked only as far as they are wanted."""

from __future__ import annotations

import tracemalloc

import pytest

from millstream.errors import CorruptData, RecordTooLarge
from millstream.records import Codec, Record, build
from millstream.records.batch import HEADER_BYTES, seal
from millstream.storage.stored_records import (
    stored_batches,
    stored_parts,
    stored_records,
    stored_times,
)

LIMIT_BYTES = 64 << 20
LEADER_EPOCH = range(12, 16)
"""Outside of the checksum, and told to nobody."""
RECORDS = [Record(n, 1000 + n, b"key %d" % n, b"value %d" % n * 20) for n in range(7, 907)]


def batch_of(records: list[Record], codec: Codec = Codec.NONE) -> bytes:
    return bytes(build(records, base_offset=records[0].offset, codec=codec))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("offset", [0, 7, 8, 500, 906])
def test_records_are_those_that_were_stored_from_an_offset_on(codec: Codec, offset: int) -> None:
    batch = batch_of(RECORDS, codec)
    expected = [each for each in RECORDS if each.offset >= offset]
    assert list(stored_records(batch, limit_bytes=LIMIT_BYTES, from_offset=offset)) == expected
    times = [(each.offset, each.timestamp_ms) for each in RECORDS]
    assert list(stored_times(batch, limit_bytes=LIMIT_BYTES)) == times
    plain = b"".join(stored_parts(batch_of(RECORDS), limit_bytes=LIMIT_BYTES))
    assert b"".join(stored_parts(batch, limit_bytes=LIMIT_BYTES)) == plain


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size_bytes", [127 << 10, 128 << 10, 129 << 10, 300 << 10])
def test_record_that_reaches_over_several_parts_is_whole(codec: Codec, size_bytes: int) -> None:
    records = [
        Record(n, n, None, bytes([n]) * size_bytes, (("last", b"header" * 10),)) for n in range(5)
    ]
    assert list(stored_records(batch_of(records, codec), limit_bytes=LIMIT_BYTES)) == records


@pytest.mark.parametrize("bit", [0x01, 0x10, 0x80])
def test_flip_of_any_byte_is_told_and_never_served(bit: int) -> None:
    batch = batch_of([Record(7, 1, b"k", b"some value")], Codec.NONE)
    for position in (n for n in range(len(batch)) if n not in LEADER_EPOCH):
        damaged = bytearray(batch)
        damaged[position] ^= bit
        with pytest.raises(CorruptData, match="offset") as caught:
            read_all(damaged)
        assert caught.value.next_offset > 7


def read_all(batches: bytearray) -> list[Record]:
    """Of a log that ends at offset 8, from 7 on."""
    return [
        record
        for _, batch in stored_batches(memoryview(batches), 7, end_offset=8)
        for record in stored_records(batch, limit_bytes=LIMIT_BYTES)
    ]


def test_batches_whose_offsets_overlap_are_told() -> None:
    first, second = batch_of(RECORDS[:10]), bytearray(batch_of(RECORDS[10:20]))
    second[7] ^= 1
    with pytest.raises(CorruptData, match="offset 7"):
        list(stored_batches(memoryview(first + second), 7, end_offset=27))


def test_only_what_is_taken_of_a_bomb_is_unpacked() -> None:
    records = [Record(n, n, None, bytes(1 << 20)) for n in range(32)]
    batch = batch_of(records, Codec.ZSTD)
    assert len(batch) < 100_000
    tracemalloc.start()
    try:
        taken = next(stored_records(batch, limit_bytes=LIMIT_BYTES))
        assert len(taken.value or b"") == 1 << 20
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 << 20


@pytest.mark.parametrize("codec", Codec)
def test_record_over_its_limit_is_told_with_its_offset_and_can_be_passed(codec: Codec) -> None:
    records = [Record(n, n, None, b"x" * (1 << 20 if n == 1 else 10)) for n in range(3)]
    batch = batch_of(records, codec)
    reading = stored_records(batch, limit_bytes=LIMIT_BYTES, record_limit_bytes=100_000)
    assert next(reading) == records[0]
    with pytest.raises(RecordTooLarge, match=r"offset 1 .* continue at offset 2") as caught:
        next(reading)
    rest = stored_records(batch, limit_bytes=LIMIT_BYTES, record_limit_bytes=100_000, from_offset=2)
    assert caught.value.next_offset == 2
    assert list(rest) == records[2:]


def test_batch_over_the_limit_is_told_with_where_to_continue() -> None:
    batch = batch_of(RECORDS, Codec.GZIP)
    with pytest.raises(RecordTooLarge, match=r"millstream.max.decompressed.bytes") as caught:
        list(stored_records(batch, limit_bytes=1000))
    assert caught.value.next_offset == 907
    with pytest.raises(RecordTooLarge):
        list(stored_parts(batch, limit_bytes=1000))
    with pytest.raises(RecordTooLarge):
        list(stored_times(batch, limit_bytes=1000))


def test_records_that_a_sender_made_unreadable_are_told_with_their_offset() -> None:
    whole = batch_of(RECORDS)
    body = bytearray(whole[HEADER_BYTES:])
    body[-1] = 0xFF
    batch = bytearray(whole[:HEADER_BYTES]) + body
    seal(batch)
    with pytest.raises(CorruptData, match="offset 906"):
        list(stored_records(batch, limit_bytes=LIMIT_BYTES))
