"""The transactions of a log against a plain list of its batches, by whatever sequence of steps.

The list says which transactions are under way, which were aborted, and how far the log is stable,
by going through it from its beginning. A crash may take batches from its end; then the same must
be true of what is left.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millstream.errors import (
    DiskFull,
    Fenced,
    InvalidTransactionState,
    MillstreamError,
    OffsetOutOfRange,
)
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.local_log import LocalLog
from millstream.storage.partition_log import PartitionLog
from millstream.storage.producer_state import OpenTransaction
from tests.fakes.examples import examples
from tests.fakes.fake_disk import CrashMode
from tests.fakes.log_engines import ENGINES, LogEngine
from tests.fakes.log_steps import SMALL_SEGMENTS, sync
from tests.fakes.sample_batches import (
    abort_marker,
    batch_of,
    commit_marker,
    headers_in,
    idempotent_batch,
    transactional_batch,
)

pytestmark = pytest.mark.hypothesis

Kind = Literal["plain", "idempotent", "part", "unsequenced", "commit", "abort"]
PRODUCERS = 3
MODES: tuple[CrashMode, ...] = ("kept", "lost", "torn")


class Sent(NamedTuple):
    """A batch as the model remembers it."""

    kind: Kind
    producer: int
    epoch: int
    sequence: int
    offset: int
    records: int

    @property
    def next_offset(self) -> int:
        return self.offset + self.records

    def build(self) -> bytearray:
        producer, epoch = self.producer, self.epoch
        match self.kind:
            case "plain":
                return batch_of(*[b"plain"] * self.records)
            case "idempotent":
                return idempotent_batch(
                    self.sequence, count=self.records, epoch=epoch, producer=producer
                )
            case "commit":
                return commit_marker(epoch=epoch, producer=producer)
            case "abort":
                return abort_marker(epoch=epoch, producer=producer)
            case _:
                return transactional_batch(
                    self.sequence, count=self.records, epoch=epoch, producer=producer
                )


class Truth:
    """What a list of batches says."""

    def __init__(self, sent: list[Sent], end_offset: int) -> None:
        self.open: dict[int, OpenTransaction] = {}
        self.aborted: list[tuple[AbortedTransaction, list[int]]] = []
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        parts: dict[int, list[int]] = {}
        for kind, producer, epoch, sequence, offset, records in sent:
            if kind == "plain":
                continue
            if self.epochs.get(producer) != epoch:
                self.sequences[producer] = 0
            self.epochs[producer] = epoch
            if kind in ("commit", "abort"):
                ended = self.open.pop(producer, None)
                if ended and kind == "abort":
                    stable = min([t.first_offset for t in self.open.values()], default=offset + 1)
                    entry = AbortedTransaction(producer, ended.first_offset, offset, stable)
                    self.aborted.append((entry, [*parts[producer], offset]))
                parts.pop(producer, None)
                continue
            if sequence >= 0:
                self.sequences[producer] = sequence + records
            if kind in ("part", "unsequenced"):
                self.open.setdefault(producer, OpenTransaction(producer, epoch, offset))
                parts.setdefault(producer, []).append(offset)
        self.stable_offset = min([t.first_offset for t in self.open.values()], default=end_offset)


class TransactionMachine(RuleBasedStateMachine):
    """Does the same to a log and to a list, and compares."""

    def __init__(self, engine: LogEngine) -> None:
        super().__init__()
        self.engine = engine
        self.log: PartitionLog = engine.open(SMALL_SEGMENTS)
        self.sent: list[Sent] = []
        self.end_offset = 0
        self.synced_offset = 0
        # Where what was deleted may not be replayed any more.
        self.deleted_offset = 0
        self.ids = count()
        self.producers = [next(self.ids) for _ in range(PRODUCERS)]

    # --- steps

    @initialize(steps=st.lists(st.integers(0, 1 << 20), max_size=25))
    def append_first(self, steps: list[int]) -> None:
        for step in steps:
            self.append_one(step)

    @rule(steps=st.lists(st.integers(0, 1 << 20), min_size=1, max_size=5))
    def append(self, steps: list[int]) -> None:
        for step in steps:
            self.append_one(step)

    @rule(steps=st.lists(st.integers(0, 1 << 20), min_size=2, max_size=8))
    def append_at_once(self, steps: list[int]) -> None:
        batches = []
        for step in steps:
            batches.append(self.next_batch(step))
            self.note(batches[-1])
        assert self.log.append([b.build() for b in batches]) == [b.offset for b in batches]

    @precondition(lambda self: self.engine.has_faulty_disk)
    @rule(
        steps=st.lists(st.integers(0, 1 << 20), min_size=1, max_size=8),
        room_bytes=st.sampled_from([0, 0, 512, 1024, 2048]),
    )
    def append_to_a_full_disk(self, steps: list[int], room_bytes: int) -> None:
        """What finds no room leaves no trace, in offsets or in transactions."""
        before, end_offset = list(self.sent), self.end_offset
        batches = []
        for step in steps:
            batches.append(self.next_batch(step))
            self.note(batches[-1])
        self.engine.leave_space(room_bytes)
        outcomes = self.log.append([b.build() for b in batches])
        self.engine.leave_space(None)
        taken = [b for b, o in zip(batches, outcomes, strict=True) if isinstance(o, int)]
        assert taken == batches[: len(taken)]
        assert all(isinstance(o, DiskFull) for o in outcomes[len(taken) :])
        self.sent = before + taken
        self.end_offset = taken[-1].next_offset if taken else end_offset

    @rule(number=st.integers(0, PRODUCERS - 1))
    def send_what_is_refused(self, number: int) -> None:
        truth = self.truth()
        producer = self.producers[number]
        epoch = truth.epochs.get(producer)
        if epoch is None or not self.is_known(producer):
            return
        if epoch > 0:
            for old in (
                abort_marker(epoch=epoch - 1, producer=producer),
                transactional_batch(-1, epoch=epoch - 1, producer=producer),
            ):
                self.assert_refused(old, Fenced)
        if producer in truth.open:
            sequence = truth.sequences[producer]
            outside = idempotent_batch(sequence, epoch=epoch, producer=producer)
            self.assert_refused(outside, InvalidTransactionState)
            newer = transactional_batch(0, epoch=epoch + 1, producer=producer)
            self.assert_refused(newer, InvalidTransactionState)

    @rule()
    def sync(self) -> None:
        sync(self.log)
        self.synced_offset = self.end_offset
        self.engine.note_checkpoint()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        stable = self.truth().stable_offset
        before = int(share * stable)
        start = self.log.delete_records(before)
        assert start >= before
        # What is deleted was synced first.
        self.synced_offset = self.log.synced_offset
        self.deleted_offset = max(self.deleted_offset, before)
        if stable < self.end_offset:
            with pytest.raises(OffsetOutOfRange):
                self.log.delete_records(stable + 1)

    @rule()
    def expire(self) -> None:
        """Segments before the start go, however long their producers are silent."""
        if isinstance(self.log, LocalLog):
            self.log.roll_if_due()
            stable = self.truth().stable_offset
            self.log.expire()
            assert self.log.segments()[0].base_offset <= stable

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        start = self.log.start_offset
        offset = start + int(share * (self.end_offset - start))
        self.log.truncate(offset)
        self.take_over()

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = self.engine.open(SMALL_SEGMENTS)
        self.synced_offset = self.end_offset
        assert self.log.end_offset == self.end_offset

    @precondition(lambda self: self.engine.has_faulty_disk)
    @rule(mode=st.sampled_from(MODES), seed=st.integers(0, 1000))
    def crash(self, mode: CrashMode, seed: int) -> None:
        self.engine = self.engine.after_crash(mode, seed)
        self.log = self.engine.open(SMALL_SEGMENTS)
        assert self.log.end_offset >= self.synced_offset
        self.take_over()

    @precondition(lambda self: isinstance(self.log, LocalLog))
    @rule(seed=st.integers(0, 1000), loses=st.booleans())
    def damage_an_index(self, seed: int, loses: bool) -> None:
        """Lose or spoil the file of a closed segment, then come back with nothing in memory."""
        assert isinstance(self.log, LocalLog)
        self.log.close()
        paths = [s.aborted_path for s in self.log.segments()[:-1]]
        if paths:
            path = Random(seed).choice(paths)
            disk = self.log.filesystem
            if loses:
                disk.remove(path)
            elif path in [f"{self.log.directory}/{n}" for n in disk.sizes(self.log.directory)]:
                file = disk.open(path)
                position = Random(seed).randrange(file.size())
                file.write([bytes([file.read(position, 1)[0] ^ 1])], position)
                file.close()
        self.log = self.engine.open(SMALL_SEGMENTS)
        self.synced_offset = self.end_offset

    # --- the model

    def truth(self) -> Truth:
        return Truth(self.sent, self.end_offset)

    def next_batch(self, step: int) -> Sent:
        """The batch that a number stands for, which the log must take."""
        random = Random(step)
        truth = self.truth()
        producer = random.choice(self.producers)
        epoch = truth.epochs.get(producer, 0)
        sequence = truth.sequences.get(producer, 0)
        records = random.randint(1, 3)
        kind: Kind
        if producer in truth.open:
            kind = random.choice(("part", "unsequenced", "commit", "abort", "plain"))
        else:
            kind = random.choice(("plain", "idempotent", "part", "unsequenced", "abort"))
        if kind in ("commit", "abort"):
            records, sequence = 1, -1
            epoch += random.randint(0, 1)
        elif kind == "unsequenced":
            sequence = -1
        elif kind == "plain":
            producer = epoch = sequence = -1
        elif random.random() < 0.2 and producer not in truth.open:
            epoch, sequence = epoch + 1, 0
        return Sent(kind, producer, epoch, sequence, self.end_offset, records)

    def append_one(self, step: int) -> None:
        batch = self.next_batch(step)
        assert self.log.append([batch.build()]) == [batch.offset]
        self.note(batch)

    def note(self, batch: Sent) -> None:
        self.sent.append(batch)
        self.end_offset = batch.next_offset

    def is_known(self, producer: int) -> bool:
        """Whether nothing that the log has deleted is needed to know a producer's epoch."""
        epoch = self.truth().epochs[producer]
        return any(
            sent.producer == producer and sent.epoch == epoch and sent.offset >= self.deleted_offset
            for sent in self.sent
        )

    def take_over(self) -> None:
        """Go on with as much as the log still has."""
        end = self.log.end_offset
        self.sent = [sent for sent in self.sent if sent.next_offset <= end]
        if self.log.start_offset < end:
            assert self.sent
            assert self.sent[-1].next_offset == end
        before = self.truth()
        if end < self.deleted_offset or self.log.start_offset == end:
            self.sent = [sent for sent in self.sent if self.log.start_offset < sent.next_offset]
        self.deleted_offset = max(self.deleted_offset, self.log.start_offset)
        self.end_offset = self.synced_offset = end
        # One with nothing left may be known or not, so a new one takes its place.
        left = {s.producer for s in self.sent if s.next_offset > self.log.start_offset}
        self.producers = [p if p in left else next(self.ids) for p in self.producers]
        self.end_what_lost_its_beginning(before)

    def end_what_lost_its_beginning(self, before: Truth) -> None:
        """End what is under way again, or not, since its beginning is deleted and its end lost."""
        for producer, _, first_offset, _ in before.open.values():
            if first_offset < self.deleted_offset:
                epoch = before.epochs[producer]
                marker = Sent("abort", producer, epoch, -1, self.end_offset, 1)
                assert self.log.append([marker.build()]) == [marker.offset]
                self.note(marker)

    def assert_refused(self, batch: bytearray, refusal: type[MillstreamError]) -> None:
        (outcome,) = self.log.append([batch])
        assert isinstance(outcome, refusal), outcome

    # --- what must be true

    @invariant()
    def transactions_under_way_are_those_of_the_list(self) -> None:
        truth = self.truth()
        assert self.log.last_stable_offset == truth.stable_offset
        by_offset = sorted(truth.open.values(), key=lambda each: each.first_offset)
        assert list(self.log.producers.open_transactions()) == by_offset
        for producer in self.producers:
            expected = truth.open.get(producer)
            assert self.log.producers.open_transaction(producer) == expected

    @invariant()
    def aborted_transactions_are_those_of_the_list(self) -> None:
        truth = self.truth()
        start = self.log.start_offset
        places = sorted({start, self.end_offset, *(s.offset for s in self.sent[::5])})
        for from_offset in places:
            for to_offset in places:
                if start <= from_offset < to_offset:
                    self.compare(truth, from_offset, to_offset)

    def compare(self, truth: Truth, from_offset: int, to_offset: int) -> None:
        found = self.log.aborted_transactions(from_offset, to_offset)
        assert sorted(found, key=lambda each: each.last_offset) == found
        by_marker = {entry.last_offset: (entry, parts) for entry, parts in truth.aborted}
        for entry in found:
            expected, parts = by_marker[entry.last_offset]
            assert entry.first_offset < to_offset
            assert entry.last_offset >= from_offset
            if self.deleted_offset == 0:
                assert entry == expected
            else:
                # A replay knows of what was deleted neither that it aborted nor that it was there.
                readable = [part for part in parts if part >= self.deleted_offset]
                assert entry.producer_id == expected.producer_id
                assert expected.first_offset <= entry.first_offset
                # One that only reaches across the range may have lost all that it wrote.
                assert not readable or entry.first_offset <= readable[0]
                stable = entry.last_stable_offset
                assert expected.last_stable_offset <= stable <= entry.last_offset + 1
        markers = {entry.last_offset for entry in found}
        for entry, parts in truth.aborted:
            data = [part for part in parts[:-1] if from_offset <= part < to_offset]
            if data and data[-1] >= self.deleted_offset:
                assert entry.last_offset in markers
                assert self.log.has_aborted_transactions

    @invariant()
    def reading_stops_at_the_last_stable_offset(self) -> None:
        stable = self.log.last_stable_offset
        start = self.log.start_offset
        for max_bytes in (1, 300, 1 << 20):
            offset, seen = start, []
            while view := self.log.read(offset, max_bytes, below=stable):
                headers = headers_in(view)
                seen += [header.base_offset for header in headers]
                offset = headers[-1].next_offset
            expected = [s.offset for s in self.sent if s.next_offset > start and s.offset < stable]
            assert seen == expected


@pytest.mark.parametrize("name", ENGINES)
def test_transactions_of_a_log_are_those_of_its_batches(name: str, tmp_path: Path) -> None:
    numbers = count()

    class Machine(TransactionMachine):
        def __init__(self) -> None:
            super().__init__(ENGINES[name](tmp_path / str(next(numbers))))

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(15),
            stateful_step_count=25,
            report_multiple_bugs=False,
            # Shrinking would take longer than a test may.
            phases=[Phase.reuse, Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
