"""Appends gathered while one read from a socket is worked off, then stored together.

A producer that sends small requests one after the other has many of them in one read. They go to
each log in one call, and so to each file in one write.

Invariant: batches reach a log in the order in which they were added.
Threads: the event loop's only. Nothing may await between the first `add` and `run`: the batches
are views of a receive buffer that is used again afterwards.
Cost: benchmarks/small_requests.py.
"""

from __future__ import annotations

import struct

from millstream.broker.partition import Partition
from millstream.errors import MillstreamError, StorageFailure, Unavailable
from millstream.records.batch import APPEND_TIME_BIT, ATTRIBUTES_AT, MAX_TIMESTAMP_AT

NO_TIME = -1


class Appended:
    """The batches for one partition, and afterwards what became of each."""

    __slots__ = ("append_time_ms", "batches", "outcomes", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.batches: list[memoryview] = []
        self.outcomes: list[int | MillstreamError] = []
        self.append_time_ms = NO_TIME
        """The timestamp of all records, where the log and not the producer sets it."""

    def fail(self, failure: MillstreamError) -> None:
        """What was stored is not to be relied on."""
        self.outcomes = [failure] * len(self.outcomes)


class AppendCycle:
    """Gathers batches, and stores them."""

    def __init__(self) -> None:
        self._gathered: dict[Partition, Appended] = {}

    def add(self, partition: Partition, batch: memoryview) -> tuple[Appended, int]:
        """Where the outcome of this batch will be found, and under which number.

        The partition must have a log.
        """
        appended = self._gathered.get(partition)
        if appended is None:
            appended = self._gathered[partition] = Appended(partition)
        batches = appended.batches
        batches.append(batch)
        return appended, len(batches) - 1

    @property
    def is_empty(self) -> bool:
        return not self._gathered

    def drop(self) -> None:
        """Forget what was added: the views of it are about to be of something else."""
        self._gathered = {}

    def run(self) -> None:
        """Store everything that was added, and wake who waits for it. Never raises."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        for partition, appended in gathered.items():
            batches = appended.batches
            appended.outcomes = partition.append(batches)
            if partition.topic.settings.message_timestamp_type == "LogAppendTime":
                appended.append_time_ms = _append_time(appended)
            last = appended.outcomes[-1]
            if partition.is_refusing or isinstance(last, Unavailable | StorageFailure):
                partition.note_refusal(last)
            # The receive buffer can only be resized once no view of it is left.
            batches.clear()
            if partition.waiters:
                partition.wake()


def _append_time(appended: Appended) -> int:
    for batch, outcome in zip(appended.batches, appended.outcomes, strict=True):
        # What an idempotent producer repeats is not stamped again.
        if isinstance(outcome, int) and batch[ATTRIBUTES_AT + 1] & APPEND_TIME_BIT:
            (time_ms,) = _TIMESTAMP.unpack_from(batch, MAX_TIMESTAMP_AT)
            return int(time_ms)
    return NO_TIME


_TIMESTAMP = struct.Struct(">q")
