"""What compaction makes of transactions: their records, their markers, and what readers see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millstream.errors import StorageFailure
from millstream.records import ControlType
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.compaction import abandon
from millstream.storage.recovery import LogCheckpoint
from tests.fakes.committed_reader import CommittedReader, committed_records
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.keyed_log import COMPACTED, DELETE_RETENTION_MS, KeyedLog, Pair

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
# Room for a single key.
ONE_KEY = 1
DIRECTORY = "/data/users-0"


@pytest.fixture
def keyed(tmp_path: Path) -> KeyedLog:
    return KeyedLog(str(tmp_path / "users-0"))


def committed_pairs(keyed: KeyedLog) -> list[Pair]:
    return [(record.key, record.value) for record in committed_records(keyed.log)]


def open_producers(keyed: KeyedLog) -> list[int]:
    return [t.producer_id for t in keyed.log.producers.open_transactions()]


def aborted_in(keyed: KeyedLog) -> list[tuple[int, int]]:
    aborted = keyed.log.aborted_transactions(0, keyed.log.end_offset)
    return [(t.first_offset, t.last_offset) for t in aborted]


def lose_snapshots(keyed: KeyedLog, *, newest_only: bool = False) -> None:
    snapshots = sorted(Path(keyed.directory).glob("*.snapshot"), reverse=True)
    for path in snapshots[:1] if newest_only else snapshots:
        path.unlink()


# --- records


def test_committed_records_replace_others_and_are_replaced(keyed: KeyedLog) -> None:
    keyed.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    keyed.put_transaction(7, COMMIT, (b"a", b"2"), (b"b", b"2"))
    keyed.put((b"b", b"3"))
    keyed.archive()
    keyed.compact()
    assert keyed.pairs() == [(b"c", b"1"), (b"a", b"2"), (b"b", b"3")]
    assert committed_pairs(keyed) == keyed.pairs()


def test_log_of_transactions_alone_is_compacted(keyed: KeyedLog) -> None:
    for number in range(30):
        keyed.put_transaction(number % 3, COMMIT, (b"%d" % (number % 2), b"%d" % number))
        if number % 10 == 9:
            keyed.archive()
    keyed.compact()
    assert keyed.pairs() == [(b"0", b"28"), (b"1", b"29")]


def test_records_of_an_aborted_transaction_go_and_replace_none(keyed: KeyedLog) -> None:
    keyed.put((b"a", b"1"), (b"b", b"1"))
    keyed.put_in(7, (b"a", b"2"))
    keyed.put_in(8, (b"a", b"3"))
    keyed.put_in(7, (b"b", None), (b"c", b"1"))
    keyed.end(7, ABORT)
    keyed.end(8, COMMIT)
    keyed.archive()
    keyed.compact()
    assert keyed.pairs() == [(b"b", b"1"), (b"a", b"3")]
    assert keyed.offsets() == [1, 3]
    assert committed_pairs(keyed) == keyed.pairs()


def test_each_transaction_of_a_producer_is_judged_by_itself(keyed: KeyedLog) -> None:
    for number in range(6):
        kind = (ABORT, COMMIT)[number % 2]
        keyed.put_transaction(7, kind, (b"a", b"%d" % number), (b"%d" % number, b"v"))
    keyed.archive()
    keyed.compact()
    assert keyed.pairs() == [(b"1", b"v"), (b"3", b"v"), (b"a", b"5"), (b"5", b"v")]


def test_aborted_records_go_although_there_is_no_room_for_keys(keyed: KeyedLog) -> None:
    keyed.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    keyed.put_transaction(7, ABORT, (b"a", b"2"), (b"x", b"1"))
    keyed.put_segment((b"b", b"2"))
    keyed.compact_once(buffer_bytes=ONE_KEY)
    assert (b"x", b"1") not in keyed.pairs()
    keyed.compact(buffer_bytes=ONE_KEY)
    assert keyed.pairs() == [(b"a", b"1"), (b"c", b"1"), (b"b", b"2")]


def test_tombstone_of_a_transaction_goes_when_it_is_time(keyed: KeyedLog) -> None:
    keyed.put((b"a", b"1"))
    keyed.put_transaction(7, COMMIT, (b"a", None))
    keyed.archive()
    keyed.compact()
    assert keyed.pairs() == [(b"a", None)]
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    assert keyed.pairs() == []


# --- what is open


def test_nothing_at_or_past_an_open_transaction_is_touched(keyed: KeyedLog) -> None:
    keyed.put_segment((b"a", b"1"), (b"a", b"2"))
    keyed.put_in(7, (b"a", b"3"))
    keyed.put_segment((b"b", b"1"), (b"b", b"2"))
    keyed.put_segment((b"a", b"4"))
    keyed.compact()
    assert keyed.offsets() == [1, 2, 3, 4, 5]
    assert keyed.plan() is None
    keyed.end(7, COMMIT)
    keyed.compact()
    assert keyed.pairs() == [(b"b", b"2"), (b"a", b"4")]


def test_records_are_judged_by_a_marker_that_lies_behind_the_segments(keyed: KeyedLog) -> None:
    keyed.put_in(7, (b"a", b"1"))
    keyed.put_in(8, (b"b", b"1"))
    keyed.archive()
    keyed.end(7, ABORT)
    keyed.end(8, COMMIT)
    keyed.compact()
    assert keyed.pairs() == [(b"b", b"1")]
    keyed.archive()
    keyed.compact()
    assert committed_pairs(keyed) == [(b"b", b"1")]


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_marker_that_decided_is_on_disk_before_the_new_segments_are(kind: ControlType) -> None:
    disk = FakeFilesystem()
    keyed = KeyedLog(DIRECTORY, filesystem=disk)
    keyed.put((b"a", b"1"))
    keyed.put_in(7, (b"a", b"2"))
    keyed.archive()
    keyed.end(7, kind)
    assert keyed.log.synced_offset == 2
    keyed.compact()
    newest = keyed.newest()
    keyed = KeyedLog(DIRECTORY, filesystem=disk.after_crash("lost"))
    assert keyed.log.end_offset == 3
    assert keyed.newest() == newest == {b"a": b"1" if kind is ABORT else b"2"}


def test_marker_that_decided_is_on_disk_though_all_records_stay() -> None:
    disk = FakeFilesystem()
    keyed = KeyedLog(DIRECTORY, filesystem=disk)
    keyed.put_in(7, (b"a", b"1"))
    keyed.archive()
    keyed.end(7, COMMIT)
    keyed.compact()
    keyed = KeyedLog(DIRECTORY, filesystem=disk.after_crash("lost"))
    assert keyed.log.last_stable_offset == 2


def test_marker_that_cannot_be_made_durable_stops_the_log() -> None:
    disk = FakeFilesystem()
    keyed = KeyedLog(DIRECTORY, filesystem=disk)
    keyed.put((b"a", b"1"))
    keyed.put_in(7, (b"a", b"2"))
    keyed.archive()
    keyed.end(7, COMMIT)
    plan = keyed.sure_plan()
    disk.fail_sync("*00000000000000000002.log")
    with pytest.raises(OSError, match="Input/output"):
        plan.run()
    with pytest.raises(StorageFailure):
        abandon(keyed.log, plan)
    assert keyed.offsets() == [0, 1]


def test_log_without_transactions_is_not_synced_for_a_pass() -> None:
    disk = FakeFilesystem()
    keyed = KeyedLog(DIRECTORY, filesystem=disk)
    keyed.put_segment((b"a", b"1"), (b"a", b"2"))
    keyed.put((b"a", b"3"))
    assert keyed.log.synced_offset < keyed.log.end_offset
    done = disk.operation_count
    keyed.compact()
    active = keyed.log.segments()[-1]
    assert not [what for what in disk.operations[done:] if active.log_path in what]


# --- markers


def test_marker_that_is_the_last_of_a_log_stays(keyed: KeyedLog) -> None:
    keyed.put_transaction(8, ABORT, (b"a", b"1"))
    keyed.archive()
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    assert keyed.marker_offsets() == [1]
    assert keyed.plan() is None


def test_marker_stays_for_its_time_and_goes_then(keyed: KeyedLog) -> None:
    keyed.put_transaction(7, COMMIT, (b"a", b"1"))
    keyed.put_transaction(8, ABORT, (b"a", b"2"))
    keyed.put_segment((b"a", b"3"))
    keyed.compact()
    assert keyed.pairs() == [(b"a", b"3")]
    assert keyed.marker_offsets() == [1, 3]
    keyed.clock.advance_ms(DELETE_RETENTION_MS - 1)
    assert keyed.plan() is None
    keyed.clock.advance_ms(1)
    keyed.compact()
    assert keyed.marker_offsets() == []
    assert aborted_in(keyed) == []
    assert keyed.plan() is None


def test_marker_stays_for_as_long_as_a_record_of_its_transaction(keyed: KeyedLog) -> None:
    keyed.put_in(7, (b"a", b"1"))
    keyed.put_in(7, (b"b", b"1"))
    keyed.archive()
    keyed.end(7, COMMIT)
    keyed.archive()
    for key in (b"a", b"b"):
        keyed.clock.advance_ms(DELETE_RETENTION_MS)
        keyed.compact()
        assert keyed.marker_offsets() == [2]
        keyed.reopen()
        assert open_producers(keyed) == []
        keyed.put_segment((key, b"2"))
    keyed.compact()
    assert keyed.marker_offsets() == []
    assert keyed.pairs() == [(b"a", b"2"), (b"b", b"2")]


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_compacted_log_replayed_without_snapshots_has_nothing_open(
    keyed: KeyedLog, kind: ControlType
) -> None:
    for number in range(5):
        keyed.put_in(number, (b"a", b"%d" % number), (b"%d" % number, b"v"))
        keyed.archive()
    for number in range(5):
        keyed.end(number, kind)
        keyed.archive()
    for _ in range(3):
        keyed.compact()
        keyed.clock.advance_ms(DELETE_RETENTION_MS)
        lose_snapshots(keyed)
        keyed.reopen_after_kill(LogCheckpoint(keyed.log.synced_offset))
        assert open_producers(keyed) == []
        assert keyed.log.last_stable_offset == keyed.log.end_offset == 15
        assert len(committed_pairs(keyed)) == (6 if kind is COMMIT else 0)


def test_marker_stays_while_a_snapshot_takes_its_transaction_for_open(keyed: KeyedLog) -> None:
    keyed.put_transaction(8, COMMIT, (b"a", b"0"))
    keyed.put_in(7, (b"a", b"1"))
    keyed.archive()
    keyed.end(7, COMMIT)
    keyed.put_transaction(9, COMMIT, (b"a", b"2"))
    keyed.put_segment((b"a", b"3"))
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    # The one that ended before the snapshot is gone, and so is the one that began after it.
    assert keyed.marker_offsets() == [3]
    lose_snapshots(keyed, newest_only=True)
    keyed.reopen_after_kill()
    assert open_producers(keyed) == []
    assert keyed.log.last_stable_offset == keyed.log.end_offset
    keyed.put_segment((b"a", b"4"))
    keyed.put_segment((b"a", b"5"))
    keyed.compact()
    assert keyed.marker_offsets() == []


def test_log_of_one_key_and_many_transactions_ends_small(tmp_path: Path) -> None:
    keyed = KeyedLog(str(tmp_path / "users-0"))
    for number in range(10_000):
        kind = ABORT if number % 10 == 0 else COMMIT
        keyed.put_transaction(number % 5, kind, (b"key", b"value %d" % number))
    keyed.archive()
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    assert keyed.pairs() == [(b"key", b"value 9999")]
    assert len(keyed.marker_offsets()) <= 2
    assert sum(segment.size for segment in keyed.log.segments()) < 500
    assert len(keyed.log.segments()) <= 3
    keyed.reopen()
    assert committed_pairs(keyed) == [(b"key", b"value 9999")]
    assert open_producers(keyed) == []


# --- readers


def test_aborted_index_tells_of_aborted_records_and_of_markers_that_stay(keyed: KeyedLog) -> None:
    keyed.put_transaction(7, ABORT, (b"a", b"1"))
    keyed.put_segment((b"b", b"1"))
    keyed.put_transaction(7, ABORT, (b"a", b"2"))
    keyed.put_segment((b"b", b"2"))
    assert aborted_in(keyed) == [(0, 1), (3, 4)]
    assert committed_pairs(keyed) == [(b"b", b"1"), (b"b", b"2")]
    keyed.compact()
    assert aborted_in(keyed) == [(0, 1), (3, 4)]
    for _ in range(2):
        assert committed_pairs(keyed) == keyed.pairs() == [(b"b", b"2")]
        keyed.reopen()
    keyed.reopen_after_kill()
    assert committed_pairs(keyed) == [(b"b", b"2")]


def test_transaction_that_commits_after_an_aborted_one_is_read_when_markers_are_gone(
    keyed: KeyedLog,
) -> None:
    """A reader would pass over it, if it were told of an abort whose marker it does not meet."""
    keyed.put_transaction(7, ABORT, (b"a", b"1"))
    keyed.put_transaction(7, COMMIT, (b"a", b"2"))
    keyed.put_segment((b"b", b"1"))
    for _ in range(2):
        keyed.compact()
        assert committed_pairs(keyed) == [(b"a", b"2"), (b"b", b"1")]
        keyed.clock.advance_ms(DELETE_RETENTION_MS)
    assert keyed.marker_offsets() == [3]


def test_reader_that_is_half_way_gets_every_newest_value(keyed: KeyedLog) -> None:
    for number in range(12):
        kind = ABORT if number % 4 == 3 else COMMIT
        keyed.put_in(7, (b"%d" % (number % 5), b"%d" % number))
        keyed.put((b"p%d" % (number % 5), b"%d" % number))
        keyed.end(7, kind)
        if number % 3 == 2:
            keyed.archive()
    wanted = {r.key: r.value for r in committed_records(keyed.log)}
    reader = CommittedReader(keyed.log)
    seen: dict[bytes | None, bytes | None] = {}
    for _ in range(9):
        seen.update((r.key, r.value) for r in reader.read(1) or ())
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    seen.update((r.key, r.value) for r in reader.read_all())
    assert seen == wanted


# --- damage


def damage(keyed: KeyedLog, base_offset: int, position: int = 65) -> Path:
    path = Path(keyed.directory, f"{base_offset:020d}.log")
    content = bytearray(path.read_bytes())
    content[position] ^= 0x04
    path.write_bytes(content)
    return path


def readable_committed(keyed: KeyedLog, offset: int) -> list[Pair]:
    """What a reader gets that begins behind the damage."""
    records = CommittedReader(keyed.log, offset).read_all()
    return [(record.key, record.value) for record in records]


def test_aborted_records_in_a_damaged_segment_stay_aborted(keyed: KeyedLog) -> None:
    keyed.put((b"a", b"1"))
    keyed.put_in(7, (b"x", b"1"))
    keyed.put_segment((b"b", b"1"))
    keyed.put_segment((b"a", b"2"))
    keyed.end(7, ABORT)
    keyed.put_transaction(8, ABORT, (b"y", b"1"))
    keyed.put_segment((b"b", b"2"))
    keyed.put_segment((b"b", b"3"))
    damage(keyed, 0)
    for _ in range(3):
        keyed.compact()
        keyed.clock.advance_ms(DELETE_RETENTION_MS)
        assert (1, 4) in aborted_in(keyed)
        assert 4 in keyed.marker_offsets()
        assert readable_committed(keyed, 1)[0] == (b"b", b"1")
        assert readable_committed(keyed, 1)[-1] == (b"b", b"3")
        assert not {b"x", b"y"} & {key for key, _ in readable_committed(keyed, 1)}
        keyed.reopen_after_kill(LogCheckpoint(keyed.log.synced_offset))


def test_marker_stays_where_a_damaged_segment_may_hold_its_records(keyed: KeyedLog) -> None:
    keyed.put((b"x", b"1"))
    keyed.put_in(7, (b"a", b"1"))
    keyed.archive()
    keyed.end(7, COMMIT)
    keyed.put_transaction(7, COMMIT, (b"a", b"2"))
    keyed.put_segment((b"a", b"3"))
    damage(keyed, 0)
    keyed.compact()
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    assert keyed.marker_offsets() == [2]


@pytest.mark.parametrize("is_missing", [True, False])
def test_segment_that_cannot_be_read_at_all_is_left_alone(
    keyed: KeyedLog, is_missing: bool
) -> None:
    for number in range(5):
        keyed.put_transaction(7, ABORT, (b"x", b"1"))
        keyed.put_segment((b"a", b"%d" % number), (b"%d" % number, b"v"))
    path = Path(keyed.directory, f"{4:020d}.log")
    path.write_bytes(bytes(path.stat().st_size))
    if is_missing:
        path.unlink()
    for index in Path(keyed.directory).glob(f"{4:020d}.*index"):
        index.unlink()
    keyed.log.rest()
    keyed.compact()
    assert str(path) in {damage.path for damage in keyed.log.report.damage}
    assert readable_committed(keyed, 8)[-2:] == [(b"a", b"4"), (b"4", b"v")]
    assert readable_committed(keyed, 8)[0] == (b"2", b"v")


# --- processes


def test_process_that_ends_after_the_commit_has_compacted(keyed: KeyedLog) -> None:
    keyed.put_transaction(7, ABORT, (b"a", b"1"))
    keyed.put_transaction(7, COMMIT, (b"a", b"2"))
    keyed.put_segment((b"b", b"1"))
    keyed.put_in(8, (b"c", b"1"))
    keyed.log.sync()
    keyed.sure_plan().run()
    keyed.reopen_after_kill()
    assert keyed.pairs() == [(b"a", b"2"), (b"b", b"1"), (b"c", b"1")]
    assert committed_pairs(keyed) == [(b"a", b"2"), (b"b", b"1")]
    assert open_producers(keyed) == [8]
    assert not [name for name in keyed.names() if "cleaned" in name or "swap" in name]


def test_commit_is_taken_back_from_its_end() -> None:
    """So that a crash in the middle never leaves records whose marker is gone."""
    disk = FakeFilesystem()
    keyed = KeyedLog(DIRECTORY, replace(COMPACTED, segment_bytes=400), filesystem=disk)
    for number in range(6):
        keyed.put_transaction(7, COMMIT, (b"a", b"%d" % number), (b"%d" % number, b"v" * 200))
    keyed.archive()
    plan = keyed.sure_plan()
    # The first sync is that of what the pass plans to do.
    disk.fail_sync(DIRECTORY, spared=1)
    done = disk.operation_count
    with pytest.raises(OSError, match="Input/output"):
        plan.run()
    taken_back = [w for w in disk.operations[done:] if w.startswith("remove") and ".swap" in w]
    assert len(taken_back) > 2
    assert taken_back == sorted(taken_back, reverse=True)


def test_aborted_index_of_new_segments_tells_of_the_markers_that_stay(keyed: KeyedLog) -> None:
    for number in range(12):
        keyed.put_in(7, (b"%d" % number, b"v"))
        if number % 3 == 0:
            keyed.put_in(8, (b"long", b"%d" % number))
        keyed.end(7, (ABORT, COMMIT)[number % 2])
        if number % 3 == 2:
            keyed.end(8, COMMIT)
        if number % 4 == 1:
            keyed.archive()
    keyed.archive()
    before = aborted_in(keyed)
    keyed.compact()
    assert aborted_in(keyed) == before
    keyed.clock.advance_ms(DELETE_RETENTION_MS)
    keyed.compact()
    # A snapshot from the middle waits for the end of one transaction at most.
    assert {last for _, last in aborted_in(keyed)} <= set(keyed.marker_offsets())
    assert len(aborted_in(keyed)) <= 1


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_aborted_index_that_is_lost_is_replayed_from_what_compaction_left(
    keyed: KeyedLog, has_snapshots: bool
) -> None:
    for number in range(6):
        keyed.put_in(7, (b"%d" % number, b"v"))
        keyed.archive()
        keyed.end(7, (ABORT, COMMIT)[number % 2])
    keyed.archive()
    keyed.compact()
    wanted = committed_pairs(keyed)
    for path in Path(keyed.directory).glob("*.txnindex"):
        path.unlink()
    if not has_snapshots:
        lose_snapshots(keyed)
    keyed.reopen_after_kill(LogCheckpoint(keyed.log.synced_offset))
    assert committed_pairs(keyed) == wanted == [(b"1", b"v"), (b"3", b"v"), (b"5", b"v")]
    assert open_producers(keyed) == []


def test_aborted_transaction_is_told_by_where_it_begins_and_ends(keyed: KeyedLog) -> None:
    keyed.put_in(7, (b"a", b"1"))
    keyed.put((b"b", b"1"))
    keyed.end(7, ABORT)
    assert keyed.log.aborted_transactions(0, 3) == [AbortedTransaction(7, 0, 2, 3)]
