"""A file with a hole ahead of its writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.growing_file import GrowingFile
from tests.fakes.fake_filesystem import FakeFilesystem

STEP_BYTES = 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.fixture
def file(path: Path) -> Iterator[GrowingFile]:
    file = GrowingFile(LocalFilesystem().open(str(path), create=True), 0, STEP_BYTES)
    yield file
    file.close()


def test_parts_are_appended_one_after_the_other(file: GrowingFile, path: Path) -> None:
    file.append([b"abc", bytearray(b"de")], 5)
    file.append([memoryview(b"f")], 1)
    assert file.size == 6
    assert path.read_bytes()[:6] == b"abcdef"


def test_file_grows_in_steps_with_zeros_ahead(file: GrowingFile, path: Path) -> None:
    file.append([b"x" * 10], 10)
    assert path.read_bytes() == b"x" * 10 + bytes(990)
    file.append([b"y" * 990], 990)
    assert path.stat().st_size == 1000
    file.append([b"z" * 1500], 1500)
    assert path.stat().st_size == 3000


def test_hole_takes_no_space(path: Path) -> None:
    file = GrowingFile(LocalFilesystem().open(str(path), create=True), 0, 16 << 20)
    file.append([b"x"], 1)
    assert path.stat().st_size == 16 << 20
    assert path.stat().st_blocks * 512 <= 1 << 20
    file.close()


def test_view_made_once_shows_later_appends(file: GrowingFile) -> None:
    file.append([b"first"], 5)
    view = file.view()
    file.append([b"second"], 6)
    assert file.view() is view
    assert bytes(view[: file.size]) == b"firstsecond"


def test_view_grows_with_the_file_and_the_old_one_stays(file: GrowingFile) -> None:
    file.append([b"a" * 900], 900)
    old = file.view()
    file.append([b"b" * 900], 900)
    assert bytes(file.view()[: file.size]) == b"a" * 900 + b"b" * 900
    assert bytes(old[:900]) == b"a" * 900


def test_cut_ends_the_file_where_the_writing_ended(file: GrowingFile, path: Path) -> None:
    file.append([b"abc"], 3)
    file.cut()
    assert path.read_bytes() == b"abc"
    file.append([b"def"], 3)
    assert bytes(file.view()[:6]) == b"abcdef"


def test_file_goes_on_at_its_size_not_at_its_end(path: Path) -> None:
    path.write_bytes(b"abcdefgh")
    file = GrowingFile(LocalFilesystem().open(str(path)), 3, STEP_BYTES)
    file.append([b"XY"], 2)
    assert path.read_bytes() == b"abcXYfgh"
    file.close()


def test_views_outlive_the_file(file: GrowingFile, path: Path) -> None:
    file.append([b"abc"], 3)
    view = file.view()
    file.close()
    path.unlink()
    assert bytes(view[:3]) == b"abc"


def test_append_that_finds_no_space_leaves_no_trace() -> None:
    disk = FakeFilesystem(space_bytes=4096)
    disk.make_directory("/data")
    handle = disk.open("/data/file", create=True)
    file = GrowingFile(handle, 0, STEP_BYTES)
    file.append([b"abc"], 3)
    with pytest.raises(OSError, match="No space"):
        file.append([b"x" * 2000, b"y" * 4000], 6000)
    assert file.size == 3
    assert handle.read(0, handle.size()) == b"abc"
    file.append([b"def"], 3)
    assert handle.read(0, 6) == b"abcdef"
