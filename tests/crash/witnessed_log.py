"""A log, and the ledger that is kept of all that is done to it."""

from __future__ import annotations

from millstream.storage.local_log import LocalLog
from millstream.storage.log_sync import LogSync
from tests.crash.ledger import Ledger
from tests.fakes.sample_batches import batch_of

PRODUCERS = (7, 8)


class WitnessedLog:
    """Takes every step with its ledger."""

    def __init__(self, log: LocalLog, ledger: Ledger) -> None:
        self.log = log
        self.ledger = ledger

    def append(self, *batches: bytearray) -> None:
        """Append batches that must all be taken."""
        first = len(self.ledger.batches)
        for batch in batches:
            self.ledger.note_sent(batch)
        expected = [sent.header.base_offset for sent in self.ledger.batches[first:]]
        assert self.log.append(batches) == expected

    def append_plain(self, *sizes: int, now_ms: int) -> None:
        """A batch of two records for each size, which is that of one record's value."""
        number = len(self.ledger.batches)
        self.append(
            *(
                batch_of(b"%d" % (number + n), b"." * size, timestamps_ms=[now_ms, now_ms])
                for n, size in enumerate(sizes)
            )
        )

    def append_next_of(self, producer: int, *, now_ms: int, count: int = 1) -> None:
        """The next batch of an idempotent producer."""
        last, epoch = self.ledger.last_of(producer), self.ledger.epoch
        follows = last is not None and last.header.producer_epoch == epoch
        self.append(
            batch_of(
                *(b"of %d" % producer for _ in range(count)),
                timestamps_ms=[now_ms] * count,
                producer_id=producer,
                epoch=epoch,
                sequence=last.header.last_sequence + 1 if last and follows else 0,
            )
        )

    def repeat(self, producer: int) -> None:
        """Send again what a producer sent last."""
        sent = self.ledger.last_of(producer)
        assert sent is not None
        assert self.log.append([bytearray(sent.content)]) == [sent.header.base_offset]

    def begin_sync(self) -> LogSync:
        return self.log.begin_sync()

    def finish_sync(self, task: LogSync) -> None:
        """Raises StorageFailure."""
        try:
            task.run()
        except OSError as error:
            self.log.finish_sync(task, error)
            assert self.log.failure is not None
            raise self.log.failure from error
        self.log.finish_sync(task, None)
        assert self.log.synced_offset >= task.target_offset
        self.ledger.note_synced(self.log.synced_offset)

    def sync(self) -> None:
        self.finish_sync(self.begin_sync())

    def roll(self) -> None:
        self.log.roll_if_due()

    def expire(self) -> list[str]:
        """Take out what is past its retention; the files to be removed."""
        ledger = self.ledger
        ledger.start_allowed = max(ledger.start_allowed, self.log.segments()[-1].base_offset)
        paths = self.log.expire()
        ledger.start_allowed = self.log.start_offset
        return paths

    def delete_records(self, before_offset: int) -> None:
        ledger = self.ledger
        ledger.start_allowed = max(ledger.start_allowed, before_offset)
        assert self.log.delete_records(before_offset) == before_offset
        ledger.start_promised = before_offset
        # What is deleted was synced first.
        ledger.note_synced(self.log.synced_offset)

    def truncate(self, end_offset: int) -> None:
        self.ledger.begin_truncation(end_offset, start_offset=self.log.start_offset)
        self.log.truncate(end_offset)
        self.ledger.note_truncated()
        assert self.log.end_offset == self.ledger.end_offset
        self.ledger.note_synced(self.log.synced_offset)

    def close(self) -> None:
        self.log.close()
        self.ledger.note_synced(self.ledger.end_offset)

    def live_on(self, now_ms: int) -> None:
        """What a log does after a restart: take more of the same, and sync it."""
        for producer in PRODUCERS:
            self.append_next_of(producer, now_ms=now_ms)
        self.append_plain(40, 700, 900, now_ms=now_ms)
        self.sync()
