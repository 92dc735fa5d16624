"""A crash at every single step of a data directory's life, its checkpoint file included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.clock import ManualClock
from millstream.errors import NotFound
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory
from tests.crash.ledger import Ledger
from tests.crash.scripted_run import RETENTION_MS, SETTINGS, remove
from tests.crash.witnessed_log import WitnessedLog
from tests.fakes.crash_points import PHASES, STEPS
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFilesystem

PATH = "/data"
TOPICS = ("orders", "payments")
MOMENTS: tuple[CrashMoment, ...] = ("before", "halfway")
PARTS = 3
# One thread, so that every run takes the same steps in the same order.
STORAGE = StorageSettings(closing_threads=1)


class Broker:
    """A process that has the directory open, and the ledgers of its logs."""

    def __init__(self, disk: FakeFilesystem) -> None:
        self.disk = disk
        self.clock = ManualClock()
        self.ledgers: dict[str, Ledger] = {}

    def restarted(self, disk: FakeFilesystem) -> Broker:
        again = Broker(disk)
        again.clock.advance_ms(self.clock.now_ms() - again.clock.now_ms())
        again.ledgers = {topic: ledger.copy() for topic, ledger in self.ledgers.items()}
        return again

    def open(self) -> None:
        self.directory = DataDirectory(
            self.disk, PATH, storage=STORAGE, defaults=SETTINGS, clock=self.clock
        )

    def create(self, topic: str) -> WitnessedLog:
        self.directory.create(topic, 0)
        self.ledgers[topic] = Ledger()
        return self.log(topic)

    def log(self, topic: str) -> WitnessedLog:
        return WitnessedLog(self.directory.log(topic, 0), self.ledgers[topic])

    def checkpoint(self) -> None:
        write = self.directory.prepare_checkpoint()
        if write is not None:
            write.run()

    def close(self) -> None:
        self.directory.close()
        for ledger in self.ledgers.values():
            ledger.note_synced(ledger.end_offset)

    def recover(self) -> None:
        """Open the directory after a crash; every log in it must be what it may be."""
        self.open()
        assert self.directory.take_notes() == []
        for topic in TOPICS:
            try:
                log = self.directory.log(topic, 0)
            except NotFound:
                # Then its creation was never answered. It may have come through all the same.
                assert topic not in self.ledgers
                continue
            self.ledgers.setdefault(topic, Ledger()).take_over(log)
            assert log.report.damage == []


def run(broker: Broker) -> None:
    """Two logs: one is cut now and then, one grows and expires; two stops and starts."""
    broker.open()
    orders = broker.create("orders")
    orders.append_plain(100, 900, now_ms=broker.clock.now_ms())
    orders.sync()
    broker.checkpoint()
    payments = broker.create("payments")
    for _ in range(3):
        payments.append_next_of(7, now_ms=broker.clock.now_ms())
        payments.append_plain(1000, now_ms=broker.clock.now_ms())
    orders.append_next_of(8, now_ms=broker.clock.now_ms())
    orders.append_plain(1000, 1000, now_ms=broker.clock.now_ms())
    orders.sync()
    broker.checkpoint()
    _cut_while_a_checkpoint_is_late(broker)
    payments.sync()
    broker.clock.advance_ms(2 * RETENTION_MS)
    deleted = payments.expire()
    broker.checkpoint()
    remove(broker.disk, deleted)
    broker.close()
    broker.open()
    broker.log("payments").append_next_of(7, now_ms=broker.clock.now_ms())
    broker.log("orders").append_plain(300, now_ms=broker.clock.now_ms())
    broker.log("orders").sync()
    broker.close()


def _cut_while_a_checkpoint_is_late(broker: Broker) -> None:
    """A thread is to write a checkpoint, and has not yet when the log is cut below it."""
    orders = broker.log("orders")
    orders.append_plain(50, now_ms=broker.clock.now_ms())
    orders.sync()
    late = broker.directory.prepare_checkpoint()
    assert late is not None
    orders.truncate(orders.log.end_offset - 3)
    late.run()
    orders.append_next_of(8, now_ms=broker.clock.now_ms())
    orders.append_plain(600, now_ms=broker.clock.now_ms())


def crashed_runs(
    moment: CrashMoment, part: int, *, every: int = 1, phase: int = 0
) -> Iterator[Broker]:
    whole = Broker(FakeFilesystem())
    run(whole)
    size = whole.disk.operation_count
    first, last = 1 + size * part // PARTS, size * (part + 1) // PARTS
    for operation in range(first + phase % every, last + 1, every):
        if moment == "halfway" and not whole.disk.operations[operation - 1].startswith("write"):
            continue
        broker = Broker(FakeFilesystem())
        broker.disk.crash_at(operation, moment)
        with pytest.raises(Crash):
            run(broker)
        yield broker


def prove_recovery(broker: Broker, disk: FakeFilesystem) -> None:
    """Recover, live on, lose power, and stop cleanly in the end."""
    first = broker.restarted(disk)
    first.recover()
    for topic in first.ledgers:
        first.log(topic).live_on(first.clock.now_ms())
    second = first.restarted(disk.after_crash("lost"))
    second.recover()
    ends = {topic: ledger.end_offset for topic, ledger in first.ledgers.items()}
    assert {topic: ledger.end_offset for topic, ledger in second.ledgers.items()} == ends
    second.close()
    third = second.restarted(second.disk.after_crash("lost"))
    third.recover()
    assert all(report.clean for report in third.directory.reports)


@STEPS
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("mode", ["kept", "lost", "torn"])
def test_crash_at_any_step_keeps_what_was_synced_in_every_log(
    mode: CrashMode, moment: CrashMoment, part: int, every: int
) -> None:
    for broker in crashed_runs(moment, part, every=every, phase=PHASES[mode]):
        prove_recovery(broker, broker.disk.after_crash(mode, broker.disk.operation_count))


@pytest.mark.torture
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("moment", [*MOMENTS, "after"])
def test_crash_at_any_step_with_any_tear(moment: CrashMoment, part: int) -> None:
    for broker in crashed_runs(moment, part):
        for seed in range(20):
            prove_recovery(broker, broker.disk.after_crash("torn", seed))
