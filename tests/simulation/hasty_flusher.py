"""A flusher with a defect: it tells of some data that it is durable before it is."""

from __future__ import annotations

from collections.abc import Callable

from millstream.storage.flusher import Done
from millstream.storage.partition_log import PartitionLog
from tests.fakes.fake_flusher import DelayedFlusher


class HastyFlusher(DelayedFlusher):
    """Waits for nothing, for the logs that a subclass chooses."""

    def __init__(self, delay_ms: Callable[[PartitionLog], int], **_: object) -> None:
        super().__init__(delay_ms)

    def is_hasty(self, log: PartitionLog, offset: int) -> bool:
        return True

    def when_durable(self, log: PartitionLog, offset: int, done: Done) -> None:
        if self.is_hasty(log, offset):
            super().when_durable(log, offset, lambda _: None)
            done(None)
        else:
            super().when_durable(log, offset, done)
