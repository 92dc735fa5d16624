"""Verification finds every damage to any file of a log, and says exactly where it is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from millstream.records import ControlType, Record, build, build_control
from millstream.settings.log import LogSettings
from millstream.storage.finding import Finding
from millstream.storage.log_start import write_log_start
from millstream.storage.log_verification import LogReport, LogVerification
from millstream.storage.recovery import LogCheckpoint, rebuild_indexes
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import START_MS
from tests.unit.storage.log_directory import LogDirectory, batches_in, cut, flip

SETTINGS = LogSettings(segment_bytes=520, index_interval_bytes=150)
PRODUCER = 7


class Stored(NamedTuple):
    """A log that was closed cleanly."""

    directory: LogDirectory
    checkpoint: LogCheckpoint

    def verify(self, checkpoint: LogCheckpoint | None = None) -> LogReport:
        return LogVerification(
            self.directory.filesystem,
            str(self.directory.path),
            name="orders/0",
            checkpoint=checkpoint or self.checkpoint,
            reads_records=True,
        ).run()

    def damage(self) -> list[Finding]:
        return [each for each in self.verify().findings if each.is_damage]

    def files(self, suffix: str = "") -> list[Path]:
        return sorted(each for each in self.directory.path.iterdir() if each.name.endswith(suffix))


def plain(timestamp_ms: int) -> bytearray:
    return build([Record(at, timestamp_ms, b"k", b"value") for at in range(3)])


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """Some segments of plain batches, then some of a transaction that was aborted."""
    directory = LogDirectory(tmp_path / "log", SETTINGS)
    log = directory.open()
    for number in range(12):
        append(log, plain(START_MS + number * 1000))
    for number in range(4):
        records = [Record(at, START_MS, b"k", b"v" * 40) for at in range(2)]
        append(
            log,
            build(
                records,
                producer_id=PRODUCER,
                producer_epoch=0,
                base_sequence=number * 2,
                transactional=True,
            ),
        )
    marker = build_control(
        ControlType.ABORT,
        producer_id=PRODUCER,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=START_MS,
    )
    append(log, marker)
    for _ in range(4):
        append(log, plain(START_MS))
    write_log_start(directory.filesystem, str(directory.path), 1)
    log.close()
    return Stored(directory, log.checkpoint())


def test_sound_log_is_said_to_be_sound(stored: Stored) -> None:
    report = stored.verify()
    assert report.findings == []
    assert (report.segments, report.batches) == (len(stored.files(".log")), 21)
    assert report.records == 12 * 3 + 4 * 2 + 1 + 4 * 3
    assert {path.suffix for path in stored.files()} >= {".txnindex", ".snapshot", ".timeindex"}


def test_each_flipped_byte_is_found_in_its_file(stored: Stored) -> None:
    for path in stored.files():
        content = path.read_bytes()
        # Steps that are no multiple of a field, and each file begins at another byte.
        for position in range(len(path.name) % 5, len(content), 5):
            flip(path, position, position % 8)
            found = [each for each in stored.damage() if each.path == str(path)]
            assert found, f"{path} at {position}"
            if path.suffix == ".log":
                _assert_exact(found[0], content, position)
            path.write_bytes(content)
    assert stored.damage() == []


def test_each_cut_file_is_found(stored: Stored) -> None:
    active = stored.files(".log")[-1].stem
    for path in stored.files():
        content = path.read_bytes()
        # What an index of the active segment lacks at its end costs a longer walk, no more.
        entry_bytes = 24 if path.name == f"{active}.index" else 0
        for size in range(0, len(content), 6):
            if entry_bytes and size and size % entry_bytes == 0:
                continue
            cut(path, size)
            assert any(each.path == str(path) for each in stored.damage()), f"{path} to {size}"
            path.write_bytes(content)
        path.write_bytes(content)


def test_missing_files_are_found(stored: Stored) -> None:
    logs, closed = stored.files(".log"), stored.files(".index")[0]
    for path in (logs[1], closed, closed.with_suffix(".timeindex"), *stored.files(".txnindex")):
        content = path.read_bytes()
        path.unlink()
        assert stored.damage(), path
        path.write_bytes(content)


def test_index_of_other_batches_is_found_and_rebuilt(stored: Stored) -> None:
    first, second = stored.files(".index")[:2]
    first.write_bytes(second.read_bytes())
    times = first.with_suffix(".timeindex")
    times.write_bytes(second.with_suffix(".timeindex").read_bytes())
    assert {each.path for each in stored.damage()} == {str(first), str(times)}
    segment = LogVerification(
        stored.directory.filesystem,
        str(stored.directory.path),
        name="orders/0",
        checkpoint=stored.checkpoint,
    ).segments[0]
    rebuild_indexes(stored.directory.filesystem, segment, index_interval_bytes=1000)
    assert stored.damage() == []


def test_torn_end_after_a_crash_is_no_damage(stored: Stored) -> None:
    active = stored.files(".log")[-1]
    whole = active.read_bytes()
    active.write_bytes(whole[:-5] + bytes(1000))
    crashed = LogCheckpoint(recovery_point=stored.checkpoint.recovery_point - 3)
    snapshot = stored.files(".snapshot")[-1]
    snapshot.unlink()
    report = stored.verify(crashed)
    [note] = [each for each in report.findings if "torn" in each.problem]
    last = max(batches_in(whole))
    assert (note.path, note.offset, note.is_damage) == (str(active), last, False)
    assert not any(each.is_damage for each in report.findings)


def test_files_that_do_not_belong_there_are_told(stored: Stored) -> None:
    names = ("x.log", f"{9:020d}.index", f"{0:020d}.log.cut", f"{0:020d}.log.deleted", "a.tmp")
    for name in names:
        (stored.directory.path / name).write_bytes(b"")
    report = stored.verify()
    assert {Path(each.path).name for each in report.findings} == set(names)
    assert not any(each.is_damage for each in report.findings)


def _assert_exact(finding: Finding, content: bytes, position: int) -> None:
    """It names the batch that holds the byte."""
    at = 0
    for offset, batch in batches_in(content).items():
        if at <= position < at + len(batch):
            assert (finding.position, finding.offset) == (at, offset), (position, str(finding))
            assert finding.expected
            assert finding.found
            return
        at += len(batch)
    raise AssertionError(f"no batch at {position}")
