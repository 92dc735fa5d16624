"""Group commit: 64 appenders that each wait for the disk, against one appender alone.

An appender sends a batch of one record of 100 bytes, waits until it is durable (acks=all), and
sends the next. Both sides take the same way: a produce queue that hands all batches which arrived
in one cycle of the event loop to the log in one append, then the `Flusher`, then a callback.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial

import uvloop

from benchmarks.bench import Bench, open_log
from benchmarks.percentile import percentile
from benchmarks.row import Bar, Row
from benchmarks.workload import batch_of
from millstream.errors import StorageFailure
from millstream.settings.storage import StorageSettings
from millstream.storage.flusher import Done, Flusher
from millstream.storage.local_log import LocalLog

_APPENDERS = 64


def measure(bench: Bench) -> list[Row]:
    alone, together = _Outcome(), _Outcome()
    for _ in bench.rounds():
        alone.add(_run(bench, appenders=1))
        together.add(_run(bench, appenders=_APPENDERS))
    return [
        Row(
            measure=f"group commit, {_APPENDERS} appenders",
            figure=together.rate,
            unit="appends/s",
            compared_with="one appender",
            comparison=alone.rate,
            bar=Bar(min_ratio=20),
            details={
                "p50 ms": percentile(together.latencies_s, 50) * 1e3,
                "p99 ms": percentile(together.latencies_s, 99) * 1e3,
                "alone p50 ms": percentile(alone.latencies_s, 50) * 1e3,
                "alone p99 ms": percentile(alone.latencies_s, 99) * 1e3,
                "CPU us": together.cpu_s / len(together.latencies_s) * 1e6,
            },
        )
    ]


@dataclass(slots=True)
class _Outcome:
    """What came of one round, or the best rate and all latencies of several."""

    rate: float = 0.0
    cpu_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    def add(self, other: _Outcome) -> None:
        self.rate = max(self.rate, other.rate)
        self.cpu_s += other.cpu_s
        self.latencies_s += other.latencies_s


def _run(bench: Bench, *, appenders: int) -> _Outcome:
    with bench.place("commit") as directory:
        log = open_log(directory)
        outcome = uvloop.run(_commit(log, appenders, bench.scale.commit_s))
        log.close()
    return outcome


async def _commit(log: LocalLog, appenders: int, seconds: float) -> _Outcome:
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(flusher.collect)

    flusher = Flusher(threads=StorageSettings().flush_threads, wake=wake)
    queue = _ProduceQueue(log, flusher, loop)
    latencies_s: list[float] = []
    ended = [loop.create_future() for _ in range(appenders)]
    cpu_s, begin_s = time.process_time(), time.perf_counter()
    for number in range(appenders):
        _Appender(queue, batch_of(seed=number), latencies_s, ended[number], begin_s + seconds)
    async with asyncio.timeout(60 + seconds):
        await asyncio.gather(*ended)
    wall_s = time.perf_counter() - begin_s
    outcome = _Outcome(len(latencies_s) / wall_s, time.process_time() - cpu_s, latencies_s)
    flusher.close()
    return outcome


class _ProduceQueue:
    """Gathers the batches of one loop cycle into one append."""

    def __init__(self, log: LocalLog, flusher: Flusher, loop: asyncio.AbstractEventLoop) -> None:
        self._log = log
        self._flusher = flusher
        self._loop = loop
        self._batches: list[bytearray] = []
        self._waiters: list[Done] = []

    def put(self, batch: bytearray, done: Done) -> None:
        if not self._batches:
            self._loop.call_soon(self._append)
        self._batches.append(batch)
        self._waiters.append(done)

    def _append(self) -> None:
        batches, self._batches = self._batches, []
        waiters, self._waiters = self._waiters, []
        outcomes = self._log.append(batches)
        for outcome, done in zip(outcomes, waiters, strict=True):
            assert isinstance(outcome, int), outcome
            self._flusher.when_durable(self._log, outcome + 1, done)


class _Appender:
    """Sends a batch as soon as the one before is durable, until the time is up."""

    def __init__(
        self,
        queue: _ProduceQueue,
        batch: bytearray,
        latencies_s: list[float],
        ended: asyncio.Future[None],
        deadline_s: float,
    ) -> None:
        self._send = partial(queue.put, batch, self._durable)
        self._latencies_s = latencies_s
        self._ended = ended
        self._deadline_s = deadline_s
        self._sent_s = time.perf_counter()
        self._send()

    def _durable(self, failure: StorageFailure | None) -> None:
        assert failure is None, failure
        now_s = time.perf_counter()
        self._latencies_s.append(now_s - self._sent_s)
        if now_s < self._deadline_s:
            self._sent_s = now_s
            self._send()
        else:
            self._ended.set_result(None)
