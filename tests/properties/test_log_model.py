"""Every storage engine against a plain list of batches, by whatever sequence of steps.

The list says what the log must hold. A crash may take batches from its end, but none below the
synced offset, and what is left must be a beginning of the list.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import NamedTuple

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
    MillstreamError,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageFailure,
)
from millstream.records import Codec
from millstream.storage.partition_log import PartitionLog, SyncTask, TimedOffset
from tests.fakes.examples import examples
from tests.fakes.fake_disk import CrashMode
from tests.fakes.log_engines import ENGINES, LogEngine
from tests.fakes.log_steps import SMALL_SEGMENTS, sync
from tests.fakes.sample_batches import batch_of, headers_in

pytestmark = pytest.mark.hypothesis

NOBODY = -1
MODES: tuple[CrashMode, ...] = ("kept", "lost", "torn")


class Sent(NamedTuple):
    """A batch as the model remembers it."""

    offset: int
    content: bytes
    timestamps_ms: tuple[int, ...]
    producer: int
    sequence: int

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.timestamps_ms)


class NewBatch(NamedTuple):
    """A batch to be sent."""

    timestamps_ms: tuple[int, ...]
    producer: int
    codec: Codec
    padding: int


new_batches = st.builds(
    NewBatch,
    timestamps_ms=st.lists(st.integers(1000, 1050), min_size=1, max_size=4).map(tuple),
    producer=st.sampled_from([NOBODY, NOBODY, 0, 1]),
    codec=st.sampled_from(list(Codec)),
    padding=st.sampled_from([0, 0, 0, 50, 200]),
)
# How many records a deletion takes from one end of the log: few, so that some stay.
fewer = st.one_of(st.integers(0, 8), st.integers(0, 8), st.integers(0, 100))


class LogMachine(RuleBasedStateMachine):
    """Does the same to a log and to a list, and compares."""

    def __init__(self, engine: LogEngine) -> None:
        super().__init__()
        self.engine = engine
        self.log: PartitionLog = engine.open(SMALL_SEGMENTS)
        self.sent: list[Sent] = []
        self.start_offset = 0
        self.end_offset = 0
        self.synced_offset = 0
        self.tasks: list[SyncTask] = []
        self.views: list[tuple[memoryview, bytes]] = []
        self.steps = 0
        self.producer_ids = count()
        self.ids = {0: next(self.producer_ids), 1: next(self.producer_ids)}

    # --- steps

    @initialize(batches=st.lists(new_batches, max_size=20))
    def append_first(self, batches: list[NewBatch]) -> None:
        self.append_all(batches, frozenset())

    @rule(batches=st.lists(new_batches, min_size=1, max_size=6))
    def append(self, batches: list[NewBatch]) -> None:
        self.append_all(batches, frozenset())

    @rule(
        batches=st.lists(new_batches, min_size=1, max_size=6),
        spoiled=st.frozensets(st.integers(0, 5)),
    )
    def append_some(self, batches: list[NewBatch], spoiled: frozenset[int]) -> None:
        self.append_all(batches, spoiled)

    def append_all(self, batches: list[NewBatch], spoiled: frozenset[int]) -> None:
        buffers = []
        expected: list[int | None] = []
        for number, batch in enumerate(batches):
            buffer = self.build(batch)
            if number in spoiled:
                buffer[-1] ^= 1
                expected.append(None)
            else:
                expected.append(self.end_offset)
                self.note(batch, buffer)
            buffers.append(buffer)
        outcomes = self.log.append(buffers)
        assert [o if isinstance(o, int) else None for o in outcomes] == expected
        for buffer, offset in zip(buffers, expected, strict=True):
            if offset is not None:
                assert int.from_bytes(buffer[:8], "big") == offset

    @precondition(lambda self: self.engine.has_faulty_disk)
    @rule(
        batches=st.lists(new_batches, min_size=1, max_size=6),
        room_bytes=st.sampled_from([0, 0, 512, 1024, 2048]),
    )
    def append_to_a_full_disk(self, batches: list[NewBatch], room_bytes: int) -> None:
        sent, end_offset = list(self.sent), self.end_offset
        buffers = []
        for batch in batches:
            buffers.append(self.build(batch))
            self.note(batch, buffers[-1])
        tried, self.sent, self.end_offset = self.sent[len(sent) :], sent, end_offset
        self.engine.leave_space(room_bytes)
        outcomes = self.log.append(buffers)
        self.engine.leave_space(None)
        for batch, outcome, new in zip(batches, outcomes, tried, strict=True):
            if isinstance(outcome, int):
                assert outcome == self.end_offset
                assert new.producer == NOBODY or new.sequence == self.next_sequence(batch.producer)
                content = outcome.to_bytes(8, "big") + new.content[8:]
                self.sent.append(new._replace(offset=outcome, content=content))
                self.end_offset = self.sent[-1].next_offset
            else:
                assert isinstance(outcome, DiskFull | OutOfOrderSequence)

    @rule(back=st.integers(0, 4), producer=st.sampled_from([0, 1]))
    def repeat(self, back: int, producer: int) -> None:
        """An idempotent producer sends one of its last five batches again."""
        written = [sent for sent in self.sent if sent.producer == self.ids[producer]]
        if back < len(written) and written[-1 - back].offset >= self.start_offset:
            again = written[-1 - back]
            assert self.log.append([bytearray(again.content)]) == [again.offset]

    @rule(producer=st.sampled_from([0, 1]), gap=st.integers(1, 3))
    def skip_ahead(self, producer: int, gap: int) -> None:
        """An idempotent producer leaves some records out."""
        if any(sent.producer == self.ids[producer] for sent in self.kept()):
            sequence = self.next_sequence(producer) + gap
            batch = batch_of(b"x", producer_id=self.ids[producer], epoch=0, sequence=sequence)
            (outcome,) = self.log.append([batch])
            assert isinstance(outcome, MillstreamError)

    @rule(data=st.data(), max_bytes=st.sampled_from([0, 1, 100, 300, 1000, 1 << 20]))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start_offset, self.end_offset))
        view = self.log.read(offset, max_bytes)
        self.views.append((view, bytes(view)))
        if offset == self.end_offset:
            assert len(view) == 0
            return
        headers = headers_in(view)
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        assert len(view) <= max_bytes or len(headers) == 1
        expected = [
            sent.content
            for sent in self.sent
            if headers[0].base_offset <= sent.offset <= headers[-1].base_offset
        ]
        assert bytes(view) == b"".join(expected)

    @rule(outside=st.integers(1, 1000))
    def read_outside(self, outside: int) -> None:
        for offset in (self.start_offset - outside, self.end_offset + outside):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 100)

    @rule(timestamp_ms=st.integers(990, 1060))
    def look_up_time(self, timestamp_ms: int) -> None:
        records = self.timed_records()
        first = next((r for r in records if r.timestamp_ms >= timestamp_ms), None)
        assert self.log.offset_for_time(timestamp_ms) == first

    @rule()
    def look_up_newest(self) -> None:
        newest = max(self.timed_records(), key=lambda r: (r.timestamp_ms, -r.offset), default=None)
        assert self.log.offset_of_max_timestamp() == newest

    @rule(records=fewer)
    def delete_records(self, records: int) -> None:
        self.start_offset = min(self.start_offset + records, self.end_offset)
        assert self.log.delete_records(self.start_offset) == self.start_offset

    @rule(records=fewer)
    def truncate(self, records: int) -> None:
        end_offset = max(self.end_offset - records, self.start_offset)
        kept = [sent for sent in self.sent if sent.next_offset <= end_offset]
        if len(kept) < len(self.sent):
            if self.sent[len(kept)].offset < self.start_offset:
                return  # part of it is deleted: what the end would then be is not promised
            self.end_offset = self.sent[len(kept)].offset
        self.finish_all_syncs()
        self.log.truncate(end_offset)
        self.sent = kept
        self.synced_offset = min(self.synced_offset, self.end_offset)
        self.forget_lost_producers()

    @rule()
    def begin_sync(self) -> None:
        self.tasks.append(self.log.begin_sync())

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def finish_sync(self, data: st.DataObject) -> None:
        self.finish(self.tasks.pop(data.draw(st.integers(0, len(self.tasks) - 1))))

    def finish_all_syncs(self) -> None:
        while self.tasks:
            self.finish(self.tasks.pop())

    def finish(self, task: SyncTask) -> None:
        task.run()
        self.log.finish_sync(task, None)
        assert self.log.synced_offset >= task.target_offset
        self.synced_offset = self.log.synced_offset

    @rule()
    def sync(self) -> None:
        sync(self.log)
        self.synced_offset = self.end_offset
        assert self.log.synced_offset == self.end_offset
        self.engine.note_checkpoint()

    @rule()
    def reopen(self) -> None:
        self.finish_all_syncs()
        self.log.close()
        self.log = self.engine.open(SMALL_SEGMENTS)
        self.synced_offset = self.end_offset
        self.forget_lost_producers()

    @precondition(lambda self: self.engine.has_faulty_disk)
    @rule(mode=st.sampled_from(MODES), seed=st.integers(0, 1000))
    def crash(self, mode: CrashMode, seed: int) -> None:
        self.restart(mode, seed)

    @precondition(lambda self: self.engine.has_faulty_disk)
    @rule(mode=st.sampled_from(MODES), seed=st.integers(0, 1000))
    def fail_to_sync(self, mode: CrashMode, seed: int) -> None:
        self.engine.fail_next_sync()
        task = self.log.begin_sync()
        try:
            task.run()
        except OSError as error:
            self.log.finish_sync(task, error)
            (outcome,) = self.log.append([batch_of(b"x")])
            assert isinstance(outcome, StorageFailure)
        self.restart(mode, seed)

    def restart(self, mode: CrashMode, seed: int) -> None:
        self.engine = self.engine.after_crash(mode, seed)
        self.tasks.clear()
        self.log = self.engine.open(SMALL_SEGMENTS)
        assert mode != "kept" or self.log.end_offset == self.end_offset
        self.sent = self.surviving(self.log)
        self.end_offset = self.synced_offset = self.log.end_offset
        self.forget_lost_producers()

    # --- what holds at all times

    @invariant()
    def offsets_agree(self) -> None:
        log = self.log
        assert (log.start_offset, log.end_offset) == (self.start_offset, self.end_offset)
        assert self.synced_offset <= log.synced_offset <= log.end_offset

    @precondition(lambda self: self.engine.has_faulty_disk)
    @invariant()
    def any_crash_would_leave_what_is_synced(self) -> None:
        self.steps += 1
        mode = MODES[self.steps % len(MODES)]
        self.surviving(self.engine.after_crash(mode, self.steps).open(SMALL_SEGMENTS))

    @invariant()
    def what_was_read_stays(self) -> None:
        for view, content in self.views[-3:]:
            assert view == content

    def teardown(self) -> None:
        assert self.surviving(self.log) == self.sent
        self.log.close()

    # --- the model

    def build(self, batch: NewBatch) -> bytearray:
        values = [b"." * batch.padding for _ in batch.timestamps_ms]
        if batch.producer == NOBODY:
            return batch_of(*values, timestamps_ms=batch.timestamps_ms, codec=batch.codec)
        return batch_of(
            *values,
            timestamps_ms=batch.timestamps_ms,
            codec=batch.codec,
            producer_id=self.ids[batch.producer],
            epoch=0,
            sequence=self.next_sequence(batch.producer),
        )

    def note(self, batch: NewBatch, buffer: bytearray) -> None:
        """Remember a batch that must be accepted, as it must then be stored."""
        content = self.end_offset.to_bytes(8, "big") + bytes(buffer[8:])
        has_producer = batch.producer != NOBODY
        self.sent.append(
            Sent(
                self.end_offset,
                content,
                batch.timestamps_ms,
                self.ids[batch.producer] if has_producer else NOBODY,
                self.next_sequence(batch.producer) if has_producer else NOBODY,
            )
        )
        self.end_offset = self.sent[-1].next_offset

    def surviving(self, log: PartitionLog) -> list[Sent]:
        """The batches that a log has, which must be the first that were sent to it."""
        assert log.start_offset == self.start_offset
        assert self.synced_offset <= log.end_offset <= self.end_offset
        sent = [sent for sent in self.sent if sent.next_offset <= log.end_offset]
        assert not sent or sent[-1].next_offset == log.end_offset
        found = b""
        offset = log.start_offset
        while view := log.read(offset, 500):
            found += view
            offset = headers_in(view)[-1].next_offset
        readable = [batch.content for batch in sent if batch.next_offset > self.start_offset]
        assert found == b"".join(readable)
        return sent

    def next_sequence(self, producer: int) -> int:
        for sent in reversed(self.sent):
            if sent.producer == self.ids[producer]:
                return sent.sequence + len(sent.timestamps_ms)
        return 0

    def forget_lost_producers(self) -> None:
        """A producer with nothing left in the log may be known or not: replace it by a new one."""
        kept = {sent.producer for sent in self.kept()}
        for producer, producer_id in self.ids.items():
            if producer_id not in kept:
                self.ids[producer] = next(self.producer_ids)

    def kept(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.next_offset > self.start_offset]

    def timed_records(self) -> list[TimedOffset]:
        return [
            TimedOffset(offset, timestamp_ms)
            for sent in self.sent
            for offset, timestamp_ms in enumerate(sent.timestamps_ms, sent.offset)
            if offset >= self.start_offset
        ]


@pytest.mark.parametrize("name", ENGINES)
def test_log_agrees_with_a_plain_list(name: str, tmp_path: Path) -> None:
    numbers = count()

    class Machine(LogMachine):
        def __init__(self) -> None:
            super().__init__(ENGINES[name](tmp_path / str(next(numbers))))

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(15),
            stateful_step_count=40,
            report_multiple_bugs=False,
            # Shrinking would take longer than a test may.
            phases=[Phase.reuse, Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
