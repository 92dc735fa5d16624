"""What every measure is given: a place on disk, its scale, and rounds to run.

The fair way to compare two things on a machine that others use too: both in one run, in
interleaved rounds in which they take turns to begin, each side's best against the other's. CPU
time is told beside wall time: when the two ratios differ, the machine was busy with other work.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from benchmarks.load import Load
from benchmarks.scale import Scale
from benchmarks.server_meter import Usage
from benchmarks.stopwatch import Timing
from millstream.clock import SystemClock
from millstream.settings.log import LogSettings
from millstream.storage.filesystem import Filesystem, LocalFilesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment_cache import SegmentCache

_CACHED_SEGMENTS = 64


class Bench:
    """A directory to work in, and someone to tell how far the work is."""

    def __init__(
        self,
        directory: str,
        scale: Scale,
        *,
        tell: Callable[[str, float], None],
        load: Load | None = None,
    ) -> None:
        """`tell` gets what is being done and the share of the measure that is done."""
        self.directory = directory
        self.scale = scale
        self.load = load or Load()
        self._tell = tell
        self._done = 0.0

    def prepares(self, what: str) -> None:
        self._tell(what, self._done)

    def rounds(self, total: int | None = None) -> Iterator[int]:
        """The numbers of the rounds to run, as many as is usual unless a total is given."""
        total = total or self.scale.rounds
        for number in range(total):
            self._tell(f"round {number + 1} of {total}", self._done)
            yield number
            # How many more rounds a measure will ask for is not known: half of the bar is for them.
            self._done += (1 - self._done) / (2 * total)

    def race(self, *contenders: Callable[[], Timing]) -> list[Timing]:
        """The best times of each contender, of all rounds."""
        runs: list[list[Timing]] = [[] for _ in contenders]
        for number in self.rounds():
            order = list(range(len(contenders)))
            for place in order if number % 2 == 0 else reversed(order):
                runs[place].append(contenders[place]())
        return [
            Timing(min(run.wall_s for run in some), min(run.cpu_s for run in some)) for some in runs
        ]

    def best(self, run: Callable[[], Usage]) -> Usage:
        """The least that any of the rounds took, of each figure by itself."""
        return reduce(Usage.best, (run() for _ in self.rounds(self.scale.server_rounds)))

    @contextmanager
    def place(self, name: str) -> Iterator[str]:
        """A directory of this name that does not exist yet, and is gone afterwards."""
        path = os.path.join(self.directory, name)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def open_log(
    directory: str,
    settings: LogSettings | None = None,
    *,
    checkpoint: LogCheckpoint | None = None,
    filesystem: Filesystem | None = None,
) -> LocalLog:
    """A log as the broker opens it, with default settings unless a measure needs others."""
    return LocalLog(
        filesystem or LocalFilesystem(),
        directory,
        name=os.path.basename(directory),
        settings=settings or LogSettings(),
        clock=SystemClock(),
        cache=SegmentCache(_CACHED_SEGMENTS),
        checkpoint=checkpoint,
    )


def fill(log: LocalLog, batches: Sequence[bytearray | memoryview], total_bytes: int) -> None:
    """Append the same batches again and again, all of them in each call."""
    for _ in range(total_bytes // sum(map(len, batches))):
        outcomes = log.append(batches)
        assert isinstance(outcomes[-1], int), outcomes[-1]
