"""A flusher without threads: syncs take as long as the simulation says, on a simulated loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millstream.storage.flusher import Done, Flusher
from millstream.storage.partition_log import PartitionLog, SyncTask


class SimulatedFlusher(Flusher):
    """Of one log. Syncs may overlap; whoever waits hears of the first one that covers it."""

    def __init__(self, delay_ms: Callable[[], int]) -> None:
        super().__init__(threads=0, wake=lambda: None)
        self._delay_ms = delay_ms
        self._queue: list[tuple[int, Done]] = []

    def when_durable(self, log: PartitionLog, offset: int, done: Done) -> None:
        if log.synced_offset >= offset:
            done(None)
            return
        self._queue.append((offset, done))
        delay_s = self._delay_ms() / 1000
        asyncio.get_running_loop().call_later(delay_s, self._finish, log, log.begin_sync())

    def _finish(self, log: PartitionLog, task: SyncTask) -> None:
        log.finish_sync(task, None)
        told = [done for offset, done in self._queue if offset <= log.synced_offset]
        self._queue = [waiter for waiter in self._queue if waiter[0] > log.synced_offset]
        for done in told:
            done(None)
