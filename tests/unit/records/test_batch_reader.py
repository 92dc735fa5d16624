"""What is inside a batch: records, bodies and raw slices."""

from __future__ import annotations

import struct

import pytest

from millstream.errors import InvalidBatch, MessageTooLarge, UnsupportedCodec
from millstream.records import Codec, Record, body_of, build, records_of
from millstream.records.batch import HEADER_BYTES

LIMIT_BYTES = 1 << 20
RECORDS = [
    Record(0, 1_000, b"a", b"first"),
    Record(1, 90_000, None, b""),
    Record(2, -5, b"", None, (("h", b"x"),)),
    Record(70, 1_000, b"k" * 100, b"v" * 10_000, (("h", None), ("h", b""))),
    Record(20_000, 1_000 + 2**40, b"last", b"value"),
]


def patched(batch: bytearray, position: int, layout: str, value: int) -> bytearray:
    struct.pack_into(layout, batch, position, value)
    return batch


def test_body_of_a_plain_batch_is_what_follows_its_header() -> None:
    batch = build(RECORDS)
    assert body_of(batch, limit_bytes=LIMIT_BYTES) == batch[HEADER_BYTES:]


@pytest.mark.parametrize("codec", list(Codec))
def test_body_over_the_limit_is_refused_and_one_at_the_limit_is_not(codec: Codec) -> None:
    batch = build(RECORDS, codec=codec)
    size_bytes = len(body_of(batch, limit_bytes=LIMIT_BYTES))
    assert len(body_of(batch, limit_bytes=size_bytes)) == size_bytes
    assert len(list(records_of(batch, limit_bytes=size_bytes))) == len(RECORDS)
    with pytest.raises(MessageTooLarge) as caught:
        body_of(batch, limit_bytes=size_bytes - 1)
    assert caught.value.limit_bytes == size_bytes - 1
    with pytest.raises(MessageTooLarge):
        next(records_of(batch, limit_bytes=size_bytes - 1))


def test_unknown_codec_is_refused() -> None:
    batch = patched(build(RECORDS), 21, ">h", 6)
    with pytest.raises(UnsupportedCodec):
        body_of(batch, limit_bytes=LIMIT_BYTES)
    with pytest.raises(UnsupportedCodec):
        next(records_of(batch, limit_bytes=LIMIT_BYTES))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(("count", "reason"), [(4, "after its last"), (6, "cut short")])
def test_count_that_does_not_match_the_body_is_refused(
    codec: Codec, count: int, reason: str
) -> None:
    batch = patched(build(RECORDS, codec=codec), 57, ">i", count)
    with pytest.raises(InvalidBatch, match=reason):
        list(records_of(batch, limit_bytes=LIMIT_BYTES))


def test_negative_count_with_a_body_is_refused() -> None:
    batch = patched(build(RECORDS), 57, ">i", -1)
    with pytest.raises(InvalidBatch, match="after its last"):
        list(records_of(batch, limit_bytes=LIMIT_BYTES))


def test_count_of_two_billion_ends_at_the_end_of_the_body() -> None:
    batch = patched(build(RECORDS), 57, ">i", 2**31 - 1)
    with pytest.raises(InvalidBatch, match="cut short"):
        list(records_of(batch, limit_bytes=LIMIT_BYTES))


def test_offset_past_the_last_one_of_the_batch_is_refused() -> None:
    batch = patched(build(RECORDS), 23, ">i", 19_999)
    with pytest.raises(InvalidBatch, match="offset 20000"):
        list(records_of(batch, limit_bytes=LIMIT_BYTES))


@pytest.mark.parametrize("deltas", [(0, 0), (2, 1), (-1, 0)])
def test_offsets_that_do_not_grow_are_refused(deltas: tuple[int, int]) -> None:
    body = b"".join(bytes([12, 0, 0, (delta << 1) ^ (delta >> 7), 1, 1, 0]) for delta in deltas)
    batch = patched(build(RECORDS[:1])[:HEADER_BYTES] + body, 57, ">i", 2)
    patched(batch, 23, ">i", 5)
    with pytest.raises(InvalidBatch, match="offset"):
        list(records_of(batch, limit_bytes=LIMIT_BYTES))


def test_null_value_in_more_bytes_than_it_needs_is_still_null() -> None:
    body = bytes([14, 0, 0, 0, 1, 0x81, 0, 0])
    batch = build([Record(0, 7, None, None)])[:HEADER_BYTES] + body
    assert list(records_of(batch, limit_bytes=LIMIT_BYTES)) == [Record(0, 7, None, None)]
