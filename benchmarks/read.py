"""Reading closed segments in sequence, from the page cache.

`log.read(offset, 1 MiB)` through a whole log of 64 KiB batches that was closed and opened again,
so that the engine has proved nothing yet: on the first pass it checks every batch, on later ones it
remembers. A consumer that copies each view is measured against copying the same files out of a
plain mapping, 1 MiB at a time: both mapped before, both into new `bytes`.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence

from benchmarks.bench import Bench, fill, open_log
from benchmarks.row import Bar, Row
from benchmarks.stopwatch import Stopwatch, Timing
from benchmarks.workload import batch_of_size
from millstream.records import parse_header
from millstream.settings.log import LogSettings
from millstream.storage.local_log import LocalLog

_BATCH_BYTES = 64 << 10
_READ_BYTES = 1 << 20


def measure(bench: Bench) -> list[Row]:
    with bench.place("read") as directory:
        bench.prepares("writing a log")
        batch = batch_of_size(_BATCH_BYTES)
        settings = LogSettings(segment_bytes=bench.scale.read_segment_bytes)
        log = open_log(directory, settings)
        # One batch past the last closed segment, which stays in the active one.
        fill(log, [batch], bench.scale.read_bytes + _BATCH_BYTES)
        log.close()
        log = open_log(directory, settings, checkpoint=log.checkpoint())
        assert log.report.clean
        reading = _Reading(log, records_per_batch=parse_header(batch).records_count)
        rows = _rows(bench, reading)
        log.close()
    return rows


def _rows(bench: Bench, reading: _Reading) -> list[Row]:
    files = [_map(segment.log_path) for segment in reading.log.segments()[:-1]]
    total_bytes = sum(map(len, files))
    first = reading.run(len)
    views, copies, plain = bench.race(
        lambda: reading.run(len),
        lambda: reading.run(bytes),
        lambda: _copy_plainly(files),
    )

    def rate(time: Timing) -> float:
        return total_bytes / time.wall_s / 1e9

    return [
        Row(
            measure="read closed segments, each view copied",
            figure=rate(copies),
            unit="GB/s",
            compared_with="plain mmap copy",
            comparison=rate(plain),
            bar=Bar(min_figure=3, min_ratio=0.5),
            details={"CPU ratio": plain.cpu_s / copies.cpu_s},
        ),
        Row(measure="read closed segments, views alone", figure=rate(views), unit="GB/s"),
        Row(measure="the same, proving checksums", figure=rate(first), unit="GB/s"),
    ]


class _Reading:
    """Reads all closed segments of a log from front to back."""

    def __init__(self, log: LocalLog, *, records_per_batch: int) -> None:
        self.log = log
        self._records_per_batch = records_per_batch

    def run(self, consume: Callable[[memoryview], object]) -> Timing:
        read, offset = self.log.read, self.log.start_offset
        end_offset = self.log.segments()[-1].base_offset
        with Stopwatch() as watch:
            while offset < end_offset:
                view = read(offset, _READ_BYTES)
                consume(view)
                offset += len(view) // _BATCH_BYTES * self._records_per_batch
        assert offset == end_offset
        return watch.timing


def _copy_plainly(files: Sequence[mmap.mmap]) -> Timing:
    with Stopwatch() as watch:
        for file in files:
            for position in range(0, len(file), _READ_BYTES):
                bytes(file[position : position + _READ_BYTES])
    return watch.timing


def _map(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
