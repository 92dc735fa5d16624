"""Compaction of transactions against a plain list of what was written, by whatever steps.

Several producers write transactions side by side with plain writes; they commit, abort, or stay
open; the log is compacted at any time, and the power fails at any step of that. The list tells
what a reader of committed records must end up with: the newest value of every key.
"""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream.records import ControlType
from millstream.storage.cleaning_state import read_cleaning_state
from millstream.storage.compaction import abandon, install
from millstream.storage.key_map import ENTRY_BYTES
from millstream.storage.recovery import LogCheckpoint
from tests.fakes.committed_reader import CommittedReader, committed_records
from tests.fakes.examples import examples
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, FakeFilesystem
from tests.fakes.keyed_log import DELETE_RETENTION_MS, KeyedLog, Pair
from tests.fakes.transaction_truth import Truth, Written

DIRECTORY = "/data/users-0"
PRODUCERS = (7, 8, 9)
BUFFERS = [1, 3 * ENTRY_BYTES, 1 << 20]

keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.none() | st.binary(max_size=40)
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=4)
producers = st.sampled_from(PRODUCERS)
kinds = st.sampled_from([ControlType.COMMIT, ControlType.ABORT])
waits_ms = st.sampled_from([0, DELETE_RETENTION_MS // 2, DELETE_RETENTION_MS])
buffers = st.sampled_from(BUFFERS)
crash_modes: st.SearchStrategy[CrashMode] = st.sampled_from(["kept", "lost", "torn"])


class TransactionMachine(RuleBasedStateMachine):
    """Does the same to a log and to a list, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FakeFilesystem(file_capacity_bytes=1 << 20)
        self.keyed = KeyedLog(DIRECTORY, filesystem=self.disk)
        self.written: list[Written] = []
        self.synced_offset = 0
        self.reader = CommittedReader(self.keyed.log)
        self.seen: dict[bytes | None, bytes | None] = {}

    @initialize(batch=pairs)
    def begin(self, batch: list[Pair]) -> None:
        self.put(batch)
        self.archive()

    # Writing

    @rule(batch=pairs)
    def put(self, batch: list[Pair]) -> None:
        self.keyed.put(*batch)
        self.written += [Written(None, pair) for pair in batch]

    @rule(producer_id=producers, batch=pairs)
    def put_in(self, producer_id: int, batch: list[Pair]) -> None:
        self.keyed.put_in(producer_id, *batch)
        self.written += [Written(producer_id, pair) for pair in batch]

    @rule(producer_id=producers, kind=kinds)
    def end(self, producer_id: int, kind: ControlType) -> None:
        if producer_id in Truth.of(self.written).under_way:
            self.keyed.end(producer_id, kind)
            self.written.append(Written(producer_id, None, kind))

    @rule(producer_id=producers, kind=kinds, batch=pairs)
    def put_transaction(self, producer_id: int, kind: ControlType, batch: list[Pair]) -> None:
        self.put_in(producer_id, batch)
        self.end(producer_id, kind)

    @rule()
    def archive(self) -> None:
        self.keyed.archive()
        self.synced_offset = self.keyed.log.end_offset

    @rule(kind=kinds)
    def end_all(self, kind: ControlType) -> None:
        for producer_id in Truth.of(self.written).under_way:
            self.end(producer_id, kind)
        self.archive()

    # Compacting

    @rule(wait_ms=waits_ms, buffer_bytes=buffers)
    def compact(self, wait_ms: int, buffer_bytes: int) -> None:
        self.keyed.clock.advance_ms(wait_ms)
        self.keyed.compact(buffer_bytes=buffer_bytes)
        self._prove_compact()

    @rule(wait_ms=waits_ms, buffer_bytes=buffers)
    def compact_for_one_pass(self, wait_ms: int, buffer_bytes: int) -> None:
        self.keyed.clock.advance_ms(wait_ms)
        plan = self.keyed.plan(buffer_bytes=buffer_bytes)
        if plan is not None:
            install(self.keyed.log, plan, plan.run())

    @rule()
    def cancel(self) -> None:
        plan = self.keyed.plan()
        if plan is not None:
            plan.cancel()
            abandon(self.keyed.log, plan)

    @rule(
        wait_ms=waits_ms,
        buffer_bytes=buffers,
        mode=crash_modes,
        after=st.integers(1, 60),
        seed=st.integers(0, 1000),
    )
    def crash_in_compaction(
        self, wait_ms: int, buffer_bytes: int, mode: CrashMode, after: int, seed: int
    ) -> None:
        self.keyed.clock.advance_ms(wait_ms)
        self.disk.crash_at(self.disk.operation_count + after, "before")
        with suppress(Crash):
            self.keyed.compact(buffer_bytes=buffer_bytes)
        self._restart(self.disk.after_crash(mode, seed))

    # Starting again

    @rule()
    def reopen(self) -> None:
        self.keyed.reopen()
        self.synced_offset = self.keyed.log.end_offset
        self.reader.log = self.keyed.log

    @rule(mode=crash_modes, seed=st.integers(0, 1000))
    def crash(self, mode: CrashMode, seed: int) -> None:
        self._restart(self.disk.after_crash(mode, seed))

    @rule(count=st.integers(1, 2))
    def lose_snapshots(self, count: int) -> None:
        """The newest are damaged, and what is left must do."""
        self.archive()
        names = [name for name in self.keyed.names() if name.endswith(".snapshot")]
        for name in names[-count:]:
            self.disk.remove(f"{DIRECTORY}/{name}")
        self._restart(self.disk.after_crash("kept"))

    def _restart(self, disk: FakeFilesystem) -> None:
        self.disk = disk
        self.keyed = KeyedLog(
            DIRECTORY,
            filesystem=disk,
            clock=self.keyed.clock,
            checkpoint=LogCheckpoint(self.synced_offset),
        )
        end_offset = self.keyed.log.end_offset
        assert self.synced_offset <= end_offset <= len(self.written)
        if end_offset < len(self.written):
            # What was never synced is lost, and with it what the reader saw of it.
            del self.written[end_offset:]
            self._begin_reading()
        self.reader.log = self.keyed.log

    # Reading

    @rule(max_bytes=st.integers(1, 400))
    def read_on(self, max_bytes: int) -> None:
        for record in self.reader.read(max_bytes) or ():
            self.seen[record.key] = record.value

    @rule()
    def _begin_reading(self) -> None:
        self.reader = CommittedReader(self.keyed.log)
        self.seen = {}

    @invariant()
    def transactions_are_as_written(self) -> None:
        truth = Truth.of(self.written)
        log = self.keyed.log
        assert log.end_offset == len(self.written)
        assert log.last_stable_offset == truth.stable_offset
        found = {t.producer_id: t.first_offset for t in log.producers.open_transactions()}
        assert found == truth.under_way

    @invariant()
    def reader_of_committed_records_ends_up_with_the_newest(self) -> None:
        truth = Truth.of(self.written)
        for max_bytes in (1, 150, 1 << 20):
            records = committed_records(self.keyed.log, max_bytes=max_bytes)
            offsets = [record.offset for record in records]
            assert offsets == sorted(set(offsets))
            for record in records:
                assert truth.committed[record.offset] == (record.key, record.value)
            latest = {record.key: record.value for record in records}
            assert {k: v for k, v in latest.items() if v is not None} == truth.newest()

    @invariant()
    def reader_that_is_half_way_gets_every_newest_value(self) -> None:
        latest = dict(self.seen)
        rest = CommittedReader(self.keyed.log, self.reader.offset).read_all(200)
        latest.update((record.key, record.value) for record in rest)
        for key, value in Truth.of(self.written).newest().items():
            assert latest[key] == value

    @invariant()
    def whoever_reads_it_all_finds_what_was_written(self) -> None:
        for record in self.keyed.records():
            assert self.written[record.offset].pair == (record.key, record.value)
        for offset in self.keyed.marker_offsets():
            assert self.written[offset].kind is not None

    def _prove_compact(self) -> None:
        truth = Truth.of(self.written)
        clean_offset = read_cleaning_state(self.disk, DIRECTORY).clean_offset
        clean = [record for record in self.keyed.records() if record.offset < clean_offset]
        assert len({record.key for record in clean}) == len(clean)
        assert not {record.offset for record in clean} & truth.aborted
        assert clean_offset <= truth.stable_offset

    def teardown(self) -> None:
        """When all transactions are over and their time has passed, next to nothing stays."""
        self.end_all(ControlType.COMMIT)
        for _ in range(3):
            # Two more segments, so that no snapshot is left that has anything open.
            self.put([(b"a", b"last")])
            self.archive()
        for _ in range(2):
            self.keyed.compact()
            self.keyed.clock.advance_ms(DELETE_RETENTION_MS)
        self.reader_of_committed_records_ends_up_with_the_newest()
        records = self.keyed.records()
        assert {r.key: r.value for r in records} == Truth.of(self.written).newest()
        by_transaction = [r for r in records if self.written[r.offset].producer_id is not None]
        assert len(self.keyed.marker_offsets()) <= len(by_transaction)
        self.keyed.log.close()


TestTransactionCompaction = TransactionMachine.TestCase
TestTransactionCompaction.settings = settings(
    max_examples=examples(20),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
