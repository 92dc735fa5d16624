"""CRC-32C over every kind of buffer that the log holds."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from millstream.records import crc32c

DATA = b"123456789"
# The check value that the CRC catalogues give for this input.
CHECK = 0xE3069283


@pytest.mark.parametrize(
    "buffer",
    [DATA, bytearray(DATA), memoryview(DATA), memoryview(bytearray(DATA)).toreadonly()],
    ids=["bytes", "bytearray", "memoryview", "read-only memoryview"],
)
def test_any_buffer_gives_the_published_check_value(
    buffer: bytes | bytearray | memoryview,
) -> None:
    assert crc32c(buffer) == CHECK


def test_slice_of_a_read_only_map_gives_the_published_check_value(tmp_path: Path) -> None:
    path = tmp_path / "mapped"
    path.write_bytes(b"--" + DATA + b"--")
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
        view[2:-2] as middle,
    ):
        assert crc32c(middle) == CHECK


def test_empty_buffer_gives_zero() -> None:
    assert crc32c(b"") == 0
