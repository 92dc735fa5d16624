"""Times a stretch of code, on the wall and in CPU seconds of the whole process."""

from __future__ import annotations

import gc
import time
from typing import NamedTuple, Self


class Timing(NamedTuple):
    """How long something took."""

    wall_s: float
    cpu_s: float


class Stopwatch:
    """Runs inside a `with` block. CPU time counts every thread, in user and in system mode."""

    __slots__ = ("cpu_s", "wall_s")

    def __enter__(self) -> Self:
        # Rubbish of what came before is not this code's to clear away.
        gc.collect()
        self.cpu_s = -time.process_time()
        self.wall_s = -time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s += time.perf_counter()
        self.cpu_s += time.process_time()

    @property
    def timing(self) -> Timing:
        return Timing(self.wall_s, self.cpu_s)
