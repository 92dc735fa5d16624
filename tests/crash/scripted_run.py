"""One log's life on a disk that may crash at any step of it.

`LogOwner` stands in for the data directory, and remembers which checkpoints may be the durable one
when the process dies. `run` takes the log through every kind of step that changes its directory.
"""

from __future__ import annotations

from millstream.clock import ManualClock
from millstream.settings.log import LogSettings
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment_cache import SegmentCache
from tests.crash.ledger import Ledger
from tests.crash.witnessed_log import WitnessedLog
from tests.fakes.fake_filesystem import FakeFilesystem

DIRECTORY = "/data/topics/orders/0"
RETENTION_MS = 60_000
SETTINGS = LogSettings(
    segment_bytes=1500,
    index_interval_bytes=200,
    max_message_bytes=4000,
    retention_ms=RETENTION_MS,
    producer_id_expiration_ms=100 * RETENTION_MS,
)

Checkpoint = LogCheckpoint | None


class LogOwner:
    """Opens the log and writes down its checkpoints."""

    def __init__(self, disk: FakeFilesystem, ledger: Ledger) -> None:
        self.disk = disk
        self.ledger = ledger
        self.clock = ManualClock()
        # Any of these may be the one that is found after a crash; the newest comes last.
        self.checkpoints: list[Checkpoint] = [None]

    def open(self) -> WitnessedLog:
        checkpoint = self.checkpoints[-1]
        if checkpoint is not None:
            # From here on the log does not count as cleanly stopped.
            self.checkpoints = [LogCheckpoint(checkpoint.recovery_point)]
        self.log = LocalLog(
            self.disk,
            DIRECTORY,
            name="orders/0",
            settings=SETTINGS,
            clock=self.clock,
            cache=SegmentCache(2),
            checkpoint=checkpoint,
            before_truncate=self.forget_older_checkpoints,
        )
        return WitnessedLog(self.log, self.ledger)

    def note_checkpoint(self) -> None:
        self.checkpoints.append(self.log.checkpoint())

    def forget_older_checkpoints(self) -> None:
        """The one of now is durable."""
        self.checkpoints = [self.log.checkpoint()]


def run(owner: LogOwner) -> None:
    """Append, roll, sync, delete, expire, truncate, close and open again, several times."""
    log = owner.open()
    _begin(owner, log)
    _fill_and_expire(owner, log)
    _truncate_and_close(owner, log)
    log = owner.open()
    _truncate_before_the_start(owner, log)
    log.close()
    owner.forget_older_checkpoints()


def _begin(owner: LogOwner, log: WitnessedLog) -> None:
    now_ms = owner.clock.now_ms()
    # All that this producer ever writes is deleted before anything else remembers it.
    log.append_next_of(9, now_ms=now_ms)
    log.append_plain(10, 20, 30, now_ms=now_ms)
    log.delete_records(2)
    log.append_next_of(7, now_ms=now_ms, count=3)
    log.sync()
    owner.note_checkpoint()
    log.append_next_of(8, now_ms=now_ms)
    # One append that rolls twice on its way.
    log.append_plain(600, 900, 700, 20, now_ms=now_ms)
    log.repeat(7)
    under_way = log.begin_sync()
    log.append_next_of(7, now_ms=now_ms)
    log.append_plain(500, 1200, now_ms=now_ms)
    log.finish_sync(under_way)
    # In the middle of a batch that only just was synced.
    log.delete_records(10)
    owner.note_checkpoint()


def _fill_and_expire(owner: LogOwner, log: WitnessedLog) -> None:
    for _ in range(7):
        log.append_next_of(8, now_ms=owner.clock.now_ms(), count=2)
        owner.clock.advance_ms(1000)
    log.append_plain(1300, 1300, now_ms=owner.clock.now_ms())
    log.sync()
    owner.note_checkpoint()
    owner.clock.advance_ms(RETENTION_MS - 3000)
    log.append_next_of(7, now_ms=owner.clock.now_ms())
    remove(owner.disk, log.expire())
    owner.clock.advance_ms(5000)
    log.append_plain(800, now_ms=owner.clock.now_ms())
    deleted = log.expire()
    log.append_plain(1000, 10, now_ms=owner.clock.now_ms())
    log.sync()
    remove(owner.disk, deleted)
    owner.note_checkpoint()
    # A segment that is full right after all of it was synced, but for its indexes.
    log.append_plain(1400, 20, now_ms=owner.clock.now_ms())


def _truncate_and_close(owner: LogOwner, log: WitnessedLog) -> None:
    now_ms = owner.clock.now_ms()
    log.append_plain(1200, 1200, 1200, now_ms=now_ms)
    # Back over several segments, into one of which the end was never synced.
    log.truncate(log.log.end_offset - 9)
    log.append_next_of(8, now_ms=now_ms)
    log.append_plain(1000, now_ms=now_ms)
    log.repeat(8)
    # Within the active segment.
    log.truncate(log.log.end_offset - 1)
    log.append_plain(50, 60, now_ms=now_ms)
    log.append_next_of(7, now_ms=now_ms)
    log.sync()
    owner.note_checkpoint()
    log.append_plain(300, now_ms=now_ms)
    log.close()
    owner.note_checkpoint()


def _truncate_before_the_start(owner: LogOwner, log: WitnessedLog) -> None:
    now_ms = owner.clock.now_ms()
    log.append_next_of(7, now_ms=now_ms)
    log.append_plain(900, 900, now_ms=now_ms)
    log.delete_records(log.log.end_offset - 2)
    remove(owner.disk, log.expire())
    # All that is left.
    log.truncate(log.log.start_offset)
    log.append_next_of(8, now_ms=now_ms)
    log.append_plain(900, 900, now_ms=now_ms)
    log.delete_records(log.log.end_offset - 1)
    # More than that: the log goes on before its old start.
    log.truncate(log.log.end_offset - 4)
    log.append_next_of(8, now_ms=now_ms)
    log.sync()
    owner.note_checkpoint()
    log.append_plain(100, now_ms=now_ms)


def remove(disk: FakeFilesystem, paths: list[str]) -> None:
    for path in paths:
        disk.remove(path)
