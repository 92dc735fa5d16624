"""The scan after a crash, against a plain CRC-32C over the same mapped file.

A log of one segment, whose bytes are on disk but not known to be: opening it proves every batch,
writes the indexes anew and replays the producers. The rate is that of the whole opening. The bar
is for batches of 1 MiB; with small batches, it is the number of batches that counts.
"""

from __future__ import annotations

import mmap
import os

from benchmarks.bench import Bench, fill, open_log
from benchmarks.row import Bar, Row
from benchmarks.stopwatch import Stopwatch, Timing
from benchmarks.workload import batch_of, batch_of_size
from millstream.records.checksum import crc32c
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment import SNAPSHOT_SUFFIX

_NOTHING_KNOWN = LogCheckpoint(0)


def measure(bench: Bench) -> list[Row]:
    total_bytes = bench.scale.scan_bytes
    large = [batch_of_size(1 << 20)]
    medium = [batch_of_size(16 << 10) for _ in range(64)]
    small = [batch_of(seed=number) for number in range(64)]
    return [
        _row(bench, "1 MiB batches", large, total_bytes, Bar(min_ratio=0.5)),
        _row(bench, "16 KiB batches", medium, total_bytes, None),
        _row(bench, "one-record batches", small, total_bytes // 32, None),
    ]


def _row(
    bench: Bench, kind: str, batches: list[bytearray], total_bytes: int, bar: Bar | None
) -> Row:
    with bench.place("scan") as directory:
        bench.prepares(f"writing {kind}")
        log = open_log(directory)
        fill(log, batches, total_bytes)
        log.close()
        (segment,) = log.segments()
        ours, plain = bench.race(
            lambda: _recovered(directory, segment.size), lambda: _summed(segment.log_path)
        )
    return Row(
        measure=f"crash scan, {kind}",
        figure=segment.size / ours.wall_s / 1e9,
        unit="GB/s",
        compared_with="plain crc32c",
        comparison=segment.size / plain.wall_s / 1e9,
        bar=bar,
        details={
            "CPU ratio": plain.cpu_s / ours.cpu_s,
            "CPU us per batch": ours.cpu_s / (segment.size / len(batches[0])) * 1e6,
        },
    )


def _recovered(directory: str, size: int) -> Timing:
    for name in os.listdir(directory):
        # A clean stop leaves the producers' state; a crash does not.
        if name.endswith(SNAPSHOT_SUFFIX):
            os.remove(os.path.join(directory, name))
    with Stopwatch() as watch:
        log = open_log(directory, checkpoint=_NOTHING_KNOWN)
    assert log.report.scanned_bytes == size
    log.close()
    return watch.timing


def _summed(path: str) -> Timing:
    with Stopwatch() as watch, open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        mapping.madvise(mmap.MADV_SEQUENTIAL)
        crc32c(mapping)
        mapping.close()
    return watch.timing
