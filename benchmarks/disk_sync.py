"""What the disk takes to make an append of 4 KiB durable: pwrite, then fdatasync. No bar.

The floor under every acks=all, to be seen beside the figures of group commit.
"""

from __future__ import annotations

import os
import time

from benchmarks.bench import Bench
from benchmarks.percentile import percentile
from benchmarks.row import Row

_APPEND_BYTES = 4096


def measure(bench: Bench) -> list[Row]:
    content = bytes(range(256)) * (_APPEND_BYTES // 256)
    latencies_s: list[float] = []
    path = os.path.join(bench.directory, "synced")
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        for position in range(0, bench.scale.syncs * _APPEND_BYTES, _APPEND_BYTES):
            begin_s = time.perf_counter()
            os.pwrite(fd, content, position)
            os.fdatasync(fd)
            latencies_s.append(time.perf_counter() - begin_s)
    finally:
        os.close(fd)
        os.remove(path)
    return [
        Row(
            measure="sync a 4 KiB append, p50",
            figure=percentile(latencies_s, 50) * 1e3,
            unit="ms",
            details={"p99 ms": percentile(latencies_s, 99) * 1e3},
        )
    ]
