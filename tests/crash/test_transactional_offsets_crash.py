"""Offsets committed in transactions, and a crash at every single step: nothing half, nothing twice.

A run commits offsets of two groups, plainly and in the transactions of three producers, deletes
some, compacts the log and starts anew. Whenever it is ended, the next process finds the offsets
as they were before the step that was under way, or as that left them, by whether its batch is in
the log; so those of a transaction are there exactly if its marker is.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from millstream.broker.groups import GroupCoordinator
from millstream.broker.state_log import StateLog
from millstream.clock import ManualClock
from millstream.errors import UnstableOffset
from millstream.groups.consumer_group import TopicFacts
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.records import ControlType, build_control
from millstream.settings.groups import GroupSettings
from millstream.storage.log_walk import sound_batches
from millstream.storage.recovery import LogCheckpoint
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFilesystem
from tests.fakes.fake_flusher import PromptFlusher
from tests.fakes.keyed_log import COMPACTED, DELETE_RETENTION_MS, KeyedLog
from tests.fakes.simulated_loop import run_simulated

DIRECTORY = "/data/__consumer_offsets-0"
SETTINGS = replace(COMPACTED, segment_bytes=600)
MOMENTS: tuple[CrashMoment, ...] = ("before", "halfway")
GROUPS = ("g", "h")
PARTITIONS = 2
PRODUCERS = 3
TOPICS = {"t": TopicFacts(bytes(16), PARTITIONS)}
NOBODY = Committer("", None, -1)

Place = tuple[str, int]
"""A group, and a partition that it reads."""


class Model:
    """What must be known of the offsets, kept by the words of the rule."""

    def __init__(self) -> None:
        self._order = 0
        # Where the newest committed record lies, and its offset; None is a tombstone.
        self._newest: dict[Place, tuple[int, int | None]] = {}
        self._open: dict[int, dict[Place, tuple[int, int]]] = {}

    def commit(self, place: Place, offset: int) -> None:
        self._newest[place] = (self._next(), offset)

    def delete(self, place: Place) -> None:
        self._newest[place] = (self._next(), None)

    def pend(self, producer_id: int, place: Place, offset: int) -> None:
        self._open.setdefault(producer_id, {})[place] = (self._next(), offset)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        for place, entry in self._open.pop(producer_id, {}).items():
            if is_commit and entry[0] > self._newest.get(place, (0, None))[0]:
                self._newest[place] = entry

    @property
    def open_producers(self) -> list[int]:
        return sorted(self._open)

    def offsets(self) -> dict[Place, int]:
        return {place: offset for place, (_, offset) in self._newest.items() if offset is not None}

    def unstable(self) -> set[Place]:
        return {
            place
            for waiting in self._open.values()
            for place, (order, _) in waiting.items()
            if order > self._newest.get(place, (0, None))[0]
        }

    def _next(self) -> int:
        self._order += 1
        return self._order


class OffsetsRun:
    """A life of the offsets' log, and what is known of it at any moment."""

    def __init__(self, disk: FakeFilesystem, *, seed: int) -> None:
        self.disk = disk
        self.clock = ManualClock()
        self.random = Random(seed)
        self.epochs = dict.fromkeys(range(PRODUCERS), 0)
        self.model = Model()
        self.before = Model()
        """As of the last step that has ended."""
        self.end_offset = 0
        """Of the log, then."""

    async def run(self, steps: int) -> None:
        self.open()
        for number in range(steps):
            await self.step(number)
            self.before = deepcopy(self.model)
            self.end_offset = self.keyed.log.end_offset
            assert self.keyed.log.synced_offset == self.end_offset

    def open(self, checkpoint: LogCheckpoint | None = None) -> None:
        self.keyed = KeyedLog(
            DIRECTORY, SETTINGS, filesystem=self.disk, clock=self.clock, checkpoint=checkpoint
        )
        self._coordinate()

    def _coordinate(self) -> None:
        self.state_log = StateLog(
            self.keyed.log, PromptFlusher(), clock=self.clock, max_decompressed_bytes=1 << 20
        )
        self.groups = GroupCoordinator(
            self.state_log,
            settings=GroupSettings(),
            clock=self.clock,
            topics=lambda: TOPICS,
            new_member_id=lambda name: name,
        )
        self.groups.replay()

    async def step(self, number: int) -> None:
        group, partition = place = self.random.choice(GROUPS), self.random.randrange(PARTITIONS)
        producer_id = self.random.randrange(PRODUCERS)
        offset = OffsetToCommit("t", partition, number, -1, "")
        chance = self.random.random()
        if chance < 0.2:
            self.model.commit(place, number)
            await self.groups.commit(group, NOBODY, [offset])
        elif chance < 0.3 and place in {
            **self.model.offsets(),
            **dict.fromkeys(self.model.unstable()),
        }:
            self.model.delete(place)
            await self.groups.delete_offsets(group, [("t", partition)])
        elif chance < 0.65:
            self.model.pend(producer_id, place, number)
            await self.groups.commit_in_transaction(
                group,
                NOBODY,
                [offset],
                producer_id=producer_id,
                producer_epoch=self.epochs[producer_id],
            )
        elif chance < 0.9 and self.model.open_producers:
            await self.end(self.random.choice(self.model.open_producers))
        else:
            self._keep_house()

    async def end(self, producer_id: int) -> None:
        is_commit = self.random.random() < 0.7
        self.model.end(producer_id, is_commit=is_commit)
        # With every other client, the marker fences what came before it (KIP-890).
        self.epochs[producer_id] += self.random.randrange(2)
        marker = build_control(
            ControlType.COMMIT if is_commit else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
            coordinator_epoch=0,
            timestamp_ms=self.clock.now_ms(),
        )
        [outcome] = self.keyed.log.append([marker])
        assert isinstance(outcome, int), outcome
        self.groups.end_transaction(producer_id, is_commit=is_commit)
        await self.state_log.all_durable()

    def _keep_house(self) -> None:
        self.keyed.archive()
        if self.random.random() < 0.5:
            self.clock.advance_ms(DELETE_RETENTION_MS)
        if self.random.random() < 0.7:
            self.keyed.compact()
        else:
            self.groups.close()
            self.keyed.reopen()
            self._coordinate()

    async def found(self) -> tuple[dict[Place, int], set[Place]]:
        """Committed offsets, and the places of those that are pending."""
        offsets: dict[Place, int] = {}
        unstable: set[Place] = set()
        for group in GROUPS:
            for key, committed in (await self.groups.fetch_offsets(group)).items():
                offsets[group, key[1]] = committed.offset
            for key, value in (await self.groups.fetch_stable_offsets(group)).items():
                if isinstance(value, UnstableOffset):
                    unstable.add((group, key[1]))
        return offsets, unstable

    def open_in_the_log(self) -> set[int]:
        """Producers whose last batch is no marker."""
        is_open = {
            header.producer_id: not header.is_control
            for header, _ in sound_batches(self.keyed.log, self.keyed.log.start_offset)
            if header.is_transactional
        }
        return {producer_id for producer_id, value in is_open.items() if value}


