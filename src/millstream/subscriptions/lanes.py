"""Which consumer of a key_shared subscription gets a key: by a hash, moved as little as possible.

Each consumer has a weight for each of 1024 slots, and the heaviest has the slot. So when one comes
or goes, only the slots that it takes or leaves change hands.
"""

from __future__ import annotations

from zlib import crc32

ANY_LANE = 0
"""Where all messages lie that any consumer may have."""

_SLOTS = 1024
_MASK = (1 << 64) - 1


class Lanes:
    """The consumers of a key_shared subscription; with none, all keys are in the lane of nobody."""

    __slots__ = ("_consumers", "_owners", "_turn")

    def __init__(self) -> None:
        self._consumers: list[int] = []
        self._owners: dict[int, int] = {}
        self._turn = 0

    def change(self, consumers: list[int]) -> None:
        self._consumers = list(consumers)
        self._owners.clear()

    def lane_of(self, key: bytes | None) -> int:
        """The consumer that is to have a message. Those without a key take turns."""
        consumers = self._consumers
        if not consumers:
            return ANY_LANE
        if key is None:
            self._turn += 1
            return consumers[self._turn % len(consumers)]
        slot = crc32(key) % _SLOTS
        owner = self._owners.get(slot)
        if owner is None:
            owner = max(consumers, key=lambda consumer: _mixed(consumer << 10 | slot))
            self._owners[slot] = owner
        return owner


def _mixed(number: int) -> int:
    """A number that looks like none of its neighbours' (splitmix64)."""
    number = number * 0x9E3779B97F4A7C15 & _MASK
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31
