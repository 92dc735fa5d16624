"""One behaviour for the machine's own filesystem, the one in memory and the fake; real locks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.errors import DirectoryLocked, NotFound
from millstream.storage.filesystem import (
    File,
    Filesystem,
    LocalFilesystem,
    read_whole,
    write_atomically,
)
from millstream.storage.memory_filesystem import MemoryFilesystem
from tests.fakes.child_process import ChildProcess
from tests.fakes.fake_filesystem import FakeFilesystem

FILESYSTEMS: dict[str, Callable[[], Filesystem]] = {
    "local": LocalFilesystem,
    "memory": MemoryFilesystem,
    "fake": FakeFilesystem,
}


@pytest.fixture(params=FILESYSTEMS)
def filesystem(request: pytest.FixtureRequest) -> Filesystem:
    return FILESYSTEMS[request.param]()


@pytest.fixture
def base(filesystem: Filesystem, tmp_path: Path) -> str:
    """A directory to work in."""
    path = str(tmp_path / "base")
    filesystem.make_directory(path)
    return path


@pytest.fixture
def file(filesystem: Filesystem, base: str) -> File:
    return filesystem.open(f"{base}/file", create=True)


# --- files


def test_new_file_is_empty(file: File, base: str) -> None:
    assert file.path == f"{base}/file"
    assert file.size() == 0
    assert file.read(0, 10) == b""
    assert len(file.map()) == 0


def test_room_that_was_never_written_to_is_known(file: File) -> None:
    assert file.written_end() == 0
    file.resize(16 << 20)
    assert file.written_end() <= file.size()
    file.write([b"x"], 0)
    file.write([b"y"], 5 << 20)
    end = file.written_end()
    assert (5 << 20) < end <= file.size()
    assert file.read(end, 16 << 20).strip(b"\0") == b""
    file.resize(100)
    assert 0 < file.written_end() <= 100


def test_parts_are_written_one_after_the_other(file: File) -> None:
    file.write([b"ab", bytearray(b"cd"), memoryview(b"ef"), b""], 3)
    assert file.size() == 9
    assert file.read(0, 100) == b"\0\0\0abcdef"


def test_more_parts_than_the_kernel_takes_at_once_are_written(file: File) -> None:
    parts = [b"%05d" % n for n in range(3000)]
    file.write(parts, 0)
    assert file.read(0, file.size()) == b"".join(parts)


def test_writing_nothing_changes_nothing(file: File) -> None:
    file.write([], 100)
    file.write([b""], 100)
    assert file.size() == 0


def test_read_stops_at_the_end(file: File) -> None:
    file.write([b"content"], 0)
    assert file.read(3, 2) == b"te"
    assert file.read(3, 100) == b"tent"
    assert file.read(7, 100) == b""
    assert file.read(70, 100) == b""


def test_extended_file_reads_as_zeros(file: File) -> None:
    file.write([b"abc"], 0)
    file.resize(6)
    assert file.read(0, 10) == b"abc\0\0\0"


def test_cut_bytes_do_not_come_back(file: File) -> None:
    file.write([b"abcdef"], 0)
    file.resize(2)
    assert file.read(0, 10) == b"ab"
    file.resize(5)
    assert file.read(0, 10) == b"ab\0\0\0"


def test_view_has_the_size_of_its_moment_and_shows_later_writes(file: File) -> None:
    file.write([b"abc"], 0)
    view = file.map()
    file.write([b"XYZW"], 1)
    assert bytes(view) == b"aXY"
    assert bytes(file.map()) == b"aXYZW"


def test_view_is_read_only(file: File) -> None:
    file.write([b"abc"], 0)
    with pytest.raises(TypeError):
        file.map()[0] = 1


def test_view_outlives_handle_and_name(filesystem: Filesystem, file: File, base: str) -> None:
    file.write([b"abc"], 0)
    view = file.map()
    other = filesystem.open(f"{base}/file")
    file.close()
    filesystem.rename(f"{base}/file", f"{base}/moved")
    other.write([b"X"], 0)
    other.close()
    filesystem.remove(f"{base}/moved")
    assert bytes(view) == b"Xbc"


def test_handles_of_one_file_see_each_other(filesystem: Filesystem, file: File, base: str) -> None:
    other = filesystem.open_for_reading(f"{base}/file")
    file.write([b"abc"], 0)
    assert other.size() == 3
    assert other.read(0, 3) == bytes(other.map()) == b"abc"


def test_handle_for_reading_refuses_to_write(filesystem: Filesystem, file: File, base: str) -> None:
    reader = filesystem.open_for_reading(f"{base}/file")
    with pytest.raises(OSError, match="Bad file descriptor"):
        reader.write([b"a"], 0)


def test_file_is_synced_and_closed_twice(file: File) -> None:
    file.write([b"abc"], 0)
    file.sync()
    file.close()
    file.close()


def test_closed_file_refuses_everything(file: File) -> None:
    file.close()
    for use in (
        file.size,
        file.sync,
        file.map,
        lambda: file.read(0, 1),
        lambda: file.resize(1),
        lambda: file.write([b"a"], 0),
    ):
        with pytest.raises((OSError, ValueError), match="file descriptor"):
            use()


def test_opening_an_existing_file_keeps_its_content(
    filesystem: Filesystem, file: File, base: str
) -> None:
    file.write([b"abc"], 0)
    assert filesystem.open(f"{base}/file", create=True).size() == 3


@pytest.mark.parametrize("path", ["absent", "absent/file"])
def test_absent_file_is_not_found(filesystem: Filesystem, base: str, path: str) -> None:
    for open_file in (filesystem.open, filesystem.open_for_reading):
        with pytest.raises(NotFound) as failure:
            open_file(f"{base}/{path}")
        assert failure.value.name == f"{base}/{path}"


def test_file_in_an_absent_directory_is_not_created(filesystem: Filesystem, base: str) -> None:
    with pytest.raises(FileNotFoundError):
        filesystem.open(f"{base}/absent/file", create=True)


# --- names


def test_listing_tells_files_from_directories(
    filesystem: Filesystem, file: File, base: str
) -> None:
    file.write([b"abc"], 0)
    filesystem.make_directory(f"{base}/sub/deeper")
    filesystem.make_directory(f"{base}/another")
    assert filesystem.sizes(base) == {"file": 3}
    assert filesystem.directories(base) == ["another", "sub"]
    assert filesystem.directories(f"{base}/sub") == ["deeper"]


def test_absent_directory_lists_as_empty(filesystem: Filesystem, base: str) -> None:
    assert filesystem.sizes(f"{base}/absent") == {}
    assert filesystem.directories(f"{base}/absent/er") == []


def test_directory_is_made_twice(filesystem: Filesystem, base: str) -> None:
    filesystem.make_directory(f"{base}/sub")
    filesystem.open(f"{base}/sub/file", create=True)
    filesystem.make_directory(f"{base}/sub")
    assert filesystem.sizes(f"{base}/sub") == {"file": 0}


def test_rename_replaces_the_target(filesystem: Filesystem, file: File, base: str) -> None:
    file.write([b"abc"], 0)
    filesystem.open(f"{base}/target", create=True).write([b"previous"], 0)
    filesystem.rename(f"{base}/file", f"{base}/target")
    assert filesystem.sizes(base) == {"target": 3}


def test_rename_to_itself_changes_nothing(filesystem: Filesystem, file: File, base: str) -> None:
    filesystem.rename(f"{base}/file", f"{base}/file")
    assert filesystem.sizes(base) == {"file": 0}


def test_renamed_directory_keeps_its_files(filesystem: Filesystem, base: str) -> None:
    filesystem.make_directory(f"{base}/sub")
    filesystem.open(f"{base}/sub/file", create=True)
    filesystem.rename(f"{base}/sub", f"{base}/moved")
    assert filesystem.directories(base) == ["moved"]
    assert filesystem.sizes(f"{base}/moved") == {"file": 0}


def test_rename_of_an_absent_file_fails(filesystem: Filesystem, base: str) -> None:
    with pytest.raises(FileNotFoundError):
        filesystem.rename(f"{base}/absent", f"{base}/target")


def test_removed_file_is_gone_and_may_be_removed_again(
    filesystem: Filesystem, file: File, base: str
) -> None:
    file.write([b"abc"], 0)
    filesystem.remove(f"{base}/file")
    filesystem.remove(f"{base}/file")
    assert filesystem.sizes(base) == {}
    assert file.read(0, 3) == b"abc"


def test_removed_name_is_free_for_a_new_file(filesystem: Filesystem, file: File, base: str) -> None:
    file.write([b"abc"], 0)
    filesystem.remove(f"{base}/file")
    assert filesystem.open(f"{base}/file", create=True).size() == 0


def test_directory_is_removed_only_when_empty(filesystem: Filesystem, base: str) -> None:
    filesystem.make_directory(f"{base}/sub")
    filesystem.open(f"{base}/sub/file", create=True)
    with pytest.raises(OSError, match="not empty"):
        filesystem.remove_directory(f"{base}/sub")
    filesystem.remove(f"{base}/sub/file")
    filesystem.remove_directory(f"{base}/sub")
    filesystem.remove_directory(f"{base}/sub")
    assert filesystem.directories(base) == []


def test_directory_is_synced(filesystem: Filesystem, base: str) -> None:
    filesystem.sync_directory(base)
    with pytest.raises(FileNotFoundError):
        filesystem.sync_directory(f"{base}/absent")


def test_atomic_write_replaces_and_leaves_nothing_behind(filesystem: Filesystem, base: str) -> None:
    path = f"{base}/small"
    assert read_whole(filesystem, path) is None
    write_atomically(filesystem, path, b"a longer first content")
    write_atomically(filesystem, path, b"second")
    assert read_whole(filesystem, path) == b"second"
    assert filesystem.sizes(base) == {"small": 6}


# --- locks


def test_second_lock_is_refused_and_names_the_holder(filesystem: Filesystem, base: str) -> None:
    lock = filesystem.lock(f"{base}/lock", "process 41 on mill")
    with pytest.raises(DirectoryLocked) as failure:
        filesystem.lock(f"{base}/lock", "process 42 on mill")
    assert failure.value.path == base
    assert failure.value.holder == "process 41 on mill"
    lock.release()


def test_released_lock_is_free(filesystem: Filesystem, base: str) -> None:
    first = filesystem.lock(f"{base}/lock", "a process with a long name")
    first.release()
    second = filesystem.lock(f"{base}/lock", "b")
    first.release()
    with pytest.raises(DirectoryLocked) as failure:
        filesystem.lock(f"{base}/lock", "c")
    assert failure.value.holder == "b"
    second.release()


HOLD_LOCK = """
import sys
from millstream.storage.filesystem import LocalFilesystem
lock = LocalFilesystem().lock(sys.argv[1], "the other process")
print("held", flush=True)
sys.stdin.read()
"""


def test_lock_of_another_process_holds_until_that_is_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with ChildProcess.python("-c", HOLD_LOCK, path) as holder:
        assert holder.next_line() == "held"
        with pytest.raises(DirectoryLocked) as failure:
            LocalFilesystem().lock(path, "this process")
        assert failure.value.holder == "the other process"
        assert str(tmp_path) in str(failure.value)
        holder.kill()
    lock = LocalFilesystem().lock(path, "this process")
    assert Path(path).read_text() == "this process\n"
    lock.release()
