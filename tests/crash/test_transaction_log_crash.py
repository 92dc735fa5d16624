"""A crash at every single step of a log with transactions: what is left is what its batches say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.clock import ManualClock
from millstream.storage.local_log import LocalLog
from millstream.storage.log_walk import sound_batches
from millstream.storage.producer_state import ProducerStates
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment_cache import SegmentCache
from tests.fakes.crash_points import PHASES, STEPS
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFilesystem
from tests.fakes.log_steps import SMALL_SEGMENTS, append, fill
from tests.fakes.sample_batches import abort_marker, commit_marker, transactional_batch

DIRECTORY = "/data/orders/0"
MOMENTS: tuple[CrashMoment, ...] = ("before", "halfway")


class Owner:
    """Opens the log, and remembers what it would write down about it."""

    def __init__(self, disk: FakeFilesystem, checkpoint: LogCheckpoint | None = None) -> None:
        self.disk = disk
        self.checkpoint = checkpoint

    def open(self) -> LocalLog:
        log = LocalLog(
            self.disk,
            DIRECTORY,
            name="orders/0",
            settings=SMALL_SEGMENTS,
            clock=ManualClock(),
            cache=SegmentCache(2),
            checkpoint=self.checkpoint,
            before_truncate=lambda: self.note(log),
        )
        # Whoever has it open says so, and that it has not stopped cleanly.
        self.note(log)
        return log

    def note(self, log: LocalLog) -> None:
        self.checkpoint = log.checkpoint()


def live(owner: Owner) -> None:
    """Transactions that end in the segment they began in, in the next, and some segments on."""
    log = owner.open()
    append(log, transactional_batch(0, producer=1), transactional_batch(0, producer=2))
    for number in range(4):
        append(log, transactional_batch(number), abort_marker())
        fill(log, 3)
        log.sync()
        owner.note(log)
    append(log, abort_marker(producer=1, epoch=1), transactional_batch(4))
    fill(log, 8)
    append(log, transactional_batch(0, producer=1, epoch=1))
    log.close()
    owner.note(log)
    log = owner.open()
    append(log, abort_marker(epoch=1), abort_marker(producer=2))
    fill(log, 9)
    append(log, commit_marker(producer=1, epoch=1), transactional_batch(0, epoch=1))
    log.sync()
    log.truncate(log.end_offset - 4)
    fill(log, 6)
    log.close()


def prove(log: LocalLog) -> None:
    """A log knows what its batches say, and has nothing to mend to know it."""
    states = ProducerStates()
    for header, batch in sound_batches(log, 0):
        states.replay(header, batch, timestamp_ms=0)
    expected = list(states.open_transactions())
    assert list(log.producers.open_transactions()) == expected
    stable = min((each.first_offset for each in expected), default=log.end_offset)
    assert log.last_stable_offset == stable
    assert log.aborted_transactions(0, log.end_offset) == states.transactions.aborted
    assert log.report.rebuilt_indexes == []


def crashed(moment: CrashMoment, every: int, phase: int = 0) -> Iterator[Owner]:
    whole = Owner(new_disk())
    live(whole)
    first = new_disk().operation_count + 1
    for operation in range(first + phase % every, whole.disk.operation_count + 1, every):
        if moment == "halfway" and not whole.disk.operations[operation - 1].startswith("write"):
            continue
        owner = Owner(new_disk())
        owner.disk.crash_at(operation, moment)
        with pytest.raises(Crash):
            live(owner)
        yield owner


def new_disk() -> FakeFilesystem:
    disk = FakeFilesystem()
    disk.make_directory("/data")
    return disk


def prove_recovery(disk: FakeFilesystem, checkpoint: LogCheckpoint | None) -> None:
    owner = Owner(disk, checkpoint)
    log = owner.open()
    prove(log)
    again = Owner(disk.after_crash("lost"), log.checkpoint())
    log = again.open()
    prove(log)
    # It lives on, and comes back from a clean stop.
    fill(log, 6)
    prove(log)
    log.close()
    again.note(log)
    prove(again.open())


def test_whole_life_is_what_its_batches_say() -> None:
    owner = Owner(new_disk())
    live(owner)
    log = Owner(owner.disk).open()
    prove(log)
    assert len(log.aborted_transactions(0, log.end_offset)) == 7
    assert len(log.segments()) > 6


@STEPS
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("mode", ["kept", "lost"])
def test_transactions_after_a_crash_at_any_step(
    mode: CrashMode, moment: CrashMoment, every: int
) -> None:
    for owner in crashed(moment, every, PHASES[mode]):
        prove_recovery(owner.disk.after_crash(mode), owner.checkpoint)


@STEPS
@pytest.mark.parametrize("seed", range(2))
def test_transactions_on_a_torn_disk(seed: int, every: int) -> None:
    for owner in crashed("before", every, PHASES["torn"] + seed):
        torn = owner.disk.after_crash("torn", seed * 1000 + owner.disk.operation_count)
        prove_recovery(torn, owner.checkpoint if seed else None)


def test_transactions_after_a_crash_at_any_step_of_a_recovery() -> None:
    for owner in crashed("before", every=25):
        torn = owner.disk.after_crash("torn", owner.disk.operation_count)
        steps = torn.after_crash("kept")
        Owner(steps, owner.checkpoint).open()
        for operation in range(1, steps.operation_count + 1):
            interrupted = torn.after_crash("kept")
            interrupted.crash_at(operation, "before")
            with pytest.raises(Crash):
                Owner(interrupted, owner.checkpoint).open()
            for mode in ("kept", "lost"):
                prove(Owner(interrupted.after_crash(mode), owner.checkpoint).open())
