"""The header: parsing, checking and patching in place."""

from __future__ import annotations

import struct

import pytest

from millstream.errors import InvalidBatch, UnsupportedCodec
from millstream.records import (
    Codec,
    ControlType,
    Record,
    assign_offset,
    build,
    build_control,
    crc32c,
    parse_header,
    records_of,
    stamp_append_time,
    validate,
    validate_produced,
)
from millstream.records.batch import CRC_AT, CRC_FROM, HEADER, HEADER_BYTES, seal

RECORDS = [
    Record(0, 1_000, b"a", b"first"),
    Record(1, 3_000, None, b"second"),
    Record(2, 2_000, b"a", None),
]


def sealed(batch: bytearray, position: int, layout: str, value: int) -> bytearray:
    """A batch with one field changed and the checksum made right again."""
    struct.pack_into(layout, batch, position, value)
    seal(batch)
    return batch


def test_header_layout_is_61_bytes_with_the_checksum_behind_byte_21() -> None:
    assert HEADER.size == HEADER_BYTES == 61
    batch = build(RECORDS)
    (stored,) = struct.unpack_from(">I", batch, CRC_AT)
    assert stored == crc32c(memoryview(batch)[CRC_FROM:])


def test_parsed_header_has_every_field_in_its_place() -> None:
    batch = build(
        [record._replace(offset=record.offset + 500) for record in RECORDS],
        base_offset=500,
        codec=Codec.NONE,
        producer_id=7,
        producer_epoch=3,
        base_sequence=40,
        transactional=True,
        leader_epoch=9,
    )
    header = parse_header(batch)
    assert header.base_offset == 500
    assert header.batch_length == len(batch) - 12
    assert header.size_bytes == len(batch)
    assert header.leader_epoch == 9
    assert header.magic == 2
    assert header.last_offset_delta == 2
    assert (header.last_offset, header.next_offset) == (502, 503)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (1_000, 3_000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 40)
    assert header.has_producer
    assert header.last_sequence == 42
    assert header.records_count == 3
    assert header.codec is Codec.NONE
    assert header.is_transactional
    assert not header.is_control
    assert not header.timestamp_type_append


def test_header_is_parsed_where_the_position_says() -> None:
    first, second = (
        build(RECORDS),
        build([record._replace(offset=record.offset + 3) for record in RECORDS], base_offset=3),
    )
    assert parse_header(first + second, len(first)).base_offset == 3


@pytest.mark.parametrize("size_bytes", [0, 1, 12, 60])
def test_header_cut_short_is_refused(size_bytes: int) -> None:
    with pytest.raises(InvalidBatch):
        parse_header(build(RECORDS)[:size_bytes])
    with pytest.raises(InvalidBatch):
        validate(build(RECORDS)[:size_bytes])


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "last_sequence"),
    [
        (0, 0, 0),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 3, 5, 2),
        (-1, 5, -1),
    ],
)
def test_last_sequence_wraps_to_zero(
    base_sequence: int, last_offset_delta: int, last_sequence: int
) -> None:
    header = parse_header(build(RECORDS))._replace(
        base_sequence=base_sequence, last_offset_delta=last_offset_delta
    )
    assert header.last_sequence == last_sequence


def test_valid_batch_in_any_buffer_is_accepted() -> None:
    batch = build(RECORDS)
    header = parse_header(batch)
    around = bytearray(b"x" + batch + b"y")
    for buffer in (batch, bytes(batch), memoryview(batch), memoryview(around)[1:-1]):
        assert validate(buffer) == header
        assert validate_produced(buffer) == header


def test_bytes_missing_or_left_over_are_refused() -> None:
    batch = build(RECORDS)
    for buffer in (batch[:-1], batch + b"\0", batch + batch):
        with pytest.raises(InvalidBatch, match="length"):
            validate(buffer)


def test_any_flipped_byte_under_the_checksum_is_refused() -> None:
    batch = build(RECORDS)
    for position in range(CRC_AT, len(batch)):
        batch[position] ^= 0x10
        with pytest.raises(InvalidBatch, match="checksum"):
            validate(batch)
        batch[position] ^= 0x10


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_magic_is_refused(magic: int) -> None:
    with pytest.raises(InvalidBatch, match=f"magic {magic}"):
        validate(sealed(build(RECORDS), 16, ">b", magic))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_refused(codec: int) -> None:
    batch = sealed(build(RECORDS), 21, ">h", codec)
    with pytest.raises(UnsupportedCodec) as caught:
        validate(batch)
    assert caught.value.codec == codec
    with pytest.raises(UnsupportedCodec):
        _ = parse_header(batch).codec


@pytest.mark.parametrize(
    ("count", "delta"), [(-1, 2), (4, 2), (1, -1), (0, -1), (2**31 - 1, 2), (-(2**31), -(2**31))]
)
def test_count_that_does_not_fit_its_offsets_is_refused(count: int, delta: int) -> None:
    batch = sealed(sealed(build(RECORDS), 57, ">i", count), 23, ">i", delta)
    with pytest.raises(InvalidBatch, match="last offset delta"):
        validate(batch)


def test_gaps_are_fine_in_a_stored_batch_and_refused_in_a_new_one() -> None:
    batch = build([RECORDS[0], RECORDS[2]])
    assert validate(batch).records_count == 2
    with pytest.raises(InvalidBatch, match="new batch"):
        validate_produced(batch)


def test_no_records_are_fine_in_a_stored_batch_and_refused_in_a_new_one() -> None:
    batch = sealed(build(RECORDS), 57, ">i", 0)
    assert validate(batch).records_count == 0
    with pytest.raises(InvalidBatch, match="new batch"):
        validate_produced(batch)


def test_new_batch_that_claims_more_records_than_its_bytes_hold_is_refused() -> None:
    batch = sealed(sealed(build(RECORDS), 57, ">i", 1_000_000), 23, ">i", 999_999)
    validate(batch)
    with pytest.raises(InvalidBatch, match="cannot fit"):
        validate_produced(batch)


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1)])
def test_new_batch_of_a_producer_without_epoch_or_sequence_is_refused(
    epoch: int, sequence: int
) -> None:
    batch = build(RECORDS, producer_id=5, producer_epoch=epoch, base_sequence=sequence)
    with pytest.raises(InvalidBatch, match="producer 5"):
        validate_produced(batch)


def test_control_batch_needs_no_sequence() -> None:
    batch = build_control(
        ControlType.COMMIT, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    )
    assert validate_produced(batch).is_control


def test_assigned_offset_leaves_the_checksum_right() -> None:
    around = bytearray(7) + build(RECORDS, codec=Codec.LZ4)
    assign_offset(around, 2**40, 6, 7)
    header = validate(around[7:])
    assert (header.base_offset, header.leader_epoch) == (2**40, 6)
    assert around[:7] == bytes(7)
    offsets = [record.offset for record in records_of(around[7:], limit_bytes=1_000)]
    assert offsets == [2**40, 2**40 + 1, 2**40 + 2]


@pytest.mark.parametrize("codec", list(Codec))
def test_append_time_replaces_the_time_of_every_record(codec: Codec) -> None:
    batch = build(RECORDS, codec=codec)
    stamp_append_time(batch, 77_000)
    header = validate(batch)
    assert header.timestamp_type_append
    assert header.max_timestamp_ms == 77_000
    assert header.codec is codec
    records = list(records_of(batch, limit_bytes=1_000))
    assert records == [record._replace(timestamp_ms=77_000) for record in RECORDS]
