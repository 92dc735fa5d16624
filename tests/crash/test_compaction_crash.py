"""A crash at every single step of compactions, and what the next process finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from millstream.clock import ManualClock
from millstream.records import Record
from millstream.storage.recovery import LogCheckpoint
from tests.fakes.crash_points import PHASES, STEPS
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFilesystem
from tests.fakes.keyed_log import COMPACTED, DELETE_RETENTION_MS, KeyedLog, Pair
from tests.fakes.log_steps import first_at

DIRECTORY = "/data/users-0"
# So small that one pass writes several segments.
SETTINGS = replace(COMPACTED, segment_bytes=450)
# Room for three keys, of which there are more.
BUFFER_BYTES = 600
MOMENTS: tuple[CrashMoment, ...] = ("before", "halfway")
TORN_SEEDS = 2


class CompactedRun:
    """A log's life with compactions, and what must be true of the log at any moment of it."""

    def __init__(self, disk: FakeFilesystem) -> None:
        self.disk = disk
        self.clock = ManualClock()
        self.sent: list[Record] = []
        self.synced_offset = 0
        # Tombstones that a step has begun to let go of.
        self.let_go: set[int] = set()

    def run(self) -> None:
        keyed = self.keyed = KeyedLog(DIRECTORY, SETTINGS, filesystem=self.disk, clock=self.clock)
        for number in range(4):
            self._put(keyed, (b"a", b"%d" % number), (b"gone", b"x"), (b"k%d" % number, b"y" * 60))
            self._archive(keyed)
        self._put(keyed, (b"gone", None), (b"b", b"1"))
        self._archive(keyed)
        self._put(keyed, (b"a", b"new"))
        keyed.compact(buffer_bytes=BUFFER_BYTES)
        self._archive(keyed)
        self.clock.advance_ms(DELETE_RETENTION_MS)
        self.let_go = {record.offset for record in self.sent if record.value is None}
        keyed.compact(buffer_bytes=BUFFER_BYTES)
        keyed.reopen()
        self._put(keyed, (b"b", b"2"), (b"c", b"1"))
        self._archive(keyed)
        keyed.compact()

    def _put(self, keyed: KeyedLog, *pairs: Pair) -> None:
        offset = keyed.log.end_offset
        now_ms = self.clock.now_ms()
        self.sent += [
            Record(offset + number, now_ms, key, value) for number, (key, value) in enumerate(pairs)
        ]
        keyed.put_at(now_ms, *pairs)

    def _archive(self, keyed: KeyedLog) -> None:
        keyed.archive()
        self.synced_offset = keyed.log.end_offset

    def checkpoints(self) -> list[LogCheckpoint | None]:
        """Those that may be the durable one: it may lag behind by any time."""
        return [None, LogCheckpoint(self.synced_offset)]

    def prove(self, keyed: KeyedLog) -> list[Record]:
        """Prove that a log holds what it must; returns what it holds."""
        end = keyed.log.end_offset
        assert self.synced_offset <= end <= len(self.sent)
        assert keyed.log.report.damage == []
        assert keyed.log.report.set_aside == []
        found = keyed.records()
        assert found == [self.sent[record.offset] for record in found]
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        newest = {record.key: record.offset for record in self.sent[:end]}
        assert set(newest.values()) - self.let_go <= set(offsets)
        # What a tombstone deletes never comes back.
        latest = {record.key: record.value for record in found}
        wanted = {key: self.sent[offset].value for key, offset in newest.items()}
        assert {k: v for k, v in latest.items() if v} == {k: v for k, v in wanted.items() if v}
        for time_ms in {record.timestamp_ms for record in self.sent}:
            assert keyed.log.offset_for_time(time_ms) == first_at(found, time_ms)
        return found


def crashed_runs(moment: CrashMoment, every: int, phase: int) -> Iterator[CompactedRun]:
    whole = CompactedRun(FakeFilesystem())
    whole.run()
    for operation in range(1 + phase % every, 1 + whole.disk.operation_count, every):
        if moment == "halfway" and not whole.disk.operations[operation - 1].startswith("write"):
            continue
        ended = CompactedRun(FakeFilesystem())
        ended.disk.crash_at(operation, moment)
        with pytest.raises(Crash):
            ended.run()
        yield ended


def recovered(
    ended: CompactedRun, disk: FakeFilesystem, checkpoint: LogCheckpoint | None
) -> KeyedLog:
    clock = ManualClock(ended.clock.now_ms())
    return KeyedLog(DIRECTORY, SETTINGS, filesystem=disk, clock=clock, checkpoint=checkpoint)


def prove_recovery(
    ended: CompactedRun, disk: FakeFilesystem, checkpoint: LogCheckpoint | None
) -> None:
    """Recover, crash again at once, recover, and compact to the end."""
    found = ended.prove(recovered(ended, disk, checkpoint))
    assert not [name for name in disk.sizes(DIRECTORY) if "cleaned" in name or "swap" in name]
    again = recovered(ended, disk.after_crash("lost"), checkpoint)
    assert ended.prove(again) == found
    again.compact(buffer_bytes=BUFFER_BYTES)
    ended.prove(again)
    archived_end = again.log.segments()[-1].base_offset
    keys = [record.key for record in again.records() if record.offset < archived_end]
    assert len(keys) == len(set(keys))
    again.log.close()


def test_run_compacts_in_several_passes_and_swaps() -> None:
    whole = CompactedRun(FakeFilesystem())
    whole.run()
    whole.prove(whole.keyed)
    swaps = [what for what in whole.disk.operations if what.startswith("rename") and "swap" in what]
    assert len(swaps) >= 8


@STEPS
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("mode", ["kept", "lost"])
def test_crash_at_any_step_keeps_the_newest_of_each_key(
    mode: CrashMode, moment: CrashMoment, every: int
) -> None:
    for ended in crashed_runs(moment, every, PHASES[mode]):
        for checkpoint in ended.checkpoints():
            prove_recovery(ended, ended.disk.after_crash(mode), checkpoint)


@STEPS
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("seed", range(TORN_SEEDS))
def test_power_loss_at_any_step_keeps_the_newest_of_each_key(
    moment: CrashMoment, seed: int, every: int
) -> None:
    for number, ended in enumerate(crashed_runs(moment, every, PHASES["torn"] + seed)):
        checkpoints = ended.checkpoints()
        disk = ended.disk.after_crash("torn", seed * 1000 + number)
        prove_recovery(ended, disk, checkpoints[number % len(checkpoints)])
