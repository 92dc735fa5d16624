"""Group commit: makes appended data durable, one sync for everyone who waits.

While a log is being synced, those who append to it queue up behind; when the sync ends, one more
serves them all. So a log has at most one sync under way, and the number of syncs depends on the
speed of the disk, not on the number of producers.

Syncs run in threads. All else happens on the owner's thread: a thread that has finished calls
`wake`, upon which the owner calls `collect`.

Invariant: a waiter is told of success only after a sync that began after its append has ended
well. After a failed sync every waiter of that log is told so, now and for ever; only when a file
could not be opened, for there being too many, is the sync tried again while they wait.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from millstream.clock import ticks_ns
from millstream.errors import StorageFailure
from millstream.storage.filesystem import TOO_MANY_FILES
from millstream.storage.partition_log import PartitionLog, SyncTask
from millstream.telemetry.histogram import Histogram

_log = logging.getLogger(__name__)

_RETRY_PAUSE_S = 0.05

Done = Callable[[StorageFailure | None], None]
_Job = tuple[PartitionLog, SyncTask]


class Flusher:
    """Runs syncs in threads and tells those who wait for them."""

    def __init__(self, *, threads: int, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._finished: SimpleQueue[tuple[_Job, OSError | None, int]] = SimpleQueue()
        # Invariant: a log is a key exactly while a sync of it is under way.
        self._waiters: dict[PartitionLog, list[tuple[int, Done]]] = {}
        self._threads = [
            threading.Thread(target=self._work, name=f"flusher-{n}", daemon=True)
            for n in range(threads)
        ]
        self._closing = threading.Event()
        self.latency = Histogram()
        """How long syncs took."""
        self.failures = 0
        """How many syncs failed."""
        for thread in self._threads:
            thread.start()

    def when_durable(self, log: PartitionLog, offset: int, done: Done) -> None:
        """Call `done` once everything below an offset is on disk, or cannot be."""
        assert offset <= log.end_offset, "no sync can cover what was not appended"
        if log.synced_offset >= offset:
            done(None)
            return
        waiters = self._waiters.get(log)
        if waiters is None:
            self._begin(log, [(offset, done)])
        else:
            waiters.append((offset, done))

    def flush(self, log: PartitionLog) -> None:
        """Begin to sync a log that nobody waits for, unless that is under way."""
        if log not in self._waiters:
            self._begin(log, [])

    @property
    def under_way(self) -> int:
        """How many logs are being synced, or wait for a thread that does so."""
        return len(self._waiters)

    @property
    def waiting_count(self) -> int:
        """How many wait to hear that something is on disk."""
        return sum(map(len, self._waiters.values()))

    def collect(self) -> None:
        """Take note of the syncs that have ended."""
        while True:
            try:
                (log, task), error, elapsed_ns = self._finished.get_nowait()
            except Empty:
                return
            self.latency.observe(elapsed_ns)
            self.failures += error is not None
            log.finish_sync(task, error)
            self._settle(log, error)

    def close(self) -> None:
        """Let the syncs under way end, and tell those who wait."""
        self._closing.set()
        while self._waiters:
            self._finished.put(self._finished.get())
            self.collect()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _begin(self, log: PartitionLog, waiters: list[tuple[int, Done]]) -> None:
        try:
            task = log.begin_sync()
        except StorageFailure as failure:
            self._waiters.pop(log, None)
            _tell(waiters, failure)
            return
        self._waiters[log] = waiters
        self._jobs.put((log, task))

    def _settle(self, log: PartitionLog, error: OSError | None) -> None:
        """Tell the waiters whose data is durable; sync again for the rest."""
        waiters = self._waiters.pop(log)
        synced = log.synced_offset
        rest = [waiter for waiter in waiters if waiter[0] > synced]
        if rest and error is not None and self._closing.is_set():
            _tell(rest, StorageFailure(path=log.name, operation="sync", reason=str(error)))
        elif rest:
            self._begin(log, rest)
        _tell([waiter for waiter in waiters if waiter[0] <= synced], None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: OSError | None = None
            began_ns = ticks_ns()
            try:
                job[1].run()
            except OSError as caught:
                error = caught
                if error.errno in TOO_MANY_FILES:
                    # The log tries again, but not as fast as it can.
                    self._closing.wait(_RETRY_PAUSE_S)
            except (
                Exception
            ) as caught:  # Outer edge of a thread: whatever it is, nothing is synced.
                error = OSError(errno.EIO, repr(caught))
            self._finished.put((job, error, ticks_ns() - began_ns))
            self._wake()


def _tell(waiters: list[tuple[int, Done]], failure: StorageFailure | None) -> None:
    for _, done in waiters:
        try:
            done(failure)
        except Exception:  # Outer edge of a waiter: it must not keep the others from hearing.
            _log.exception("a waiter failed when it was told of a sync")
