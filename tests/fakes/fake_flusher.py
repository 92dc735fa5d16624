"""Flushers without threads: one syncs while its caller waits, one after a simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millstream.errors import StorageFailure
from millstream.storage.flusher import Done, Flusher
from millstream.storage.local_log import LocalLog
from millstream.storage.partition_log import PartitionLog, SyncTask


class PromptFlusher(Flusher):
    """Syncs while its caller waits, so that a crash happens at a chosen operation of the disk."""

    def __init__(self, **_: object) -> None:
        super().__init__(threads=0, wake=lambda: None)

    def when_durable(self, log: PartitionLog, offset: int, done: Done) -> None:
        assert isinstance(log, LocalLog)
        try:
            if log.synced_offset < offset:
                log.sync()
        except StorageFailure as failure:
            done(failure)
        else:
            done(None)

    def flush(self, log: PartitionLog) -> None:
        self.when_durable(log, log.end_offset, lambda _: None)


class DelayedFlusher(Flusher):
    """Syncs on the event loop after a delay, so that syncs of several logs end in any order."""

    def __init__(self, delay_ms: Callable[[PartitionLog], int], **_: object) -> None:
        super().__init__(threads=0, wake=lambda: None)
        self._delay_ms = delay_ms
        # Invariant: a log is a key exactly while a sync of it is under way.
        self._queues: dict[PartitionLog, list[tuple[int, Done]]] = {}

    def when_durable(self, log: PartitionLog, offset: int, done: Done) -> None:
        if log.synced_offset >= offset:
            done(None)
        elif log in self._queues:
            self._queues[log].append((offset, done))
        else:
            self._start(log, [(offset, done)])

    def flush(self, log: PartitionLog) -> None:
        if log not in self._queues:
            self._start(log, [])

    @property
    def under_way(self) -> int:
        return len(self._queues)

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self._queues.values()))

    def _start(self, log: PartitionLog, queue: list[tuple[int, Done]]) -> None:
        try:
            task = log.begin_sync()
        except StorageFailure as failure:
            for _, done in queue:
                done(failure)
            return
        self._queues[log] = queue
        asyncio.get_running_loop().call_later(self._delay_ms(log) / 1000, self._end, log, task)

    def _end(self, log: PartitionLog, task: SyncTask) -> None:
        error: OSError | None = None
        try:
            task.run()
        except OSError as caught:
            error = caught
        log.finish_sync(task, error)
        queue = self._queues.pop(log)
        synced_offset = log.synced_offset
        if rest := [waiter for waiter in queue if waiter[0] > synced_offset]:
            self._start(log, rest)
        for offset, done in queue:
            if offset <= synced_offset:
                done(None)
