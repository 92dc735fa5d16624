"""What the operating system says of this process. Where it does not say, nothing is told."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress

from millstream.telemetry import catalogue as known
from millstream.telemetry.metric import Metric, Number


def process_figures() -> Iterator[tuple[Metric, Number]]:
    """Memory, CPU time and open files, now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield known.PROCESS_CPU, usage.ru_utime + usage.ru_stime
    with suppress(OSError), open("/proc/self/statm", "rb") as told:
        yield known.PROCESS_MEMORY, int(told.read().split()[1]) * resource.getpagesize()
    with suppress(OSError):
        # One of them is the look itself.
        yield known.PROCESS_FILES, len(os.listdir("/proc/self/fd")) - 1
    yield known.PROCESS_MAX_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
