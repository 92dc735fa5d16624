"""What a subscription is done with: against a model, across blocks, and through storage."""

from __future__ import annotations

from random import Random

import pytest

from millstream.subscriptions.progress import BLOCK_OFFSETS, Block, Failure, Head, Progress

FIRST = BLOCK_OFFSETS - 20
END = 3 * BLOCK_OFFSETS + 20


class Stored:
    """What the log would hold of it."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.blocks: dict[int, Block] = {}

    def store(self, progress: Progress) -> None:
        changes = progress.changes()
        if changes.head is not None:
            self.head = changes.head
        for number, block in changes.blocks.items():
            if block is None:
                del self.blocks[number]
            else:
                self.blocks[number] = block
        progress.stored(changes)
        assert not progress.is_changed

    def restored(self) -> Progress:
        return Progress(self.head, self.blocks)


class Model:
    def __init__(self) -> None:
        self.done = set(range(FIRST))
        self.floor = FIRST
        self.failures: dict[int, Failure] = {}
        self.gaps: list[tuple[int, int]] = []

    def finish(self, *offsets: int) -> None:
        self.done.update(offsets)
        for offset in offsets:
            self.failures.pop(offset, None)
        while self.floor in self.done:
            self.floor += 1


def prove_same(progress: Progress, model: Model) -> None:
    assert progress.floor == model.floor
    above = sorted(offset for offset in model.done if offset > model.floor)
    assert progress.done_above == len(above)
    assert [o for first, end in progress.ranges() for o in range(first, end)] == above
    for offset in {*range(FIRST - 3, END + 1, 7), *model.failures, *above[:50]}:
        assert progress.is_done(offset) == (offset in model.done)
        assert progress.failure(offset) == model.failures.get(offset)
    assert progress.has_failures == bool(model.failures)


def restored(stored: Stored, model: Model) -> Progress:
    """As after a crash, when the log was read again, and its gaps were found."""
    progress = stored.restored()
    for first, end in model.gaps:
        progress.skip(first, end)
    return progress


class Walk:
    """Random steps of the real one and of the model, side by side."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.progress, self.model = Progress(Head(FIRST)), Model()
        self.stored = Stored(Head(FIRST))

    def step(self) -> None:
        low = self.model.floor
        offset = self.random.choice((low, self.random.randrange(low, min(low + 300, END))))
        steps = [self._finish] * 6 + [self._fail, self._fail, self._skip, self._lose, self._store]
        self.random.choice(steps)(offset)

    def _finish(self, first: int) -> None:
        for offset in range(first, min(first + self.random.choice((1, 1, 90)), END)):
            assert self.progress.finish(offset) == (offset not in self.model.done)
            self.model.finish(offset)

    def _fail(self, offset: int) -> None:
        if offset not in self.model.done:
            failure = Failure(self.random.randrange(9), self.random.randrange(9), "why")
            self.progress.fail(offset, failure)
            self.model.failures[offset] = failure

    def _skip(self, first: int) -> None:
        gap = range(first, min(first + self.random.choice((2, 500)), END))
        # Where there are no messages none was delivered.
        if self.model.failures.keys().isdisjoint(gap):
            self.progress.skip(gap.start, gap.stop)
            self.model.finish(*gap)
            self.model.gaps.append((gap.start, gap.stop))

    def _lose(self, start: int) -> None:
        before = self.progress.lost
        missing = [o for o in range(self.model.floor, start) if o not in self.model.done]
        self.progress.lose(start, spared=0)
        assert self.progress.lost == before + len(missing)
        self.model.finish(*missing)

    def _store(self, _: int) -> None:
        self.stored.store(self.progress)
        if self.random.random() < 0.5:
            self.progress = restored(self.stored, self.model)


@pytest.mark.parametrize("seed", range(10))
def test_progress_is_what_the_model_says_also_when_restored(seed: int) -> None:
    walk = Walk(seed)
    for number in range(150):
        walk.step()
        if number % 10 == 0:
            prove_same(walk.progress, walk.model)
        if walk.model.floor >= END - 1:
            break
    walk.stored.store(walk.progress)
    prove_same(restored(walk.stored, walk.model), walk.model)


def test_blocks_that_the_floor_has_passed_are_not_stored_any_more() -> None:
    progress, stored = Progress(Head(0)), Stored(Head(0))
    for offset in range(1, 3 * BLOCK_OFFSETS, 2):
        progress.finish(offset)
    progress.fail(4, Failure(1, 0))
    stored.store(progress)
    assert set(stored.blocks) == progress.blocks() == {0, 1, 2}
    for offset in range(0, 2 * BLOCK_OFFSETS, 2):
        progress.finish(offset)
        stored.store(progress)
    assert set(stored.blocks) == progress.blocks() == {2}
    assert stored.head.floor == progress.floor == 2 * BLOCK_OFFSETS


def test_acknowledgements_in_order_store_the_floor_alone() -> None:
    progress = Progress(Head(0))
    for offset in range(2 * BLOCK_OFFSETS + 5):
        progress.finish(offset)
    changes = progress.changes()
    assert changes.head == Head(2 * BLOCK_OFFSETS + 5)
    assert changes.blocks == {}


def test_one_acknowledgement_among_many_holes_stores_one_block() -> None:
    progress, stored = Progress(Head(0)), Stored(Head(0))
    for offset in range(1, 100_000, 2):
        progress.finish(offset)
    stored.store(progress)
    progress.finish(50_000)
    changes = progress.changes()
    assert changes.head is None
    assert set(changes.blocks) == {50_000 // BLOCK_OFFSETS}


def test_stored_block_below_the_floor_means_nothing_and_goes() -> None:
    late = Block(0b11, {1: Failure(1, 0)})
    progress = Progress(Head(BLOCK_OFFSETS), {0: late})
    assert (progress.done_above, progress.has_failures) == (0, False)
    assert progress.changes().blocks == {0: None}


@pytest.mark.parametrize("end", [0, 5, 20, BLOCK_OFFSETS, BLOCK_OFFSETS + 3])
def test_cut_takes_back_what_is_past_the_end(end: int) -> None:
    progress, stored = Progress(Head(10)), Stored(Head(10))
    for offset in (12, 19, 25, BLOCK_OFFSETS + 1, BLOCK_OFFSETS + 7):
        progress.finish(offset)
    progress.fail(21, Failure(2, 9))
    stored.store(progress)
    assert progress.cut(end)
    stored.store(progress)
    for found in (progress, stored.restored()):
        assert found.floor == min(10, end)
        assert all(not found.is_done(offset) for offset in range(end, 3 * BLOCK_OFFSETS))
        assert found.is_done(12) == (end > 12)
        assert (found.failure(21) is not None) == (end > 21)


def test_cut_past_all_that_is_known_changes_nothing() -> None:
    progress = Progress(Head(10), {0: Block(1 << 12, {})})
    assert not progress.cut(13)
    assert not progress.is_changed


def test_dead_letter_is_done_and_counted_once() -> None:
    progress = Progress(Head(0))
    progress.fail(0, Failure(3, 0))
    progress.bury(0)
    progress.bury(0)
    assert progress.head == Head(1, lost=0, dead=1)
