"""Making batches, from records and from what compaction keeps."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidBatch, MessageTooLarge
from millstream.records import (
    Codec,
    Record,
    body_of,
    build,
    rebuild,
    records_of,
    stamp_append_time,
    validate,
)
from millstream.records.record_keys import select

LIMIT_BYTES = 1 << 20


def sequence(count: int, *, first: int = 0) -> list[Record]:
    return [
        Record(first + n, 5_000 - n, b"key %d" % (n % 7), b"value" * n, (("n", b"%d" % n),))
        for n in range(count)
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_built_batch_is_valid_and_reads_back_the_same(codec: Codec) -> None:
    records = sequence(200, first=1_000)
    batch = build(records, base_offset=1_000, codec=codec)
    header = validate(batch)
    assert header.codec is codec
    assert list(records_of(batch, limit_bytes=LIMIT_BYTES)) == records


def test_packed_batch_is_smaller() -> None:
    records = sequence(200)
    plain = len(build(records))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        assert len(build(records, codec=codec)) < plain / 2


def test_records_with_gaps_keep_their_offsets() -> None:
    records = [Record(12, 1, b"a", b"1"), Record(17, 2, b"b", b"2")]
    batch = build(records, base_offset=10, last_offset_delta=9)
    assert validate(batch).last_offset == 19
    assert list(records_of(batch, limit_bytes=LIMIT_BYTES)) == records


@pytest.mark.parametrize("offsets", [[1, 1], [2, 1], [-1], [0, 2**31]])
def test_offsets_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    with pytest.raises(InvalidBatch):
        build([Record(offset, 0, None, None) for offset in offsets])


def test_record_past_the_last_offset_delta_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="offset 5"):
        build([Record(5, 0, None, None)], last_offset_delta=4)


def test_no_records_make_no_batch() -> None:
    with pytest.raises(InvalidBatch, match="no records"):
        build([])


@pytest.mark.parametrize("timestamps", [[2**63], [0, 2**63], [2**63 - 1, -(2**63)]])
def test_timestamp_that_does_not_fit_is_refused(timestamps: list[int]) -> None:
    with pytest.raises(InvalidBatch):
        build([Record(n, timestamp, None, None) for n, timestamp in enumerate(timestamps)])


def test_producer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="does not fit"):
        build(sequence(1), producer_id=1, producer_epoch=2**15, base_sequence=0)


def test_batch_too_large_for_its_length_field_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # The true limit is 2 GiB, which a test should not fill.
    monkeypatch.setattr("millstream.records.batch_builder.MAX_BATCH_BYTES", 100)
    build([Record(0, 0, None, b"v" * 10)])
    with pytest.raises(MessageTooLarge) as caught:
        build([Record(0, 0, None, b"v" * 100)])
    assert caught.value.limit_bytes == 100


@pytest.mark.parametrize("codec", list(Codec))
def test_rebuilt_batch_keeps_its_place_and_the_records_chosen(codec: Codec) -> None:
    records = sequence(50, first=300)
    batch = build(
        records,
        base_offset=300,
        codec=codec,
        producer_id=9,
        producer_epoch=2,
        base_sequence=11,
        transactional=True,
    )
    header = validate(batch)
    body = body_of(batch, limit_bytes=LIMIT_BYTES)
    kept = bytes(number % 3 == 1 for number in range(header.records_count))
    rebuilt = rebuild(
        header,
        select(header, body, kept)[0],
        records_count=sum(kept),
        max_timestamp_ms=4_999,
        codec=codec,
    )
    after = validate(rebuilt)
    assert after == header._replace(
        batch_length=after.batch_length,
        crc=after.crc,
        max_timestamp_ms=4_999,
        records_count=sum(kept),
    )
    expected = [record for record in records if (record.offset - 300) % 3 == 1]
    assert list(records_of(rebuilt, limit_bytes=LIMIT_BYTES)) == expected


def test_rebuilt_batch_can_change_its_codec_and_keeps_other_attributes() -> None:
    batch = build(sequence(3), codec=Codec.GZIP, transactional=True, producer_id=1)
    stamp_append_time(batch, 8_000)
    header = validate(batch)
    body = body_of(batch, limit_bytes=LIMIT_BYTES)
    after = validate(
        rebuild(header, [body], records_count=3, max_timestamp_ms=8_000, codec=Codec.ZSTD)
    )
    assert after.codec is Codec.ZSTD
    assert after.is_transactional
    assert after.timestamp_type_append


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_rebuilt_with_nothing_left_keeps_its_offsets_and_sequence(codec: Codec) -> None:
    batch = build(sequence(5), codec=codec, producer_id=1, producer_epoch=0, base_sequence=3)
    header = validate(batch)
    emptied = rebuild(header, [], records_count=0, max_timestamp_ms=-1, codec=codec)
    after = validate(emptied)
    assert after.records_count == 0
    assert after.last_offset == header.last_offset
    assert after.last_sequence == header.last_sequence
    assert after.codec is Codec.NONE
    assert list(records_of(emptied, limit_bytes=0)) == []
