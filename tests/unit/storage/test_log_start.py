"""The file that remembers where a log begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import CorruptData
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.log_start import read_log_start, write_log_start

NAME = "log-start-offset"


def test_log_without_the_file_begins_with_its_first_segment(tmp_path: Path) -> None:
    assert read_log_start(LocalFilesystem(), str(tmp_path)) == 0


@pytest.mark.parametrize("offset", [0, 1, 513, 2**62])
def test_offset_is_read_back(tmp_path: Path, offset: int) -> None:
    write_log_start(LocalFilesystem(), str(tmp_path), 7)
    write_log_start(LocalFilesystem(), str(tmp_path), offset)
    assert read_log_start(LocalFilesystem(), str(tmp_path)) == offset
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_file_is_12_bytes_big_endian(tmp_path: Path) -> None:
    write_log_start(LocalFilesystem(), str(tmp_path), 1000)
    assert (tmp_path / NAME).read_bytes().hex() == "00000000000003e8d126eac6"


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("position", range(12))
def test_flipped_bit_is_reported(tmp_path: Path, position: int, bit: int) -> None:
    write_log_start(LocalFilesystem(), str(tmp_path), 1000)
    content = bytearray((tmp_path / NAME).read_bytes())
    content[position] ^= 1 << bit
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(CorruptData) as damage:
        read_log_start(LocalFilesystem(), str(tmp_path))
    assert damage.value.path == str(tmp_path / NAME)


@pytest.mark.parametrize("size", [0, 8, 11, 13])
def test_file_of_another_size_is_reported(tmp_path: Path, size: int) -> None:
    write_log_start(LocalFilesystem(), str(tmp_path), 1000)
    content = (tmp_path / NAME).read_bytes() + b"\0"
    (tmp_path / NAME).write_bytes(content[:size])
    with pytest.raises(CorruptData):
        read_log_start(LocalFilesystem(), str(tmp_path))
