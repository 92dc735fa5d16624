"""What must hold of a group whatever happens, checked as the broker's answers leave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MOST_OFFSETS = 1000
"""A schedule commits fewer offsets of a partition."""


class Violation(AssertionError):
    """The broker broke a promise."""


class GroupChecker:
    """Sees every answer in the order in which the broker gave them, over all its lives."""

    def __init__(self) -> None:
        self.highest_synced = 0
        self._highest_joined = 0
        self._owners: dict[tuple[int, int], str] = {}
        # Offsets only ever grow when they are sent, so an older one that is seen was brought back.
        self._sent: dict[int, int] = {}
        self._promised: dict[int, int] = {}

    def crashed(self) -> None:
        """A generation that nobody had an assignment of may be lost."""
        self._highest_joined = self.highest_synced

    def forgotten(self) -> None:
        """A group of which nothing is left may begin again."""
        self.highest_synced = self._highest_joined = 0
        self._owners.clear()

    def joined(self, generation: int) -> None:
        if generation < self._highest_joined:
            raise Violation(f"generation {generation} came after {self._highest_joined}")
        self._highest_joined = generation

    def synced(self, identity: str, generation: int, partitions: Iterable[int]) -> None:
        if generation < self.highest_synced:
            raise Violation(f"generation {generation} was assigned after {self.highest_synced}")
        self.highest_synced = generation
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), identity)
            if owner != identity:
                raise Violation(
                    f"partition {partition} has two owners in generation {generation}: "
                    f"{owner} and {identity}"
                )

    def next_offset(self, partition: int) -> int:
        """An offset to commit, higher than any before."""
        self._sent[partition] = self._sent.get(partition, 0) + 1
        assert self._sent[partition] <= MOST_OFFSETS
        return self._sent[partition]

    def committed(self, generation: int, offsets: Mapping[int, int], *, newest: int) -> None:
        """`newest` is the newest generation that had been assigned when this was sent."""
        if generation < newest:
            raise Violation(f"a commit of generation {generation} was taken after {newest} began")
        for partition, offset in offsets.items():
            self._promised[partition] = max(self._promised.get(partition, 0), offset)

    def promises(self) -> dict[int, int]:
        """For each partition, the least that a fetch which begins now may find."""
        return dict(self._promised)

    def fetched(self, found: Mapping[int, int], promised: Mapping[int, int]) -> None:
        for partition, offset in promised.items():
            if found.get(partition, -1) < offset:
                raise Violation(
                    f"partition {partition}: {offset} was promised, {found.get(partition)} is there"
                )
        for partition, offset in found.items():
            if offset > self._sent.get(partition, 0):
                raise Violation(f"partition {partition}: {offset} was never committed")
            # What was seen must stay, too.
            self._promised[partition] = max(self._promised.get(partition, 0), offset)
