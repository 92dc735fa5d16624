"""What a log must hold after a crash: kept beside the log while a test works on it.

The ledger writes down what a step may do before the step begins, and what it promised only once
the step has ended. So whenever the process dies, the ledger tells what must be there, what may be,
and by leaving it out, what must not.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from millstream.errors import OutOfOrderSequence
from millstream.records import BatchHeader, assign_offset, parse_header
from millstream.storage.batch_walk import LEADER_EPOCH, split_batches
from millstream.storage.local_log import LocalLog
from millstream.storage.partition_log import TimedOffset
from millstream.storage.producer_state import ProducerStates
from tests.fakes.sample_batches import batch_of

READ_BYTES = 700

# A producer's epoch and its last batches, without the time at which they were seen.
ProducerFacts = dict[int, tuple[int, list[tuple[int, ...]]]]


class Sent(NamedTuple):
    """A batch as the log must store it."""

    header: BatchHeader
    content: bytes

    @property
    def next_offset(self) -> int:
        return self.header.next_offset


class Found(NamedTuple):
    """What a log was seen to hold."""

    start_offset: int
    end_offset: int
    content: bytes
    producers: ProducerFacts


class Ledger:
    """One log's batches and promises."""

    def __init__(self) -> None:
        # Every batch of the log, also those deleted from its front; an append's before it begins.
        self.batches: list[Sent] = []
        self.end_offset = 0
        # What a sync that ended well has covered.
        self.synced_offset = 0
        # Where the log begins at least, by an answer given, and at most, by a step begun.
        self.start_promised = 0
        self.start_allowed = 0
        # The end that a truncation under way is to bring about.
        self.cut_offset: int | None = None
        # Producers begin a new epoch when all that they wrote is gone; what the log still knows of
        # an older one is its own affair, unless it speaks of batches that are no more.
        self.epoch = 0

    def copy(self) -> Ledger:
        """A ledger to go on with, where this one stays as it is."""
        other = copy(self)
        other.batches = list(self.batches)
        return other

    # Steps

    def note_sent(self, batch: bytearray) -> None:
        """A batch is going to be appended."""
        stored = bytearray(batch)
        assign_offset(stored, self.end_offset, LEADER_EPOCH)
        self.batches.append(Sent(parse_header(stored), bytes(stored)))
        self.end_offset = self.batches[-1].next_offset

    def note_synced(self, offset: int) -> None:
        self.synced_offset = max(self.synced_offset, offset)

    def begin_truncation(self, end_offset: int, *, start_offset: int) -> None:
        """No batch is to reach to or past an offset. Until that is done, every one may."""
        self.cut_offset = end_offset
        if end_offset > start_offset:
            reaching = (s.header for s in self.batches if s.header.last_offset >= end_offset)
            self.cut_offset = next(reaching).base_offset
        else:
            self.epoch += 1
        self.synced_offset = min(self.synced_offset, self.cut_offset)

    def note_truncated(self) -> None:
        assert self.cut_offset is not None
        self._end_at(self.cut_offset)

    def _end_at(self, offset: int) -> None:
        kept = [sent for sent in self.batches if sent.next_offset <= offset]
        if self.cut_offset == offset and kept and kept[-1].next_offset < offset:
            # Cut before the start of the log: nothing is left but the place where it goes on.
            kept = []
        assert not kept or kept[-1].next_offset == offset, "the log ends with a batch that was sent"
        self.batches = kept
        self.end_offset = offset
        self.cut_offset = None
        # Where the end is taken back behind the start, the start goes with it.
        self.start_promised = min(self.start_promised, offset)
        self.start_allowed = min(self.start_allowed, offset)

    def last_of(self, producer: int) -> Sent | None:
        """The newest batch of an idempotent producer."""
        mine = (sent for sent in reversed(self.batches) if sent.header.producer_id == producer)
        return next(mine, None)

    # After a crash

    def take_over(self, log: LocalLog) -> Found:
        """Prove that a log that was recovered is what it may be, and go on from there."""
        end = log.end_offset
        assert self.synced_offset <= end <= self.end_offset
        assert log.synced_offset == end, "recovery leaves nothing unsynced"
        assert min(self.start_promised, end) <= log.start_offset <= self.start_allowed
        self._end_at(end)
        self.synced_offset = end
        self.start_allowed = log.start_offset
        found = self.prove(log)
        assert log.report.rebuilt_indexes == [], "recovery leaves nothing to be mended later"
        return found

    def prove(self, log: LocalLog) -> Found:
        """Prove that a log holds what this ledger says, and nothing else."""
        assert log.end_offset == self.end_offset
        found = look(log)
        readable = [sent for sent in self.batches if sent.next_offset > log.start_offset]
        assert found.content == b"".join(sent.content for sent in readable)
        self._prove_times(log, readable)
        self._prove_producers(log, found)
        return found

    def _prove_times(self, log: LocalLog, readable: list[Sent]) -> None:
        """Every record is found by its time. All records of a batch have one."""
        times = sorted({sent.header.max_timestamp_ms for sent in readable})
        for time_ms in (*times, times[-1] + 1 if times else 0):
            first = next((s for s in readable if s.header.max_timestamp_ms >= time_ms), None)
            expected = first and TimedOffset(
                max(first.header.base_offset, log.start_offset), first.header.max_timestamp_ms
            )
            assert log.offset_for_time(time_ms) == expected

    def _prove_producers(self, log: LocalLog, found: Found) -> None:
        expected = self._producers()
        known = {p: facts for p, facts in found.producers.items() if facts[0] == self.epoch}
        assert known == {p: facts for p, facts in expected.items() if facts[0] == self.epoch}
        for _, batches in found.producers.values():
            assert all(last_offset < log.end_offset for *_, last_offset in batches)
        for producer, (epoch, batches) in known.items():
            self._prove_sequence(log, producer, epoch, batches[-1])

    def _prove_sequence(
        self, log: LocalLog, producer: int, epoch: int, last: tuple[int, ...]
    ) -> None:
        sent = self.last_of(producer)
        assert sent is not None
        gap = batch_of(b"gap", producer_id=producer, epoch=epoch, sequence=last[1] + 7)
        repeated, refused = log.append([bytearray(sent.content), gap])
        assert repeated == sent.header.base_offset
        assert isinstance(refused, OutOfOrderSequence)
        assert log.end_offset == self.end_offset

    def _producers(self) -> ProducerFacts:
        states = ProducerStates()
        for header, _ in self.batches:
            if header.has_producer:
                states.record(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    0,
                )
        return _facts(states)


def look(log: LocalLog) -> Found:
    """Read all of a log."""
    content = b""
    offset = log.start_offset
    while view := log.read(offset, READ_BYTES):
        for header, _ in split_batches(view):
            offset = header.next_offset
        content += view
    return Found(log.start_offset, log.end_offset, content, _facts(log.producers))


def _facts(states: ProducerStates) -> ProducerFacts:
    return {
        producer.producer_id: (producer.epoch, [tuple(b[:4]) for b in producer.batches])
        for producer in states.producers()
    }
