"""Opening a data directory of 1,000 topics with 4 partitions each, after a clean stop. No bar.

In a process of its own, so that its memory is what the logs cost and nothing else.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from benchmarks.bench import Bench
from benchmarks.resident_memory import resident_bytes
from benchmarks.row import Row
from benchmarks.stopwatch import Stopwatch
from benchmarks.workload import batch_of
from millstream.clock import SystemClock
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import LocalFilesystem

_PARTITIONS = 4


def measure(bench: Bench) -> list[Row]:
    logs = bench.scale.topics * _PARTITIONS
    with bench.place("logs") as path:
        bench.prepares(f"writing {logs:,} logs")
        directory = _open(path)
        for number in range(logs):
            log = directory.create(f"topic-{number // _PARTITIONS}", number % _PARTITIONS)
            log.append([batch_of()])
        with Stopwatch() as stop:
            directory.close()
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            open_s, growth_bytes = process.submit(_opened, path).result()
    return [
        Row(measure=f"open {logs:,} logs", figure=open_s, unit="s"),
        Row(measure="the same, memory they take", figure=growth_bytes / 1e6, unit="MB"),
        Row(measure=f"stop {logs:,} logs", figure=stop.wall_s, unit="s"),
    ]


def _opened(path: str) -> tuple[float, int]:
    before = resident_bytes()
    with Stopwatch() as watch:
        directory = _open(path)
    after = resident_bytes()
    directory.close()
    return watch.wall_s, after - before


def _open(path: str) -> DataDirectory:
    return DataDirectory(
        LocalFilesystem(),
        path,
        storage=StorageSettings(),
        defaults=LogSettings(),
        clock=SystemClock(),
    )
