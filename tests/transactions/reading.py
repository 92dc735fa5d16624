"""What consumers read, and where they were entitled to go on from.

A stint is the time in which a consumer holds a partition and moves forward by itself: it begins
with an assignment or a seek and ends with the next seek, a revocation or the consumer's end.
An assignment of a partition that is held already begins nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.transactions.history import (
    UNKNOWN_OFFSET,
    Action,
    Event,
    Phase,
    Record,
    by_worker,
)
from tests.transactions.write_ledger import Client, Partition


class Read(NamedTuple):
    record: Record
    event: Event


@dataclass(slots=True, eq=False)
class Stint:
    client: Client
    partition: Partition
    group: str
    began: Event
    # Where it was told to begin, or UNKNOWN_OFFSET.
    start: int
    reads: list[Read] = field(default_factory=list)
    # That it has read to the end of the partition.
    ended: Event | None = None
    end_offset: int = UNKNOWN_OFFSET

    @property
    def span(self) -> range:
        """The offsets that it has read, or gone past."""
        offsets = [read.record.offset for read in self.reads]
        stop = max(max(offsets, default=UNKNOWN_OFFSET) + 1, self.end_offset, 0)
        start = self.start if self.start != UNKNOWN_OFFSET else min(offsets, default=stop)
        return range(start, max(start, stop))

    def read_offsets(self) -> set[int]:
        return {read.record.offset for read in self.reads}


class Readings:
    def __init__(self, history: Iterable[Event]) -> None:
        self.stints: list[Stint] = []
        self._held: dict[tuple[Client, Partition], Stint] = {}
        for events in by_worker(history).values():
            for event in events:
                if event.phase is Phase.OK:
                    self._take(event)
        self.reads: dict[str, list[Read]] = {}
        self.stints_of: dict[Partition, list[Stint]] = {}
        for stint in self.stints:
            self.stints_of.setdefault(stint.partition, []).append(stint)
            for read in stint.reads:
                self.reads.setdefault(read.record.value, []).append(read)

    def is_seen(self, value: str) -> bool:
        return value in self.reads

    def places(self, value: str) -> set[tuple[str, int, int]]:
        return {read.record[:3] for read in self.reads.get(value, ())}

    def has_end(self, partition: Partition) -> bool:
        return any(stint.ended for stint in self.stints_of.get(partition, ()))

    def goes_past(self, partition: Partition, offset: int) -> bool:
        return any(offset in stint.span for stint in self.stints_of.get(partition, ()))

    def all_reads(self) -> Iterator[Read]:
        for stint in self.stints:
            yield from stint.reads

    def _take(self, event: Event) -> None:
        client = event.worker, event.client
        for record in event.records if event.action is Action.POLL else ():
            self._stint(client, record[:2], event).reads.append(Read(record, event))
        for topic, number, offset in event.positions:
            self._move(client, (topic, number), event, offset)

    def _move(self, client: Client, partition: Partition, event: Event, offset: int) -> None:
        held = self._held.get((client, partition))
        # A record that was on its way when its partition was taken away is no assignment.
        is_assigned = held is not None and held.began.action is not Action.POLL
        match event.action:
            case Action.ASSIGN if not is_assigned:
                self._begin(client, partition, event, offset)
            case Action.SEEK:
                self._begin(client, partition, event, offset)
            case Action.REVOKE:
                self._held.pop((client, partition), None)
            case Action.END:
                stint = self._stint(client, partition, event)
                stint.ended, stint.end_offset = event, offset

    def _stint(self, client: Client, partition: Partition, event: Event) -> Stint:
        """The one of now; a record of a partition that is not held has its own rules: none."""
        held = self._held.get((client, partition))
        return held or self._begin(client, partition, event, UNKNOWN_OFFSET)

    def _begin(self, client: Client, partition: Partition, event: Event, start: int) -> Stint:
        stint = Stint(client, partition, event.group, event, start)
        self.stints.append(stint)
        self._held[client, partition] = stint
        return stint
