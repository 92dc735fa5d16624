"""One record and its bytes."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidBatch
from millstream.records import Record
from millstream.records.record import decode_record, encode_record


def encoded(record: Record) -> bytes:
    out = bytearray()
    encode_record(out, record, base_offset=100, base_timestamp_ms=1_000)
    return bytes(out)


def decoded(data: bytes) -> Record:
    record, end = decode_record(data, 0, 100, 1_000)
    assert end == len(data)
    return record


def test_record_is_written_field_by_field_as_specified() -> None:
    record = Record(102, 1_001, b"k", b"value", (("h", b"x"), ("n", None)))
    assert encoded(record) == bytes(
        [
            # length 19, attributes, timestamp delta 1, offset delta 2
            *(38, 0, 2, 4),
            # key, value
            *(2, *b"k"),
            *(10, *b"value"),
            # two headers, the second one with no value
            *(4, 2, *b"h", 2, *b"x", 2, *b"n", 1),
        ]
    )


@pytest.mark.parametrize(
    "record",
    [
        Record(100, 1_000, None, None),
        Record(100, 1_000, b"", b""),
        Record(100, 1_000, None, b"", (("", None), ("", b""))),
        Record(100 + 2**31 - 1, 1_000, b"k", None),
        Record(100, -1, b"k", b"v"),
        Record(100, 2**62, b"k", b"v"),
        Record(100, 1_000, b"k" * 63, b"v" * 64),
        Record(100, 1_000, b"k" * 8191, b"v" * 70_000),
        Record(100, 1_000, None, None, tuple((f"h{n}", b"%d" % n) for n in range(300))),
        Record(100, 1_000, None, None, (("wasser-größe ✓", b"\xff"),)),
    ],
)
def test_written_record_reads_back_the_same(record: Record) -> None:
    assert decoded(encoded(record)) == record


def test_header_key_that_is_not_utf8_keeps_its_bytes() -> None:
    plain = encoded(Record(100, 1_000, None, None, (("??", None),)))
    data = plain.replace(b"??", b"\xff\xc3")
    record = decoded(data)
    assert record.headers[0][0].encode("utf-8", "surrogateescape") == b"\xff\xc3"
    assert encoded(record) == data


def test_header_key_that_is_not_text_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="header key"):
        encoded(Record(100, 1_000, None, None, (("\ud800", None),)))


def test_timestamp_past_64_bits_is_refused_on_reading() -> None:
    data = encoded(Record(100, 2**63 - 1, None, None))
    with pytest.raises(InvalidBatch, match="timestamp"):
        decode_record(data, 0, 100, 2_000)


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        ("negative length", [1, 0, 0, 0, 1, 1, 0]),
        ("key of negative length", [12, 0, 0, 0, 3, 1, 0]),
        ("value of negative length", [12, 0, 0, 0, 1, 3, 0]),
        ("-1 headers", [12, 0, 0, 0, 1, 1, 1]),
        ("header with no key", [16, 0, 0, 0, 1, 1, 2, 1, 1]),
        ("header value of negative length", [16, 0, 0, 0, 1, 1, 2, 0, 3]),
        ("ends at byte 7 where its length says 6", [10, 0, 0, 0, 1, 1, 0, 0]),
        ("ends at byte 7 where its length says 8", [14, 0, 0, 0, 1, 1, 0, 0]),
        ("32 bits", [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]),
        ("64 bits", [60, 0, *([0xFF] * 10), 0x01]),
    ],
)
def test_lying_field_is_refused(reason: str, data: list[int]) -> None:
    with pytest.raises(InvalidBatch, match=reason):
        decode_record(bytes(data), 0, 0, 0)


def test_record_cut_anywhere_raises_what_callers_expect() -> None:
    data = encoded(Record(101, 999, b"key", b"value", (("header", b"x"), ("null", None))))
    for size_bytes in range(len(data)):
        with pytest.raises((IndexError, InvalidBatch)):
            decode_record(data[:size_bytes], 0, 100, 1_000)
