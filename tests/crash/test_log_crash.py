"""A crash at every single step of a log's life, and what the next process finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.storage.recovery_report import RecoveryReport
from tests.crash.ledger import Found, Ledger
from tests.crash.scripted_run import Checkpoint, LogOwner, run
from tests.fakes.crash_points import PHASES, STEPS
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFilesystem

# The disk right after one operation is the disk before the next, of which more was promised: so
# `after` asks for nothing that `before` does not.
MOMENTS: tuple[CrashMoment, ...] = ("before", "halfway")
ALL_MOMENTS: tuple[CrashMoment, ...] = ("before", "halfway", "after")
PARTS = 4
TORN_SEEDS = 2
# A crash in recovery is tried on every so many-th of the disks that a first crash may leave.
EVERY = 24


def crashed_runs(
    moment: CrashMoment, part: int, *, every: int = 1, phase: int = 0
) -> Iterator[LogOwner]:
    """The run, ended at every operation of one part of it in turn."""
    whole = LogOwner(FakeFilesystem(), Ledger())
    run(whole)
    size = whole.disk.operation_count
    first, last = 1 + size * part // PARTS, size * (part + 1) // PARTS
    for operation in range(first + phase % every, last + 1, every):
        if moment == "halfway" and not whole.disk.operations[operation - 1].startswith("write"):
            continue
        owner = LogOwner(FakeFilesystem(), Ledger())
        owner.disk.crash_at(operation, moment)
        with pytest.raises(Crash):
            run(owner)
        assert owner.disk.operation_count == operation
        yield owner


def restarted(owner: LogOwner, disk: FakeFilesystem, checkpoint: Checkpoint) -> LogOwner:
    """The owner in a new process, with what must be true of the log from the old one."""
    again = LogOwner(disk, owner.ledger.copy())
    again.clock.advance_ms(owner.clock.now_ms() - again.clock.now_ms())
    again.checkpoints = [checkpoint]
    return again


def recovered(owner: LogOwner) -> Found:
    owner.open()
    return owner.ledger.take_over(owner.log)


def prove_recovery(owner: LogOwner, disk: FakeFilesystem, checkpoint: Checkpoint) -> RecoveryReport:
    """Recover, crash again at once, recover, live on, and lose power once more."""
    first = restarted(owner, disk, checkpoint)
    found = recovered(first)
    kept = restarted(first, disk.after_crash("kept"), first.log.checkpoint())
    assert recovered(kept) == found
    second = restarted(first, disk.after_crash("lost"), first.log.checkpoint())
    assert recovered(second) == found
    log = second.open()
    log.live_on(second.clock.now_ms())
    third = restarted(second, second.disk.after_crash("lost"), second.checkpoints[0])
    recovered(third)
    assert third.ledger.end_offset == second.ledger.end_offset
    return first.log.report


@STEPS
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("mode", ["kept", "lost"])
def test_crash_at_any_step_keeps_what_was_synced(
    mode: CrashMode, moment: CrashMoment, part: int, every: int
) -> None:
    for owner in crashed_runs(moment, part, every=every, phase=PHASES[mode]):
        for checkpoint in {owner.checkpoints[0], owner.checkpoints[-1]}:
            report = prove_recovery(owner, owner.disk.after_crash(mode), checkpoint)
            if (mode, moment) == ("kept", "before"):
                # No write was cut short and none was lost, so there is nothing to mend.
                assert (report.torn, report.set_aside) == ([], [])


@STEPS
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("seed", range(TORN_SEEDS))
def test_torn_disk_at_any_step_keeps_what_was_synced(
    seed: int, moment: CrashMoment, part: int, every: int
) -> None:
    for owner in crashed_runs(moment, part, every=every, phase=PHASES["torn"] + seed):
        disk = owner.disk.after_crash("torn", seed * 1000 + owner.disk.operation_count)
        prove_recovery(owner, disk, owner.checkpoints[seed % len(owner.checkpoints)])


def prove_recovery_of_recovery(
    owner: LogOwner, torn: FakeFilesystem, checkpoint: Checkpoint
) -> None:
    """Crash at every step of a recovery, and recover from that."""
    steps = torn.after_crash("kept")
    recovered(restarted(owner, steps, checkpoint))
    for operation in range(1, steps.operation_count + 1):
        interrupted = torn.after_crash("kept")
        interrupted.crash_at(operation, "halfway" if operation % 2 else "before")
        with pytest.raises(Crash):
            recovered(restarted(owner, interrupted, checkpoint))
        for mode in ("kept", "lost"):
            recovered(restarted(owner, interrupted.after_crash(mode), checkpoint))


@pytest.mark.parametrize("part", range(PARTS))
def test_crash_at_any_step_of_a_recovery_loses_nothing_more(part: int) -> None:
    for owner in crashed_runs("before", part, every=EVERY):
        torn = owner.disk.after_crash("torn", owner.disk.operation_count)
        prove_recovery_of_recovery(owner, torn, owner.checkpoints[-1])


@pytest.mark.torture
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("moment", ALL_MOMENTS)
def test_crash_at_any_step_with_any_checkpoint_and_any_tear(moment: CrashMoment, part: int) -> None:
    for owner in crashed_runs(moment, part):
        for checkpoint in owner.checkpoints:
            for mode in ("kept", "lost"):
                prove_recovery(owner, owner.disk.after_crash(mode), checkpoint)
            for seed in range(20):
                prove_recovery(owner, owner.disk.after_crash("torn", seed), checkpoint)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(PARTS))
def test_crash_at_any_step_of_any_recovery(part: int) -> None:
    for owner in crashed_runs("before", part):
        for seed in range(3):
            torn = owner.disk.after_crash("torn", seed)
            prove_recovery_of_recovery(owner, torn, owner.checkpoints[0])
