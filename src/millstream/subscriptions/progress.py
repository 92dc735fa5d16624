"""What of a partition a subscription is done with, and which deliveries were in vain.

Everything below the floor is done. Above it, the offsets that are done are bits, and deliveries in
vain are counted, in blocks of 1024 offsets; the floor and each block are stored as a record of
their own, so that what is written for an acknowledgement stays small however many are missing.

Invariant: the offset at the floor is not done. A block that was stored and says nothing any more is
stored once more, as nothing.
After a crash: the newest of each record is what was known. Bits below the floor, and counts of what
is done, may be among them and mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

BLOCK_OFFSETS = 1024
_SHIFT = 10
_MASK = BLOCK_OFFSETS - 1
_ALL = (1 << BLOCK_OFFSETS) - 1


class Failure(NamedTuple):
    """Deliveries of one message that were in vain."""

    deliveries: int
    due_ms: int
    """When it may be delivered again."""
    reason: str = ""
    """Of the last one, where the message is dead."""


class Head(NamedTuple):
    """What is stored of a partition as a whole."""

    floor: int
    lost: int = 0
    """How many were deleted from the log before they were acknowledged, at most."""
    dead: int = 0
    """How many went to the dead letters."""


class Block(NamedTuple):
    """What is stored of 1024 offsets."""

    bits: int
    failures: Mapping[int, Failure]


class Changes(NamedTuple):
    """What is to be stored; a block without a value says nothing any more."""

    head: Head | None
    blocks: dict[int, Block | None]


class Progress:
    """How far a subscription has come in one partition."""

    __slots__ = (
        "_blocks",
        "_changed",
        "_failures",
        "_is_head_changed",
        "_stored",
        "dead",
        "done_above",
        "floor",
        "lost",
    )

    def __init__(self, head: Head, blocks: Mapping[int, Block] | None = None) -> None:
        self.floor, self.lost, self.dead = head
        self.done_above = 0
        """How many above the floor are done."""
        self._blocks: dict[int, int] = {}
        self._failures: dict[int, dict[int, Failure]] = {}
        self._stored: set[int] = set()
        self._changed: set[int] = set()
        self._is_head_changed = False
        for number, block in (blocks or {}).items():
            self._restore(number, block)
        self._advance()

    def _restore(self, number: int, block: Block) -> None:
        self._stored.add(number)
        if (number + 1) << _SHIFT <= self.floor:
            # A crash came before it was stored as nothing.
            self._changed.add(number)
            return
        bits = self._above_floor(number, block.bits)
        if bits:
            self._blocks[number] = bits
            self.done_above += bits.bit_count()
        failures = {
            offset: failure
            for offset, failure in block.failures.items()
            if offset >= self.floor and not bits >> (offset & _MASK) & 1
        }
        if failures:
            self._failures[number] = failures

    # What is known

    def is_done(self, offset: int) -> bool:
        if offset < self.floor:
            return True
        return bool(self._blocks.get(offset >> _SHIFT, 0) >> (offset & _MASK) & 1)

    def failure(self, offset: int) -> Failure | None:
        failures = self._failures.get(offset >> _SHIFT)
        return None if failures is None else failures.get(offset)

    @property
    def has_failures(self) -> bool:
        return bool(self._failures)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """What is done above the floor: from, and up to before."""
        first = end = -1
        for number in sorted(self._blocks):
            for index in range(BLOCK_OFFSETS):
                offset = number << _SHIFT | index
                if offset < self.floor or not self.is_done(offset):
                    continue
                if offset != end:
                    if end >= 0:
                        yield first, end
                    first = offset
                end = offset + 1
        if end >= 0:
            yield first, end

    # What happens

    def finish(self, offset: int) -> bool:
        """A message is done; False if it was."""
        if self.is_done(offset):
            return False
        number = offset >> _SHIFT
        failures = self._failures.get(number)
        if failures is not None and failures.pop(offset, None) is not None:
            self._changed.add(number)
            if not failures:
                del self._failures[number]
        if offset == self.floor:
            self._move_floor(offset + 1)
            return True
        self._blocks[number] = self._blocks.get(number, 0) | 1 << (offset & _MASK)
        self._changed.add(number)
        self.done_above += 1
        return True

    def fail(self, offset: int, failure: Failure) -> None:
        """A message was delivered in vain."""
        assert not self.is_done(offset), "what is done is not delivered"
        number = offset >> _SHIFT
        self._failures.setdefault(number, {})[offset] = failure
        self._changed.add(number)

    def skip(self, first: int, end: int) -> None:
        """From one offset up to before another there are no messages.

        Nothing is stored for it: whoever reads there again finds out again.
        """
        if end <= self.floor:
            return
        if first <= self.floor:
            self._leave(end)
            return
        for number in range(first >> _SHIFT, (end - 1 >> _SHIFT) + 1):
            base = number << _SHIFT
            low, high = max(first - base, 0), min(end - base, BLOCK_OFFSETS)
            before = self._blocks.get(number, 0)
            after = before | (1 << high) - (1 << low)
            self._blocks[number] = after
            self.done_above += after.bit_count() - before.bit_count()

    def lose(self, end: int, *, spared: int) -> None:
        """The log now begins at an offset; what was not done below is lost, but for some."""
        if end <= self.floor:
            return
        before = self.floor + self.done_above
        self._leave(end)
        passed = self.floor + self.done_above - before
        self.lost += max(passed - spared, 0)

    def cut(self, end: int) -> bool:
        """The log ends at an offset, and what is known past it is of records that never were."""
        is_cut = self.floor > end
        for number in {*self._blocks, *self._failures}:
            base = number << _SHIFT
            if base + BLOCK_OFFSETS <= end:
                continue
            before = self._blocks.pop(number, 0)
            bits = before & ((1 << max(end - base, 0)) - 1)
            if bits:
                self._blocks[number] = bits
            failures = self._failures.pop(number, {})
            kept = {offset: failure for offset, failure in failures.items() if offset < end}
            if kept:
                self._failures[number] = kept
            if bits != before or len(kept) != len(failures):
                is_cut = True
                self._changed.add(number)
            self.done_above -= before.bit_count() - bits.bit_count()
        if self.floor > end:
            self.floor = end
            self._is_head_changed = True
        return is_cut

    def miss(self, offset: int) -> None:
        """A message is not in the log any more."""
        if self.finish(offset):
            self.lost += 1
            self._is_head_changed = True

    def bury(self, offset: int) -> None:
        """A message has gone to the dead letters."""
        if self.finish(offset):
            self.dead += 1
            self._is_head_changed = True

    # What is stored

    @property
    def has_new_failures(self) -> bool:
        """Whether there are deliveries in vain that may not be stored."""
        return bool(self._failures and self._changed)

    @property
    def is_changed(self) -> bool:
        return self._is_head_changed or bool(self._changed)

    def changes(self) -> Changes:
        """What is to be stored. The floor is always part of it: others may have moved with it."""
        blocks: dict[int, Block | None] = {}
        for number in self._changed:
            bits = self._above_floor(number, self._blocks.get(number, 0))
            failures = self._failures.get(number)
            if bits or failures:
                blocks[number] = Block(bits, dict(failures or {}))
            elif number in self._stored:
                blocks[number] = None
        return Changes(self.head if self._is_head_changed else None, blocks)

    def stored(self, changes: Changes) -> None:
        """Changes are in the log, where they are found after a crash or lost all together."""
        for number, block in changes.blocks.items():
            if block is None:
                self._stored.discard(number)
            else:
                self._stored.add(number)
        self._changed.clear()
        self._is_head_changed = False

    @property
    def head(self) -> Head:
        return Head(self.floor, self.lost, self.dead)

    def blocks(self) -> set[int]:
        """Those that have a record."""
        return set(self._stored)

    # How it is done

    def _above_floor(self, number: int, bits: int) -> int:
        base = number << _SHIFT
        if self.floor <= base:
            return bits
        if self.floor >= base + BLOCK_OFFSETS:
            return 0
        return bits & (_ALL ^ (1 << self.floor - base) - 1)

    def _move_floor(self, to: int) -> None:
        """By one: what is above it is done, or not, as before."""
        self.floor = to
        self._is_head_changed = True
        if not to & _MASK:
            self._drop((to >> _SHIFT) - 1)
        if self._blocks:
            self._advance()

    def _advance(self) -> None:
        """Let the floor rise past all that is done."""
        while True:
            number = self.floor >> _SHIFT
            bits = self._blocks.get(number, 0) >> (self.floor & _MASK)
            if not bits & 1:
                return
            run = (~bits & bits + 1).bit_length() - 1
            self.floor += run
            self._is_head_changed = True
            self.done_above -= run
            if self.floor & _MASK:
                return
            self._drop(number)

    def _leave(self, end: int) -> None:
        """Let the floor rise to an offset at least."""
        passed = [n for n in {*self._blocks, *self._failures, *self._stored} if n < end >> _SHIFT]
        for number in passed:
            self.done_above -= self._above_floor(number, self._blocks.get(number, 0)).bit_count()
            self._drop(number)
        number = end >> _SHIFT
        bits = self._above_floor(number, self._blocks.get(number, 0))
        self.done_above -= (bits & ((1 << (end & _MASK)) - 1)).bit_count()
        failures = self._failures.get(number, {})
        for offset in [offset for offset in failures if offset < end]:
            del failures[offset]
            self._changed.add(number)
        if not failures:
            self._failures.pop(number, None)
        self.floor = end
        self._is_head_changed = True
        self._advance()

    def _drop(self, number: int) -> None:
        self._blocks.pop(number, None)
        self._failures.pop(number, None)
        if number in self._stored:
            self._changed.add(number)
        else:
            self._changed.discard(number)
