"""The check of a batch by itself: header and checksum of one record of 100 bytes. No bar."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.row import Row
from benchmarks.stopwatch import Stopwatch, Timing
from benchmarks.workload import batch_of, in_one_buffer
from millstream.records.batch import validate_produced

_BATCHES = 64


def measure(bench: Bench) -> list[Row]:
    batches = in_one_buffer([batch_of(seed=number) for number in range(_BATCHES)])
    passes = max(bench.scale.small_batches // _BATCHES, 1)
    (run,) = bench.race(lambda: _validated(batches, passes))
    return [
        Row(
            measure="validate a one-record batch",
            figure=run.cpu_s / (passes * _BATCHES) * 1e6,
            unit="us CPU",
        )
    ]


def _validated(batches: list[memoryview], passes: int) -> Timing:
    with Stopwatch() as watch:
        for _ in range(passes):
            for batch in batches:
                validate_produced(batch)
    return watch.timing
