"""A crash at every single step of compactions of transactions, and what readers find then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from millstream.clock import ManualClock
from millstream.records import ControlType
from millstream.storage.recovery import LogCheckpoint
from tests.fakes.committed_reader import committed_records
from tests.fakes.crash_points import PHASES, STEPS
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFilesystem
from tests.fakes.keyed_log import COMPACTED, DELETE_RETENTION_MS, KeyedLog, Pair
from tests.fakes.transaction_truth import Truth, Written

DIRECTORY = "/data/users-0"
# So small that the records of a transaction and its marker come to lie in different new segments.
SETTINGS = replace(COMPACTED, segment_bytes=450)
BUFFER_BYTES = 600
MOMENTS: tuple[CrashMoment, ...] = ("before", "halfway")
TORN_SEEDS = 2
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


class TransactionRun:
    """A log's life with transactions and compactions, and what must be true of it at any moment."""

    def __init__(self, disk: FakeFilesystem) -> None:
        self.disk = disk
        self.clock = ManualClock()
        self.written: list[Written] = []
        self.synced_offset = 0

    def run(self) -> None:
        keyed = self.keyed = KeyedLog(DIRECTORY, SETTINGS, filesystem=self.disk, clock=self.clock)
        for number in range(2):
            self._put(None, (b"a", b"%d" % number), (b"k%d" % number, b"y" * 60))
            self._put(7, (b"a", b"t%d" % number), (b"x", b"aborted" * 9))
            self._put(8, (b"b", b"t%d" % number), (b"gone", b"t"))
            self._archive()
            self._end(7, COMMIT if number else ABORT)
        self._put(8, (b"gone", None))
        self._archive()
        # Their markers are not synced when they decide what stays.
        self._end(8, COMMIT)
        self._put(9, (b"c", b"open"))
        keyed.compact(buffer_bytes=BUFFER_BYTES)
        self._archive()
        self.clock.advance_ms(DELETE_RETENTION_MS)
        keyed.compact(buffer_bytes=BUFFER_BYTES)
        keyed.reopen()
        self._put(7, (b"a", b"new"), (b"x", b"again"))
        self._end(9, ABORT)
        self._end(7, COMMIT)
        self._archive()
        keyed.compact()

    def _put(self, producer_id: int | None, *pairs: Pair) -> None:
        self.written += [Written(producer_id, pair) for pair in pairs]
        if producer_id is None:
            self.keyed.put(*pairs)
        else:
            self.keyed.put_in(producer_id, *pairs)

    def _end(self, producer_id: int, kind: ControlType) -> None:
        self.written.append(Written(producer_id, None, kind))
        self.keyed.end(producer_id, kind)

    def _archive(self) -> None:
        self.keyed.archive()
        self.synced_offset = self.keyed.log.end_offset

    def checkpoints(self) -> list[LogCheckpoint | None]:
        """Those that may be the durable one: it may lag behind by any time."""
        return [None, LogCheckpoint(self.synced_offset)]

    def prove(self, keyed: KeyedLog) -> None:
        """Prove that a log holds what it must."""
        log = keyed.log
        assert self.synced_offset <= log.end_offset <= len(self.written)
        assert log.report.damage == []
        truth = Truth.of(self.written[: log.end_offset])
        assert log.last_stable_offset == truth.stable_offset
        open_now = {t.producer_id: t.first_offset for t in log.producers.open_transactions()}
        assert open_now == truth.under_way
        for max_bytes in (1, 1 << 20):
            records = committed_records(log, max_bytes=max_bytes)
            assert all(truth.committed[r.offset] == (r.key, r.value) for r in records)
            latest = {r.key: r.value for r in records}
            assert {k: v for k, v in latest.items() if v is not None} == truth.newest()


def crashed_runs(moment: CrashMoment, every: int, phase: int) -> Iterator[TransactionRun]:
    whole = TransactionRun(FakeFilesystem())
    whole.run()
    for operation in range(1 + phase % every, 1 + whole.disk.operation_count, every):
        if moment == "halfway" and not whole.disk.operations[operation - 1].startswith("write"):
            continue
        ended = TransactionRun(FakeFilesystem())
        ended.disk.crash_at(operation, moment)
        with pytest.raises(Crash):
            ended.run()
        yield ended


def recovered(
    ended: TransactionRun, disk: FakeFilesystem, checkpoint: LogCheckpoint | None
) -> KeyedLog:
    clock = ManualClock(ended.clock.now_ms())
    return KeyedLog(DIRECTORY, SETTINGS, filesystem=disk, clock=clock, checkpoint=checkpoint)


def prove_recovery(
    ended: TransactionRun, disk: FakeFilesystem, checkpoint: LogCheckpoint | None
) -> None:
    """Recover, crash again at once, recover, and compact to the end."""
    keyed = recovered(ended, disk, checkpoint)
    ended.prove(keyed)
    assert not [name for name in disk.sizes(DIRECTORY) if "cleaned" in name or "swap" in name]
    again = recovered(ended, disk.after_crash("lost"), checkpoint)
    assert again.records() == keyed.records()
    ended.prove(again)
    for _ in range(2):
        again.compact(buffer_bytes=BUFFER_BYTES)
        ended.prove(again)
        again.clock.advance_ms(DELETE_RETENTION_MS)
    again.log.close()


def test_run_drops_records_and_markers_in_several_passes_and_swaps() -> None:
    whole = TransactionRun(FakeFilesystem())
    whole.run()
    whole.prove(whole.keyed)
    swaps = [what for what in whole.disk.operations if what.startswith("rename") and "swap" in what]
    assert len(swaps) >= 8
    aborted_indexes = [what for what in whole.disk.operations if "cleaned.txnindex" in what]
    assert aborted_indexes
    markers = sum(written.kind is not None for written in whole.written)
    assert 1 <= len(whole.keyed.marker_offsets()) <= markers - 2


@STEPS
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("mode", ["kept", "lost"])
def test_crash_at_any_step_keeps_what_is_committed(
    mode: CrashMode, moment: CrashMoment, every: int
) -> None:
    for ended in crashed_runs(moment, every, PHASES[mode]):
        for checkpoint in ended.checkpoints():
            prove_recovery(ended, ended.disk.after_crash(mode), checkpoint)


@STEPS
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("seed", range(TORN_SEEDS))
def test_power_loss_at_any_step_keeps_what_is_committed(
    moment: CrashMoment, seed: int, every: int
) -> None:
    for number, ended in enumerate(crashed_runs(moment, every, PHASES["torn"] + seed)):
        checkpoints = ended.checkpoints()
        disk = ended.disk.after_crash("torn", seed * 1000 + number)
        prove_recovery(ended, disk, checkpoints[number % len(checkpoints)])
