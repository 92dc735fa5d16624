"""The fake disk loses what a real one may lose, and nothing else."""

from __future__ import annotations

import errno

import pytest

from millstream.errors import NotFound
from millstream.storage.filesystem import Filesystem, read_whole, write_atomically
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFile, FakeFilesystem

SEEDS = range(200)
MODES: tuple[CrashMode, ...] = ("kept", "lost", "torn")
MOMENTS: tuple[CrashMoment, ...] = ("before", "halfway", "after")


def disk_with_file(content: bytes = b"") -> tuple[FakeFilesystem, FakeFile]:
    """A disk with /d/f, whose name and content are durable."""
    disk = FakeFilesystem()
    disk.make_directory("/d")
    file = disk.open("/d/f", create=True)
    file.write([content], 0)
    file.sync()
    disk.sync_directory("/d")
    return disk, file


def found(disk: FakeFilesystem, mode: CrashMode, seed: int = 0, path: str = "/d/f") -> bytes | None:
    return read_whole(disk.after_crash(mode, seed), path)


def test_fake_is_a_filesystem() -> None:
    filesystem: Filesystem = FakeFilesystem()
    assert isinstance(filesystem, Filesystem)


# --- bytes after a crash


def test_synced_bytes_survive_everything() -> None:
    disk, file = disk_with_file(b"one")
    file.write([b"two"], 3)
    file.sync()
    for mode in MODES:
        assert found(disk, mode) == b"onetwo"


def test_unsynced_bytes_are_kept_by_a_process_crash_and_lost_with_the_power() -> None:
    disk, file = disk_with_file(b"one")
    file.write([b"two"], 3)
    assert found(disk, "kept") == b"onetwo"
    assert found(disk, "lost") == b"one"


def test_unsynced_overwrite_is_lost_with_the_power() -> None:
    disk, file = disk_with_file(b"old")
    file.write([b"new"], 0)
    assert found(disk, "lost") == b"old"


def test_unsynced_cut_is_lost_with_the_power() -> None:
    disk, file = disk_with_file(b"content")
    file.resize(3)
    assert found(disk, "kept") == b"con"
    assert found(disk, "lost") == b"content"


def test_what_a_process_crash_kept_is_still_unsynced() -> None:
    disk, file = disk_with_file(b"one")
    file.write([b"two"], 3)
    disk.remove("/d/g")
    disk.open("/d/g", create=True)
    kept = disk.after_crash("kept")
    assert sorted(kept.sizes("/d")) == ["f", "g"]
    assert found(kept, "lost") == b"one"
    assert found(kept, "lost", path="/d/g") is None
    kept.open("/d/f").sync()
    kept.sync_directory("/d")
    assert found(kept, "lost") == b"onetwo"
    assert found(kept, "lost", path="/d/g") == b""


def test_torn_write_loses_any_sectors_and_only_whole_ones() -> None:
    disk, file = disk_with_file(b"a" * 2048)
    file.write([b"b" * 2048], 0)
    outcomes = {found(disk, "torn", seed) for seed in SEEDS}
    assert all(outcome is not None and len(outcome) == 2048 for outcome in outcomes)
    sectors = {tuple(outcome[at] for at in range(0, 2048, 512)) for outcome in outcomes if outcome}
    assert len(sectors) == 16
    assert all(
        outcome[at : at + 512] in (b"a" * 512, b"b" * 512)
        for outcome in outcomes
        if outcome
        for at in range(0, 2048, 512)
    )


def test_torn_writes_survive_independently() -> None:
    disk, file = disk_with_file(bytes(1024))
    file.write([b"1" * 512], 0)
    file.write([b"2" * 512], 512)
    outcomes = {found(disk, "torn", seed) for seed in SEEDS}
    assert len(outcomes) == 4


