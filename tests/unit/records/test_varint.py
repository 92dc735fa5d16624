"""Zig-zag numbers of variable size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.errors import InvalidBatch
from millstream.records.varint import read_varint, read_varlong, write_varint, write_varlong

Reader = Callable[[bytes, int], tuple[int, int]]

# Worked out by hand from the definition.
KNOWN = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]
KNOWN_LONG = [
    *KNOWN,
    (2**31, "8080808010"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "encoded"), KNOWN)
def test_known_number_is_written_and_read_as_defined(value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded
    assert read_varint(bytes(out), 0) == (value, len(out))


@pytest.mark.parametrize(("value", "encoded"), KNOWN_LONG)
def test_known_long_number_is_written_and_read_as_defined(value: int, encoded: str) -> None:
    out = bytearray(b"before")
    write_varlong(out, value)
    assert out[6:].hex() == encoded
    assert read_varlong(bytes(out) + b"after", 6) == (value, len(out))


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**63])
def test_number_that_does_not_fit_is_not_written(value: int) -> None:
    out = bytearray()
    with pytest.raises(InvalidBatch, match="32 bits"):
        write_varint(out, value)
    assert not out


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_long_number_that_does_not_fit_is_not_written(value: int) -> None:
    with pytest.raises(InvalidBatch, match="64 bits"):
        write_varlong(bytearray(), value)


@pytest.mark.parametrize(
    ("read", "encoded"),
    [
        (read_varint, "808080808000"),
        (read_varint, "8080808010"),
        (read_varint, "ff" * 1000),
        (read_varlong, "8080808080808080808000"),
        (read_varlong, "80808080808080808002"),
        (read_varlong, "ff" * 1000),
    ],
)
def test_number_with_too_many_bits_is_refused(read: Reader, encoded: str) -> None:
    with pytest.raises(InvalidBatch, match="bits"):
        read(bytes.fromhex(encoded), 0)


def test_number_in_more_bytes_than_it_needs_is_read() -> None:
    assert read_varint(bytes.fromhex("8100"), 0) == (-1, 2)
    assert read_varlong(bytes.fromhex("82808000"), 0) == (1, 4)


@pytest.mark.parametrize("read", [read_varint, read_varlong])
def test_number_cut_short_raises_what_callers_expect(read: Reader) -> None:
    with pytest.raises(IndexError):
        read(b"\x80\x80", 0)
