"""Aborted transactions on disk: where their files are, and how those that are lost come back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.local_log import LocalLog
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.log_steps import append, fill
from tests.fakes.sample_batches import abort_marker, batch_of, transactional_batch
from tests.unit.storage.log_directory import LogDirectory


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory(tmp_path / "log")


def fill_with_transactions(log: LocalLog) -> list[AbortedTransaction]:
    """Transactions of which some span segments; all that were aborted."""
    append(log, transactional_batch(0, producer=1))
    for number in range(10):
        append(log, transactional_batch(number), batch_of(b"x" * 50), abort_marker())
    append(log, abort_marker(producer=1))
    fill(log, 20)
    return log.aborted_transactions(0, log.end_offset)


def files_of(log: LocalLog) -> list[str]:
    return sorted(name for name in os.listdir(log.directory) if name.endswith(".txnindex"))


def test_only_closed_segments_with_transactions_have_a_file(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 20)
    assert files_of(log) == []
    fill_with_transactions(log)
    fill(log, 20)
    log.close()
    names = files_of(log)
    assert 2 < len(names) < len(log.segments()) - 4


def test_file_survives_a_clean_stop_and_is_not_rebuilt(directory: LogDirectory) -> None:
    log = directory.open()
    expected = fill_with_transactions(log)
    assert len(expected) == 11
    log = directory.reopen(log)
    assert log.aborted_transactions(0, log.end_offset) == expected
    assert log.has_aborted_transactions
    assert log.report.rebuilt_indexes == []


def test_active_segment_needs_no_file(directory: LogDirectory) -> None:
    log = directory.open()
    append(log, transactional_batch(0), abort_marker())
    log = directory.reopen(log)
    assert files_of(log) == []
    assert log.aborted_transactions(0, 2) == [AbortedTransaction(7, 0, 1, 2)]
    append(log, transactional_batch(1), abort_marker())
    fill(log, 20)
    assert len(log.aborted_transactions(0, log.end_offset)) == 2


def test_each_lost_file_is_replayed_from_the_log(directory: LogDirectory) -> None:
    log = directory.open()
    expected = fill_with_transactions(log)
    log.close()
    for name in files_of(log):
        path = Path(log.directory, name)
        content = path.read_bytes()
        path.unlink()
        log = directory.reopen(log)
        assert log.aborted_transactions(0, log.end_offset) == expected
        assert log.report.rebuilt_indexes == [str(path)]
        assert path.read_bytes() == content
        log.close()


def test_each_damaged_file_is_replayed_from_the_log(directory: LogDirectory) -> None:
    log = directory.open()
    expected = fill_with_transactions(log)
    log.close()
    for name in files_of(log):
        path = Path(log.directory, name)
        content = path.read_bytes()
        for damaged in (b"", content[:-1], content[:-36], content[36:], b"\xff" + content[1:]):
            path.write_bytes(damaged)
            log = directory.reopen(log)
            assert log.aborted_transactions(0, log.end_offset) == expected
            assert path.read_bytes() == content
            log.close()


def test_lost_file_and_lost_index_are_both_replayed(directory: LogDirectory) -> None:
    log = directory.open()
    expected = fill_with_transactions(log)
    log.close()
    for suffix in ("txnindex", "index", "timeindex"):
        for path in Path(log.directory).glob(f"*.{suffix}"):
            path.unlink()
    log = directory.open(log.checkpoint())
    assert log.aborted_transactions(0, log.end_offset) == expected


def test_lost_snapshots_are_made_up_for_by_the_log(directory: LogDirectory) -> None:
    log = directory.open()
    expected = fill_with_transactions(log)
    append(log, transactional_batch(10))
    stable = log.last_stable_offset
    log.close()
    for path in Path(log.directory).glob("*.snapshot"):
        path.unlink()
    log = directory.open(log.checkpoint())
    assert log.aborted_transactions(0, log.end_offset) == expected
    assert log.last_stable_offset == stable < log.end_offset
    assert log.has_aborted_transactions


def test_lost_file_is_made_up_for_on_a_full_disk() -> None:
    disk = FakeFilesystem()
    disk.make_directory("/data")
    directory = LogDirectory(Path("/data/log"), filesystem=disk)
    log = directory.open()
    expected = fill_with_transactions(log)
    log.close()
    for name in disk.sizes(log.directory):
        if name.endswith(".txnindex"):
            disk.remove(f"{log.directory}/{name}")
    log = directory.open(log.checkpoint())
    disk.space_bytes = disk.used_bytes
    assert log.aborted_transactions(0, log.end_offset) == expected


def test_files_go_with_their_segments(directory: LogDirectory) -> None:
    log = directory.open()
    fill_with_transactions(log)
    log.sync()
    log.delete_records(log.end_offset)
    paths = log.expire()
    assert files_of(log) == []
    assert [path for path in paths if path.endswith(".txnindex.deleted")]
    log.close()
    log = directory.open(log.checkpoint())
    assert log.aborted_transactions(log.start_offset, log.end_offset) == []


def test_segments_that_are_not_stable_outlive_their_retention(directory: LogDirectory) -> None:
    log = directory.open()
    fill(log, 20)
    append(log, transactional_batch(0))
    fill(log, 20)
    log.sync()
    directory.clock.advance_ms(log.settings.retention_ms * 2)
    first_unstable = log.last_stable_offset
    log.expire()
    assert log.segments()[0].base_offset <= first_unstable
    assert log.start_offset > 0
    append(log, abort_marker())
    log.sync()
    log.expire()
    assert log.segments()[0].base_offset > first_unstable


def test_producer_whose_transaction_is_under_way_does_not_expire(directory: LogDirectory) -> None:
    log = directory.open()
    append(log, transactional_batch(0), transactional_batch(0, producer=8))
    append(log, abort_marker(producer=8))
    directory.clock.advance_ms(log.settings.producer_id_expiration_ms * 2)
    log.expire()
    assert [producer.producer_id for producer in log.producers.producers()] == [7]


# --- after a crash


def test_segment_that_is_active_again_knows_what_was_aborted_in_it(
    directory: LogDirectory, tmp_path: Path
) -> None:
    """The segment after it was lost, but not the snapshot that was made when that one began."""
    log = directory.open()
    append(log, transactional_batch(0), abort_marker(), transactional_batch(1))
    while len(log.segments()) == 1:
        append(log, batch_of(b"x" * 50))
    log.sync()
    last = log.segments()[-1].base_offset
    killed = directory.after_kill(tmp_path / "killed")
    for path in killed.path.glob(f"{last:020d}.*"):
        if path.suffix != ".snapshot":
            path.unlink()
    log = killed.open()
    assert (log.end_offset, len(log.segments())) == (last, 1)
    assert log.aborted_transactions(0, last) == [AbortedTransaction(7, 0, 1, 2)]
    assert log.last_stable_offset == 2
    assert files_of(log) == []
    fill(log, 20)
    assert log.aborted_transactions(0, last) == [AbortedTransaction(7, 0, 1, 2)]
    assert log.report.rebuilt_indexes == []


def test_transaction_of_which_nothing_is_left_is_not_under_way(
    directory: LogDirectory, tmp_path: Path
) -> None:
    log = directory.open()
    append(log, transactional_batch(0))
    fill(log, 20)
    log.sync()
    killed = directory.after_kill(tmp_path / "killed")
    for path in killed.path.glob("*.log"):
        path.unlink()
    log = killed.open()
    assert log.start_offset == log.end_offset == log.last_stable_offset > 0
    assert list(log.producers.open_transactions()) == []


def test_file_of_another_life_does_not_outlive_a_recovery(
    directory: LogDirectory, tmp_path: Path
) -> None:
    log = directory.open()
    fill_with_transactions(log)
    log.sync()
    killed = directory.after_kill(tmp_path / "killed")
    stale = Path(f"{killed.path}/{log.segments()[-1].base_offset:020d}.txnindex")
    stale.write_bytes(b"of another life")
    killed.open()
    assert not stale.exists()


def test_truncated_segment_has_no_file(directory: LogDirectory) -> None:
    log = directory.open()
    expected = fill_with_transactions(log)
    log.sync()
    cut = expected[5]
    log.truncate(cut.last_offset + 1)
    active = log.segments()[-1]
    assert Path(active.aborted_path).name not in files_of(log)
    assert len(files_of(log)) == len(log.segments()) - 1
    assert log.aborted_transactions(0, log.end_offset) == expected[:6]