def state_of(model: Model) -> tuple[dict[Place, int], set[Place]]:
    return model.offsets(), model.unstable()


def crashed_runs(moment: CrashMoment, *, steps: int, seed: int) -> Iterator[OffsetsRun]:
    whole = OffsetsRun(FakeFilesystem(), seed=seed)
    run_simulated(whole.run(steps), whole.clock)
    for operation in range(1, 1 + whole.disk.operation_count):
        if moment == "halfway" and not whole.disk.operations[operation - 1].startswith("write"):
            continue
        ended = OffsetsRun(FakeFilesystem(), seed=seed)
        ended.disk.crash_at(operation, moment)
        with pytest.raises(Crash):
            run_simulated(ended.run(steps), ended.clock)
        yield ended


async def prove(ended: OffsetsRun, disk: FakeFilesystem, checkpoint: LogCheckpoint | None) -> None:
    again = OffsetsRun(disk, seed=ended.disk.operation_count)
    again.clock.advance_ms(ended.clock.now_ms() - again.clock.now_ms())
    again.open(checkpoint)
    # Every step that changes anything appends one batch, which is there or is not.
    model = ended.model if again.keyed.log.end_offset > ended.end_offset else ended.before
    assert await again.found() == state_of(model)
    # So a transaction that was being ended has ended exactly if its marker is there.
    assert again.open_in_the_log() == set(model.open_producers)
    again.model = deepcopy(model)
    again.epochs = dict(ended.epochs)
    # As the coordinator of transactions does at its start: it ends all that is open.
    for producer_id in model.open_producers:
        await again.end(producer_id)
    assert await again.found() == state_of(again.model)
    third = OffsetsRun(disk.after_crash("lost"), seed=0)
    third.clock.advance_ms(again.clock.now_ms() - third.clock.now_ms())
    third.open(checkpoint)
    assert await third.found() == state_of(again.model)


def prove_all(moment: CrashMoment, mode: CrashMode, *, steps: int, seed: int) -> None:
    for ended in crashed_runs(moment, steps=steps, seed=seed):
        disk = ended.disk.after_crash(mode, seed + ended.disk.operation_count)
        # The durable one may lag behind by any time.
        is_old = ended.disk.operation_count % 2
        checkpoint = None if is_old else LogCheckpoint(ended.end_offset)
        run_simulated(prove(ended, disk, checkpoint), ended.clock)


@pytest.mark.parametrize("seed", range(30))
def test_every_step_of_a_life_without_crashes_keeps_the_rule(seed: int) -> None:
    life = OffsetsRun(FakeFilesystem(), seed=seed)

    async def live() -> None:
        life.open()
        for number in range(40):
            await life.step(number)
            assert await life.found() == state_of(life.model)
            assert life.open_in_the_log() == set(life.model.open_producers)

    run_simulated(live(), life.clock)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("mode", ["kept", "lost", "torn"])
def test_crash_at_any_step_leaves_whole_transactions(mode: CrashMode, moment: CrashMoment) -> None:
    prove_all(moment, mode, steps=30, seed=1)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(10, 18))
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("mode", ["kept", "lost", "torn"])
def test_crash_at_any_step_of_any_life_leaves_whole_transactions(
    mode: CrashMode, moment: CrashMoment, seed: int
) -> None:
    prove_all(moment, mode, steps=50, seed=seed)