def test_torn_append_ends_anywhere_with_zeros_where_a_sector_is_missing() -> None:
    disk, file = disk_with_file(b"a" * 100)
    file.write([b"b" * 1000], 100)
    outcomes = [found(disk, "torn", seed) or b"" for seed in SEEDS]
    sizes = {len(outcome) for outcome in outcomes}
    assert min(sizes) == 100
    assert max(sizes) == 1100
    assert len(sizes) > 20
    assert all(outcome[:100] == b"a" * 100 for outcome in outcomes)
    assert all(set(outcome[100:]) <= {0, ord("b")} for outcome in outcomes)
    assert any(set(outcome[100:]) == {0, ord("b")} for outcome in outcomes)


def test_torn_cut_leaves_a_size_between() -> None:
    disk, file = disk_with_file(b"a" * 100)
    file.resize(50)
    sizes = {len(found(disk, "torn", seed) or b"") for seed in SEEDS}
    assert {50, 100} < sizes
    assert min(sizes) == 50


def test_same_seed_finds_the_same_disk() -> None:
    disk, file = disk_with_file()
    for n in range(20):
        file.write([bytes([n]) * 300], n * 300)
    assert found(disk, "torn", 5) == found(disk, "torn", 5)
    assert found(disk, "torn", 5) != found(disk, "torn", 6)


# --- names after a crash


def test_unsynced_create_is_lost_even_when_its_bytes_were_synced() -> None:
    disk, _ = disk_with_file()
    file = disk.open("/d/g", create=True)
    file.write([b"content"], 0)
    file.sync()
    assert found(disk, "kept", path="/d/g") == b"content"
    assert found(disk, "lost", path="/d/g") is None
    disk.sync_directory("/d")
    assert found(disk, "lost", path="/d/g") == b"content"


def test_synced_name_of_an_unsynced_file_leads_to_an_empty_file() -> None:
    disk, _ = disk_with_file()
    disk.open("/d/g", create=True).write([b"content"], 0)
    disk.sync_directory("/d")
    assert found(disk, "lost", path="/d/g") == b""


def test_unsynced_remove_brings_the_file_back() -> None:
    disk, _ = disk_with_file(b"content")
    disk.remove("/d/f")
    assert found(disk, "kept") is None
    assert found(disk, "lost") == b"content"
    disk.sync_directory("/d")
    assert found(disk, "lost") is None


def test_unsynced_rename_is_undone_and_brings_the_target_back() -> None:
    disk, _ = disk_with_file(b"old")
    file = disk.open("/d/new", create=True)
    file.write([b"new"], 0)
    file.sync()
    disk.sync_directory("/d")
    disk.rename("/d/new", "/d/f")
    lost = disk.after_crash("lost")
    assert read_whole(lost, "/d/f") == b"old"
    assert read_whole(lost, "/d/new") == b"new"


def test_torn_names_survive_in_order() -> None:
    disk, _ = disk_with_file()
    for name in ("a", "b", "c"):
        disk.open(f"/d/{name}", create=True)
    disk.remove("/d/f")
    outcomes = {frozenset(disk.after_crash("torn", seed).sizes("/d")) for seed in SEEDS}
    assert outcomes == {
        frozenset("f"),
        frozenset("fa"),
        frozenset("fab"),
        frozenset("fabc"),
        frozenset("abc"),
    }


def test_torn_rename_leaves_one_of_both_names() -> None:
    disk, _ = disk_with_file(b"content")
    disk.rename("/d/f", "/d/g")
    outcomes = {tuple(disk.after_crash("torn", seed).sizes("/d")) for seed in SEEDS}
    assert outcomes == {("f",), ("g",)}


def test_torn_rename_to_another_directory_leaves_one_of_both_names() -> None:
    disk, _ = disk_with_file(b"content")
    disk.make_directory("/e")
    disk.rename("/d/f", "/e/f")
    outcomes = set()
    for seed in SEEDS:
        torn = disk.after_crash("torn", seed)
        outcomes.add((*torn.sizes("/d"), "|", *torn.sizes("/e")))
    assert outcomes == {("f", "|"), ("|", "f")}


