"""Compaction of damaged logs, on failing disks, and in processes that end too early."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from millstream.errors import CorruptData, StorageFailure
from millstream.records.batch import HEADER_BYTES, seal
from millstream.storage.compaction import abandon, install
from millstream.storage.compaction_plan import CompactionCancelled
from millstream.storage.recovery import LogCheckpoint
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.keyed_log import DELETE_RETENTION_MS, KeyedLog, Pair, keyed_batch
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import headers_in

DIRECTORY = "/data/users-0"
RECORDS_OF_ONE_KEY: list[Pair] = [(b"a", b"%d" % number) for number in range(3)]


@pytest.fixture
def keyed(tmp_path: Path) -> KeyedLog:
    return KeyedLog(str(tmp_path / "users-0"))


@pytest.fixture
def disk() -> FakeFilesystem:
    return FakeFilesystem()


@pytest.fixture
def faulty(disk: FakeFilesystem) -> KeyedLog:
    """A log on a disk that fails on command, with something to compact."""
    keyed = KeyedLog(DIRECTORY, filesystem=disk)
    for pair in RECORDS_OF_ONE_KEY:
        keyed.put_segment(pair, (b"b", b"v"))
    return keyed


def log_file(keyed: KeyedLog, base_offset: int) -> Path:
    return Path(keyed.directory, f"{base_offset:020d}.log")


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x04
    path.write_bytes(content)


def readable_offsets(keyed: KeyedLog) -> list[int]:
    """The base offset of every sound batch."""
    offsets, offset = [], 0
    while offset < keyed.log.end_offset:
        try:
            view = keyed.log.read(offset, 1)
        except CorruptData as damage:
            offset = damage.next_offset
            continue
        if not view:
            break
        (header,) = headers_in(view)
        offsets.append(header.base_offset)
        offset = header.next_offset
    return offsets


# --- damage


def test_any_flipped_byte_leaves_its_segment_as_it_is(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", b"1"))
    keyed.put((b"a", b"2"))
    keyed.put_segment((b"b", b"2"), (b"c", b"1"))
    keyed.put_segment((b"c", b"2"))
    keyed.put_segment((b"a", b"3"))
    files = {path: path.read_bytes() for path in Path(keyed.directory).iterdir()}
    damaged = log_file(keyed, 2)
    keyed.log.close()
    for position in range(damaged.stat().st_size):
        for path in Path(keyed.directory).iterdir():
            path.unlink()
        for path, content in files.items():
            path.write_bytes(content)
        flip(damaged, position)
        content = damaged.read_bytes()
        keyed.reopen_after_kill(LogCheckpoint(7))
        keyed.compact()
        assert damaged.read_bytes() == content
        (damage,) = keyed.log.report.damage
        assert damage.path == str(damaged)
        assert [o for o in readable_offsets(keyed) if o not in (2, 3)] == [0, 5, 6]
        assert log_file(keyed, 0).stat().st_size < len(files[log_file(keyed, 0)])
        assert keyed.plan() is None
        keyed.log.close()


def test_damage_is_told_and_what_lies_around_it_is_compacted(
    keyed: KeyedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        keyed.put_segment((b"a", b"%d" % number), (b"%d" % number, b"v"))
    flip(log_file(keyed, 4), 70)
    with caplog.at_level(logging.WARNING):
        keyed.compact()
    assert str(log_file(keyed, 4)) in caplog.text
    assert [d.offset for d in keyed.log.report.damage] == [4]
    assert [(s.base_offset, s.next_offset) for s in keyed.log.segments()] == [
        (0, 4),
        (4, 6),
        (6, 10),
        (10, 10),
    ]
    assert readable_offsets(keyed) == [0, 2, 6, 8]


def test_tombstone_stays_where_a_damaged_segment_may_hold_what_it_deletes(
    keyed: KeyedLog,
) -> None:
    keyed.put_segment((b"x", b"1"), (b"x", None))
    keyed.put_segment((b"a", b"1"))
    keyed.put_segment((b"a", None))
    flip(log_file(keyed, 2), 65)
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    assert readable_offsets(keyed) == [3]
    assert keyed.plan() is None


def test_damage_in_the_clean_part_is_found_too(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", b"1"))
    keyed.put_segment((b"a", b"2"))
    keyed.compact()
    damaged = log_file(keyed, 0)
    flip(damaged, 70)
    content = damaged.read_bytes()
    keyed.put_segment((b"b", b"2"), (b"c", b"1"))
    keyed.put_segment((b"c", b"2"))
    keyed.compact()
    assert damaged.read_bytes() == content
    assert [(s.base_offset, s.next_offset) for s in keyed.log.segments()] == [
        (0, 3),
        (3, 6),
        (6, 6),
    ]


def test_short_or_missing_file_is_damage(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", b"1"))
    keyed.put_segment((b"a", b"2"))
    keyed.put_segment((b"a", b"3"))
    log_file(keyed, 0).unlink()
    log_file(keyed, 2).write_bytes(log_file(keyed, 2).read_bytes()[:-1])
    keyed.compact()
    assert {d.path for d in keyed.log.report.damage} == {
        str(log_file(keyed, 0)),
        str(log_file(keyed, 2)),
    }
    assert keyed.log.end_offset == 4


def test_batch_that_makes_no_sense_leaves_its_segment_as_it_is(keyed: KeyedLog) -> None:
    """A producer sent it, with a checksum that is right."""
    batch = keyed_batch((b"a", b"1" * 100), (b"a", b"2"))
    batch[HEADER_BYTES] ^= 0x08
    seal(batch)
    append(keyed.log, batch)
    keyed.archive()
    keyed.put_segment((b"a", b"3"), (b"a", b"4"))
    content = log_file(keyed, 0).read_bytes()
    keyed.compact()
    assert log_file(keyed, 0).read_bytes() == content
    (damage,) = keyed.log.report.damage
    assert (damage.offset, damage.end_offset) == (0, 2)
    assert readable_offsets(keyed) == [0, 2]


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("byte", [7, 6])
def test_flipped_offset_is_damage_unless_there_is_no_index_to_tell(
    keyed: KeyedLog, has_index: bool, byte: int
) -> None:
    """Offsets lie outside the checksum: the index vouches for gaps, and without it order alone."""
    for _ in range(20):
        keyed.put((b"a", b"1"))
    keyed.put_segment((b"a", None))
    keyed.put_segment((b"b", b"1"))
    keyed.compact()
    damaged = log_file(keyed, 0)
    flip(damaged, byte)
    content = damaged.read_bytes()
    if not has_index:
        damaged.with_suffix(".index").unlink()
    keyed.put_segment((b"a", b"2"), (b"b", b"2"))
    keyed.compact()
    is_believed = not has_index and byte == 7
    assert bool(keyed.log.report.damage) != is_believed
    assert (damaged.read_bytes() == content) != is_believed


def test_missing_index_does_not_keep_a_log_from_being_compacted(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    keyed.put_segment((b"a", b"2"), (b"b", b"2"))
    keyed.compact()
    for suffix in (".index", ".timeindex"):
        Path(keyed.directory, f"{0:020d}{suffix}").unlink()
    keyed.put_segment((b"a", b"3"))
    keyed.compact()
    assert keyed.offsets() == [2, 4, 5]


# --- disks


def test_full_disk_costs_a_pass_and_nothing_else(faulty: KeyedLog, disk: FakeFilesystem) -> None:
    before = faulty.records()
    plan = faulty.sure_plan()
    disk.space_bytes = disk.used_bytes
    with pytest.raises(OSError, match="No space") as caught:
        plan.run()
    assert caught.value.errno == errno.ENOSPC
    abandon(faulty.log, plan)
    assert faulty.records() == before
    assert not [name for name in faulty.names() if "cleaned" in name or "swap" in name]
    disk.space_bytes = None
    faulty.compact()
    assert faulty.offsets() == [4, 5]


@pytest.mark.parametrize("room", range(1, 12))
def test_disk_that_fills_up_at_any_point_leaves_the_log_whole(
    faulty: KeyedLog, disk: FakeFilesystem, room: int
) -> None:
    newest = faulty.newest()
    plan = faulty.sure_plan()
    disk.space_bytes = disk.used_bytes + room * 512
    try:
        result = plan.run()
    except OSError:
        abandon(faulty.log, plan)
    else:
        install(faulty.log, plan, result)
    assert faulty.log.failure is None
    assert faulty.newest() == newest
    disk.space_bytes = None
    faulty.compact()
    assert faulty.offsets() == [4, 5]


def test_failed_sync_of_a_new_segment_costs_a_pass(faulty: KeyedLog, disk: FakeFilesystem) -> None:
    plan = faulty.sure_plan()
    disk.fail_sync("*.cleaned.log")
    with pytest.raises(OSError, match="Input/output"):
        plan.run()
    abandon(faulty.log, plan)
    faulty.compact()
    assert faulty.offsets() == [4, 5]


@pytest.mark.parametrize("spared", range(3))
def test_failed_commit_stops_the_log(faulty: KeyedLog, disk: FakeFilesystem, spared: int) -> None:
    """A failed sync of a directory may have lost names that others count on."""
    newest = faulty.newest()
    plan = faulty.sure_plan()
    disk.fail_sync(DIRECTORY, spared=spared)
    with pytest.raises(OSError, match="Input/output"):
        plan.run()
    with pytest.raises(StorageFailure):
        abandon(faulty.log, plan)
    assert faulty.log.failure is not None
    assert faulty.newest() == newest
    assert faulty.plan() is None


def test_failed_swap_stops_the_log_and_the_next_start_finishes_it(
    faulty: KeyedLog, disk: FakeFilesystem
) -> None:
    plan = faulty.sure_plan()
    result = plan.run()
    disk.remove(f"{DIRECTORY}/00000000000000000000.cleaned.index")
    with pytest.raises(StorageFailure):
        install(faulty.log, plan, result)
    faulty.reopen_after_kill()
    assert faulty.offsets() == [4, 5]


def test_log_that_stopped_meanwhile_is_not_touched(faulty: KeyedLog, disk: FakeFilesystem) -> None:
    plan = faulty.sure_plan()
    result = plan.run()
    before = faulty.records()
    faulty.log.stop(OSError(errno.EIO, "Input/output error"), "sync")
    assert install(faulty.log, plan, result) == []
    assert faulty.records() == before
    faulty.reopen_after_kill()
    assert faulty.offsets() == [4, 5]


# --- processes


def test_cancelled_plan_leaves_the_log_as_it_was(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"a", b"2"))
    names = keyed.names()
    plan = keyed.sure_plan()
    plan.cancel()
    with pytest.raises(CompactionCancelled):
        plan.run()
    abandon(keyed.log, plan)
    assert keyed.names() == names
    keyed.compact()
    assert keyed.offsets() == [1]


@pytest.mark.parametrize("checkpoint", [None, LogCheckpoint(0), LogCheckpoint(7)])
def test_process_that_ends_after_the_commit_has_compacted(
    keyed: KeyedLog, checkpoint: LogCheckpoint | None
) -> None:
    for pair in RECORDS_OF_ONE_KEY:
        keyed.put_segment(pair, (b"b", b"v"))
    keyed.put((b"a", b"9"))
    keyed.log.sync()
    keyed.sure_plan().run()
    keyed.reopen_after_kill(checkpoint)
    assert keyed.offsets() == [4, 5, 6]
    assert [(s.base_offset, s.next_offset) for s in keyed.log.segments()] == [(0, 6), (6, 7)]
    assert keyed.log.report.damage == []
    assert not [name for name in keyed.names() if "cleaned" in name or "swap" in name]
    assert keyed.plan() is None


@pytest.mark.parametrize("checkpoint", [None, LogCheckpoint(0), LogCheckpoint(7)])
def test_compacted_log_survives_the_loss_of_its_process(
    keyed: KeyedLog, checkpoint: LogCheckpoint | None
) -> None:
    """Its gaps are no tears, even where no checkpoint says that they were on disk."""
    for pair in RECORDS_OF_ONE_KEY:
        keyed.put_segment((b"b", b"v"), pair, (b"c", b"1"), (b"c", None))
    keyed.put((b"a", b"9"))
    keyed.log.sync()
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    assert keyed.offsets() == [8, 9, 12]
    keyed.reopen_after_kill(checkpoint)
    assert keyed.offsets() == [8, 9, 12]
    assert keyed.log.end_offset == 13
    assert keyed.log.report.damage == []
    assert keyed.log.report.torn == []


def test_state_of_another_log_is_not_believed(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"a", b"2"))
    keyed.put_segment((b"a", b"3"))
    keyed.compact()
    state = Path(keyed.directory, "cleaning-state").read_bytes()
    other = KeyedLog(keyed.directory + "-other")
    other.put_segment((b"a", b"1"), (b"a", b"2"))
    Path(other.directory, "cleaning-state").write_bytes(state)
    other.compact()
    assert other.offsets() == [1]
