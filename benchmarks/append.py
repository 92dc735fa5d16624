"""Appending without a sync.

Large: batches of 1 MiB through `LocalLog.append`, which proves each by its checksum, gives it its
offset, writes it and keeps the indexes, against a bare `os.pwritev` of the same buffers to a fresh
file of the same filesystem. Data goes to the page cache on both sides.

Small: one record of 100 bytes per batch, 64 batches per call, as they come out of the receive
buffer of a connection. What counts is CPU time, user and system, since a broker is bound by it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from benchmarks.bench import Bench, fill, open_log
from benchmarks.row import Bar, Row
from benchmarks.stopwatch import Stopwatch, Timing
from benchmarks.workload import batch_of, batch_of_size, in_one_buffer
from millstream.storage.local_log import LocalLog

_LARGE_BYTES = 1 << 20
_BATCHES_PER_CALL = 64


def measure(bench: Bench) -> list[Row]:
    return [_large(bench), _small(bench), _idempotent(bench)]


def _large(bench: Bench) -> Row:
    batch = batch_of_size(_LARGE_BYTES)
    total_bytes = bench.scale.append_bytes
    ours, raw = bench.race(
        lambda: _appended(bench, lambda log: fill(log, [batch], total_bytes)),
        lambda: _written(bench, batch, total_bytes),
    )
    return Row(
        measure="append 1 MiB batches",
        figure=total_bytes / ours.wall_s / 1e9,
        unit="GB/s",
        compared_with="os.pwritev",
        comparison=total_bytes / raw.wall_s / 1e9,
        bar=Bar(min_ratio=0.7),
        details={
            "CPU ratio": raw.cpu_s / ours.cpu_s,
            "CPU s/GB": ours.cpu_s / total_bytes * 1e9,
        },
    )


def _small(bench: Bench) -> Row:
    batches = in_one_buffer([batch_of(seed=n) for n in range(_BATCHES_PER_CALL)])
    total_bytes = bench.scale.small_batches * len(batches[0])
    return _per_batch(
        bench,
        "append one-record batches, 64 per call",
        lambda log: fill(log, batches, total_bytes),
        Bar(max_figure=3),
    )


def _idempotent(bench: Bench) -> Row:
    batches = in_one_buffer([batch_of(sequence=n) for n in range(bench.scale.small_batches)])
    calls = [
        batches[first : first + _BATCHES_PER_CALL]
        for first in range(0, len(batches), _BATCHES_PER_CALL)
    ]
    return _per_batch(
        bench,
        "the same, of an idempotent producer",
        lambda log: _append_all(log, calls),
        None,
    )


def _per_batch(
    bench: Bench, measure: str, append: Callable[[LocalLog], None], bar: Bar | None
) -> Row:
    (run,) = bench.race(lambda: _appended(bench, append))
    return Row(
        measure=measure,
        figure=run.cpu_s / bench.scale.small_batches * 1e6,
        unit="us CPU",
        bar=bar,
        details={"wall us": run.wall_s / bench.scale.small_batches * 1e6},
    )


def _appended(bench: Bench, append: Callable[[LocalLog], None]) -> Timing:
    with bench.place("append") as directory:
        log = open_log(directory)
        with Stopwatch() as watch:
            append(log)
        log.close()
    return watch.timing


def _append_all(log: LocalLog, calls: Sequence[Sequence[memoryview]]) -> None:
    for batches in calls:
        outcomes = log.append(batches)
        assert isinstance(outcomes[-1], int), outcomes[-1]


def _written(bench: Bench, batch: bytearray, total_bytes: int) -> Timing:
    with bench.place("raw") as directory:
        os.mkdir(directory)
        fd = os.open(os.path.join(directory, "file"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            with Stopwatch() as watch:
                for position in range(0, total_bytes, len(batch)):
                    os.pwritev(fd, [batch], position)
        finally:
            os.close(fd)
    return watch.timing
