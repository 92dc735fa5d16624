"""Compaction against a plain list of records, by whatever sequence of steps.

The list holds every record ever appended. The log must hold a part of it, in order and unchanged;
the newest record of each key must be part of it, until it is a tombstone that had its time; and
below the place up to which the log was compacted, no key may have two.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.records import Codec, Record
from millstream.storage.cleaning_state import read_cleaning_state
from millstream.storage.compaction import abandon, install
from millstream.storage.key_map import ENTRY_BYTES
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment import SegmentState
from tests.fakes.examples import examples
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.keyed_log import DELETE_RETENTION_MS, KeyedLog, Pair, keyed_batch
from tests.fakes.log_steps import append, first_at
from tests.fakes.sample_batches import START_MS

DIRECTORY = "/data/users-0"
LONG_KEY = b"a key that is stored by its digest"
# From room for one key to room for all.
BUFFERS = [1, 2 * ENTRY_BYTES, 5 * ENTRY_BYTES, 1 << 20]

keys = st.sampled_from([b"", b"a", b"b", b"c", LONG_KEY, LONG_KEY + b"!"])
values = st.none() | st.binary(max_size=60)
codecs = st.sampled_from(list(Codec))
waits_ms = st.sampled_from([0, 1, DELETE_RETENTION_MS // 2, DELETE_RETENTION_MS])
plain_batches = st.lists(st.tuples(keys, values), min_size=1, max_size=8)
batches = st.lists(st.tuples(keys | st.none(), values), min_size=1, max_size=8)


class Passed(NamedTuple):
    """When compaction first passed over a tombstone, and whether it has been let go of since."""

    at_ms: int
    may_go: bool


class CompactionMachine(RuleBasedStateMachine):
    """Does the same to a log and to a list, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.keyed = KeyedLog(DIRECTORY, filesystem=FakeFilesystem(file_capacity_bytes=1 << 20))
        self.sent: list[Record] = []
        self.compacted_offset = 0
        self.passed: dict[int, Passed] = {}

    @rule(pairs=batches, codec=codecs, ages_ms=st.lists(st.integers(0, 9), min_size=8, max_size=8))
    def append(self, pairs: list[Pair], codec: Codec, ages_ms: list[int]) -> None:
        offset = self.keyed.log.end_offset
        times_ms = [START_MS - age_ms for age_ms in ages_ms[: len(pairs)]]
        append(self.keyed.log, keyed_batch(*pairs, codec=codec, timestamps_ms=times_ms))
        for number, ((key, value), time_ms) in enumerate(zip(pairs, times_ms, strict=True)):
            self.sent.append(Record(offset + number, time_ms, key, value))

    @rule()
    def archive(self) -> None:
        self.keyed.archive()

    @rule(pairs=plain_batches)
    def append_segment(self, pairs: list[Pair]) -> None:
        self.append(pairs, Codec.NONE, [0] * 8)
        self.archive()

    @rule(wait_ms=waits_ms, buffer_bytes=st.sampled_from(BUFFERS))
    def compact(self, wait_ms: int, buffer_bytes: int) -> None:
        self.keyed.clock.advance_ms(wait_ms)
        archived = [s for s in self.keyed.log.segments() if s.state is SegmentState.ARCHIVED]
        self.keyed.compact(buffer_bytes=buffer_bytes)
        self._note_passed()
        assert self.compacted_offset == (archived[-1].next_offset if archived else 0)

    @rule(wait_ms=waits_ms, buffer_bytes=st.sampled_from(BUFFERS))
    def compact_for_one_pass(self, wait_ms: int, buffer_bytes: int) -> None:
        self.keyed.clock.advance_ms(wait_ms)
        plan = self.keyed.plan(buffer_bytes=buffer_bytes)
        if plan is not None:
            result = plan.run()
            assert result.key_count <= max(1, buffer_bytes // ENTRY_BYTES)
            install(self.keyed.log, plan, result)
            self._note_passed()

    def _note_passed(self) -> None:
        now_ms = self.keyed.clock.now_ms()
        state = read_cleaning_state(self.keyed.filesystem, DIRECTORY)
        assert state.clean_offset >= self.compacted_offset
        self.compacted_offset = state.clean_offset
        for record in self.sent:
            if record.value is None and record.offset < self.compacted_offset:
                at_ms, may_go = self.passed.get(record.offset, Passed(now_ms, may_go=False))
                due = at_ms < now_ms and at_ms + DELETE_RETENTION_MS <= now_ms
                self.passed[record.offset] = Passed(at_ms, may_go or due)

    @rule()
    def cancel(self) -> None:
        plan = self.keyed.plan()
        if plan is not None:
            plan.cancel()
            abandon(self.keyed.log, plan)

    @rule()
    def reopen(self) -> None:
        self.keyed.reopen()

    @rule()
    @precondition(lambda self: self.keyed.log.synced_offset == self.keyed.log.end_offset)
    def reopen_after_kill(self) -> None:
        self.keyed.reopen_after_kill(LogCheckpoint(0))

    @rule(buffer_bytes=st.sampled_from(BUFFERS))
    @precondition(lambda self: self.keyed.log.synced_offset == self.keyed.log.end_offset)
    def kill_after_the_commit(self, buffer_bytes: int) -> None:
        plan = self.keyed.plan(buffer_bytes=buffer_bytes)
        if plan is not None:
            plan.run()
            self._note_passed()
        self.keyed.reopen_after_kill(LogCheckpoint(0))

    @invariant()
    def log_holds_what_it_must(self) -> None:
        found = self.keyed.records()
        sent = {record.offset: record for record in self.sent}
        assert found == [sent[record.offset] for record in found]
        assert [record.offset for record in found] == sorted({r.offset for r in found})
        assert self._must_be_there() <= {record.offset for record in found}
        compacted = [r.key for r in found if r.offset < self.compacted_offset and r.key is not None]
        assert len(compacted) == len(set(compacted))
        assert self.keyed.log.end_offset == len(self.sent)

    @invariant()
    def records_are_found_by_their_time(self) -> None:
        found = self.keyed.records()
        for time_ms in (START_MS - 9, START_MS - 4, START_MS, START_MS + 1):
            assert self.keyed.log.offset_for_time(time_ms) == first_at(found, time_ms)

    def _must_be_there(self) -> set[int]:
        newest = {record.key: record for record in self.sent}
        keyless = {record.offset for record in self.sent if record.key is None}
        return keyless | {
            record.offset
            for record in newest.values()
            if record.value is not None or not self._may_be_gone(record.offset)
        }

    def _may_be_gone(self, offset: int) -> bool:
        return offset in self.passed and self.passed[offset].may_go

    def teardown(self) -> None:
        self.keyed.log.close()


TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = settings(
    max_examples=examples(20),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@given(
    segments=st.lists(st.lists(batches, min_size=1, max_size=4), min_size=1, max_size=5),
    buffer_bytes=st.integers(1, 12 * ENTRY_BYTES),
)
def test_memory_decides_the_number_of_passes_and_nothing_else(
    segments: list[list[list[Pair]]], buffer_bytes: int
) -> None:
    outcomes = []
    for size in (1 << 20, buffer_bytes):
        keyed = KeyedLog(DIRECTORY, filesystem=FakeFilesystem(file_capacity_bytes=1 << 20))
        for segment in segments:
            for pairs in segment:
                keyed.put(*pairs)
            keyed.archive()
        passes = 0
        while plan := keyed.plan(buffer_bytes=size):
            result = plan.run()
            passes += 1
            assert result.key_count <= max(1, size // ENTRY_BYTES)
            install(keyed.log, plan, result)
        assert passes <= 1 + sum(len(pairs) for segment in segments for pairs in segment)
        outcomes.append(keyed.records())
    assert outcomes[0] == outcomes[1]
