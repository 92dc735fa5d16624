"""Messages that were read for a queue and that nobody has yet, by lane.

Invariant: each lane is in order of offset. `count` and `size_bytes` are of all lanes together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from millstream.records.record import Record
from millstream.subscriptions.lanes import ANY_LANE

LaneOf = Callable[[bytes | None], int]

_RECORD_BYTES = 100
"""About what a message takes besides what its sender gave it."""


class ReadyMessages:
    """What of a partition may be taken, once nothing older is missing."""

    __slots__ = ("_lane_of", "_lanes", "count", "size_bytes")

    def __init__(self, lane_of: LaneOf | None) -> None:
        """With `lane_of`, a message is for the consumer that it names only."""
        self._lane_of = lane_of
        self._lanes: dict[int, deque[Record]] = {}
        self.count = 0
        self.size_bytes = 0

    @property
    def last_offset(self) -> int:
        """Of the newest; -1 if there is none."""
        return max((lane[-1].offset for lane in self._lanes.values() if lane), default=-1)

    def append(self, record: Record) -> None:
        """A message that is newer than all."""
        self._lane(self._number_of(record)).append(record)
        self.count += 1
        self.size_bytes += size_bytes(record)

    def merge(self, records: Sequence[Record]) -> None:
        """Messages in order of offset that may be older than others."""
        coming: dict[int, list[Record]] = {}
        for record in records:
            coming.setdefault(self._number_of(record), []).append(record)
            self.count += 1
            self.size_bytes += size_bytes(record)
        for number, some in coming.items():
            lane = self._lane(number)
            if lane and lane[0].offset < some[-1].offset:
                self._lanes[number] = deque(sorted((*lane, *some), key=_offset))
            else:
                lane.extendleft(reversed(some))

    def lane(self, number: int) -> deque[Record] | None:
        """Take from its left with `pop`."""
        return self._lanes.get(number)

    def pop(self, lane: deque[Record]) -> int:
        """Take the oldest of a lane out; returns its size."""
        size = size_bytes(lane.popleft())
        self.count -= 1
        self.size_bytes -= size
        return size

    def rearrange(self) -> None:
        """The consumers have changed: sort all into lanes anew."""
        records = sorted((each for lane in self._lanes.values() for each in lane), key=_offset)
        self._lanes.clear()
        for record in records:
            self._lane(self._number_of(record)).append(record)

    def trim(self, max_count: int, max_bytes: int) -> list[int]:
        """Give up the newest, so that no more than this is left; returns their offsets."""
        held = sorted(
            ((record, number) for number, lane in self._lanes.items() for record in lane),
            key=_offset_of_held,
        )
        given_up = []
        while held and (self.count > max_count or (self.size_bytes > max_bytes and len(held) > 1)):
            record, number = held.pop()
            self._lanes[number].pop()
            self.count -= 1
            self.size_bytes -= size_bytes(record)
            given_up.append(record.offset)
        return given_up

    def clear(self) -> list[int]:
        """Give up all; returns their offsets."""
        offsets = [record.offset for lane in self._lanes.values() for record in lane]
        self._lanes.clear()
        self.count = self.size_bytes = 0
        return offsets

    def _number_of(self, record: Record) -> int:
        return ANY_LANE if self._lane_of is None else self._lane_of(record.key)

    def _lane(self, number: int) -> deque[Record]:
        found = self._lanes.get(number)
        if found is None:
            found = self._lanes[number] = deque()
        return found


def size_bytes(record: Record) -> int:
    """About what a message takes in memory and in an answer."""
    size = _RECORD_BYTES + len(record.value or b"") + len(record.key or b"")
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size


def _offset(record: Record) -> int:
    return record.offset


def _offset_of_held(held: tuple[Record, int]) -> int:
    return held[0].offset
