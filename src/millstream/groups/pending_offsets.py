"""Offsets of one group that were committed in transactions which have not ended.

The newest record of a partition decides, in the order of the log: that of a transaction counts
from where it lies, not from where the transaction ended. So what a plain commit or a tombstone
comes after can never count any more, and is let go at once; so is what lies before an offset of
a transaction that was committed.

Invariant: an offset is here exactly if it would be the newest of its partition, among all that
is committed, were its transaction committed now.
After a crash: replayed from the log, as whatever its transactions had not ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millstream.groups.group_records import Committed
from millstream.groups.offsets import TopicPartition


class Pending(NamedTuple):
    committed: Committed
    record_offset: int
    """Where its record lies in the log."""
    producer_epoch: int


class PendingOffsets:
    """By partition; the partitions that have any are its items."""

    __slots__ = ("_by_partition", "_by_producer")

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, dict[int, Pending]] = {}
        # Invariant: holds at least the partitions that a producer has pending offsets in.
        self._by_producer: dict[int, set[TopicPartition]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_partition)

    def __contains__(self, key: object) -> bool:
        return key in self._by_partition

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._by_partition)

    def all(self) -> Iterator[tuple[int, TopicPartition, Pending]]:
        """Each with the id of its producer."""
        for key, waiting in self._by_partition.items():
            for producer_id, pending in waiting.items():
                yield producer_id, key, pending

    def add(self, producer_id: int, key: TopicPartition, pending: Pending) -> None:
        """The newest record of a transaction for a partition."""
        self._by_partition.setdefault(key, {})[producer_id] = pending
        self._by_producer.setdefault(producer_id, set()).add(key)

    def supersede(self, key: TopicPartition) -> None:
        """A record that is in no transaction comes after all of a partition's."""
        self._by_partition.pop(key, None)

    def end(self, producer_id: int, *, is_commit: bool) -> dict[TopicPartition, Committed]:
        """The transaction of a producer has ended; returns what is committed by that."""
        committed = {}
        for key in self._by_producer.pop(producer_id, ()):
            waiting = self._by_partition.get(key, {})
            ended = waiting.pop(producer_id, None)
            if ended is None:
                continue
            if is_commit:
                committed[key] = ended.committed
                waiting = {
                    other: pending
                    for other, pending in waiting.items()
                    if pending.record_offset > ended.record_offset
                }
            if waiting:
                self._by_partition[key] = waiting
            else:
                del self._by_partition[key]
        return committed