def test_sync_of_one_directory_says_nothing_of_another() -> None:
    disk = FakeFilesystem()
    disk.make_directory("/d")
    disk.make_directory("/e")
    disk.open("/d/f", create=True)
    disk.open("/e/f", create=True)
    disk.sync_directory("/d")
    lost = disk.after_crash("lost")
    assert lost.sizes("/d") == {"f": 0}
    assert lost.sizes("/e") == {}


def test_renamed_directory_takes_its_files_along() -> None:
    disk, _ = disk_with_file(b"content")
    disk.rename("/d", "/e")
    assert found(disk, "lost") == b"content"
    disk.sync_directory("/")
    assert found(disk, "lost") is None
    assert found(disk, "lost", path="/e/f") == b"content"


def test_made_directory_is_durable() -> None:
    disk = FakeFilesystem()
    disk.make_directory("/a/b/c")
    assert disk.after_crash("lost").directories("/a/b") == ["c"]


# --- crashes


def replace(disk: FakeFilesystem) -> None:
    write_atomically(disk, "/d/f", b"new")


def test_operations_are_counted_and_named() -> None:
    disk, _ = disk_with_file(b"old")
    del disk.operations[:]
    replace(disk)
    assert disk.operations == [
        "create /d/f.tmp",
        "resize /d/f.tmp to 0",
        "write /d/f.tmp 3 bytes at 0",
        "sync /d/f.tmp",
        "rename /d/f.tmp -> /d/f",
        "sync_directory /d",
    ]


def test_reading_is_not_counted() -> None:
    disk, file = disk_with_file(b"old")
    count = disk.operation_count
    assert file.read(0, 3) == bytes(file.map()) == b"old"
    disk.open("/d/f", create=True).close()
    disk.remove("/d/absent")
    assert disk.operation_count == count


@pytest.mark.parametrize(("moment", "expected"), [("before", b"old"), ("after", b"new")])
def test_crash_leaves_an_operation_out_or_in(moment: CrashMoment, expected: bytes) -> None:
    disk, file = disk_with_file(b"old")
    number = disk.operation_count + 1
    disk.crash_at(number, moment)
    with pytest.raises(Crash, match=f"{moment} operation {number}: write /d/f 3 bytes at 0"):
        file.write([b"new"], 0)
    assert found(disk, "kept") == expected


def test_crash_half_way_tears_a_write() -> None:
    disk, file = disk_with_file(b"....")
    disk.crash_at(disk.operation_count + 1, "halfway")
    with pytest.raises(Crash):
        file.write([b"ab", b"cd"], 0)
    assert found(disk, "kept") == b"ab.."


def test_nothing_works_after_a_crash_but_closing() -> None:
    disk, file = disk_with_file(b"old")
    disk.crash_at(disk.operation_count + 1, "before")
    with pytest.raises(Crash):
        file.sync()
    for operation in (
        file.sync,
        file.size,
        file.map,
        lambda: file.read(0, 1),
        lambda: disk.open("/d/f"),
        lambda: disk.sizes("/d"),
        lambda: disk.rename("/d/f", "/d/g"),
    ):
        with pytest.raises(Crash):
            operation()
    file.close()
    assert found(disk, "lost") == b"old"


def test_atomic_replacement_is_atomic_whatever_the_moment_of_the_crash() -> None:
    seen = set()
    for operation in range(1, 7):
        for moment in MOMENTS:
            for mode in MODES:
                for seed in range(20):
                    disk, _ = disk_with_file(b"old")
                    disk.crash_at(disk.operation_count + operation, moment)
                    with pytest.raises(Crash):
                        replace(disk)
                    seen.add(found(disk, mode, seed))
    assert seen == {b"old", b"new"}


def test_replacement_without_a_sync_is_caught() -> None:
    """The fake must be able to lose data, or the tests on it prove nothing."""
    disk, _ = disk_with_file(b"old")
    file = disk.open("/d/f.tmp", create=True)
    file.write([b"new"], 0)
    disk.rename("/d/f.tmp", "/d/f")
    disk.sync_directory("/d")
    assert found(disk, "lost") == b""


