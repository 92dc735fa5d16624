"""The topics of a broker as its Kafka door sees them while some of their partitions have faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from millstream.broker.partition import Partition
from millstream.broker.topics import Topics
from millstream.errors import MillstreamError
from millstream.storage.local_log import LocalLog
from millstream.testing.fault_rules import FaultRules, Place

Judge = Callable[[Place], MillstreamError | None]


class FaultyTopics:
    """Stands in for `Topics`, and is one but for the partitions that have faults."""

    def __init__(self, topics: Topics, rules: FaultRules) -> None:
        self._topics = topics
        self._rules = rules
        self._judge: Judge | None = None
        # Whom to wake when a stall ends.
        self._stalled: list[Partition] = []
        rules.on_changed.append(self._wake)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topics, name)

    @property
    def generation(self) -> int:
        return self._topics.generation + self._rules.generation

    def find(self, topic: str | bytes, number: int) -> Partition:
        """As `Topics.find`; raises the error of a fault, too."""
        partition = self._topics.find(topic, number)
        place = Place(partition.topic.name, number)
        if self._judge is not None and (refusal := self._judge(place)) is not None:
            raise refusal
        if partition.failure is None and self._rules.is_stalled(place):
            partition = _stalled(partition)
            self._stalled.append(partition)
        return partition

    @contextmanager
    def refusing(self, judge: Judge) -> Iterator[None]:
        """What is looked for meanwhile is refused where the judge says so."""
        self._judge = judge
        try:
            yield
        finally:
            self._judge = None

    def _wake(self) -> None:
        stalled, self._stalled = self._stalled, []
        for partition in stalled:
            partition.wake()


class _StalledLog:
    """A log of which nothing can be read now."""

    def __init__(self, log: LocalLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, *_: Any, **__: Any) -> bytes:
        return b""


def _stalled(partition: Partition) -> Partition:
    log = cast("LocalLog", _StalledLog(partition.log))
    return Partition(partition.topic, partition.number, log)