def test_locks_vanish_with_the_process() -> None:
    disk, _ = disk_with_file()
    disk.lock("/d/lock", "process 1")
    disk.after_crash("kept").lock("/d/lock", "process 2")


# --- failing disks


def test_full_disk_takes_what_fits_and_then_fails() -> None:
    disk, file = disk_with_file()
    disk.space_bytes = 1024
    with pytest.raises(OSError, match="No space") as failure:
        file.write([b"a" * 2000], 0)
    assert failure.value.errno == errno.ENOSPC
    assert file.read(0, 2000) == b"a" * 1024
    file.write([b"b" * 1024], 0)
    with pytest.raises(OSError, match="No space"):
        file.write([b"b"], 1024)


def test_holes_take_no_space_until_written() -> None:
    disk, file = disk_with_file()
    disk.space_bytes = 512
    file.resize(100_000)
    file.write([b"a"], 50_000)
    with pytest.raises(OSError, match="No space"):
        file.write([b"a"], 80_000)
    assert file.size() == 100_000


@pytest.mark.parametrize("how", ["cut", "remove", "replace"])
def test_space_returns(how: str) -> None:
    disk, file = disk_with_file(b"a" * 5000)
    assert disk.used_bytes == 5120
    match how:
        case "cut":
            file.resize(0)
        case "remove":
            disk.remove("/d/f")
            assert disk.used_bytes == 5120, "an open file keeps its space"
            file.close()
        case "replace":
            file.close()
            disk.open("/d/g", create=True)
            disk.rename("/d/g", "/d/f")
    assert disk.used_bytes == 0


def test_failed_sync_gives_up_the_bytes_and_the_next_one_lies() -> None:
    disk, file = disk_with_file(b"old")
    disk.fail_sync("*/f")
    file.write([b"new"], 0)
    with pytest.raises(OSError, match="Input/output") as failure:
        file.sync()
    assert failure.value.errno == errno.EIO
    file.sync()
    assert file.read(0, 3) == b"new"
    assert found(disk, "lost") == b"old"
    assert found(disk, "torn") == b"old"


def test_chosen_syncs_fail() -> None:
    disk, file = disk_with_file()
    other = disk.open("/d/other", create=True)
    disk.fail_sync("/d/f", count=2, spared=1)
    file.sync()
    other.sync()
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    file.sync()


def test_failed_directory_sync_gives_up_the_names() -> None:
    disk, _ = disk_with_file()
    disk.open("/d/g", create=True)
    disk.fail_sync("/d")
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_directory("/d")
    disk.sync_directory("/d")
    assert sorted(disk.sizes("/d")) == ["f", "g"]
    assert list(disk.after_crash("lost").sizes("/d")) == ["f"]


# --- damage


def test_flipped_bit_is_on_the_disk_and_in_every_view() -> None:
    disk, file = disk_with_file(b"content")
    view = file.map()
    disk.flip("/d/f", 3, 0)
    assert bytes(view) == b"conuent"
    assert found(disk, "lost") == b"conuent"


def test_damage_leaves_unsynced_writes_unsynced() -> None:
    disk, file = disk_with_file(b"content")
    file.write([b"!"], 7)
    disk.flip("/d/f", 0, 0)
    assert found(disk, "kept") == b"bontent!"
    assert found(disk, "lost") == b"bontent"


def test_cut_file_is_shorter_on_the_disk() -> None:
    disk, _ = disk_with_file(b"content")
    disk.cut("/d/f", 3)
    assert found(disk, "kept") == found(disk, "lost") == b"con"


def test_damage_to_an_absent_file_is_a_mistake_of_the_test() -> None:
    disk, _ = disk_with_file()
    with pytest.raises(FileNotFoundError):
        disk.flip("/d/absent", 0, 0)
    with pytest.raises(NotFound):
        disk.open("/d/absent")
