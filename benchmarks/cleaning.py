"""Compaction: how fast it is, and that it keeps to its memory.

The rate comes from `measure_compaction`, best of a few runs. Memory is measured in a process of its
own that does nothing else: a log with more keys than the default buffer has room for, and the
largest growth of the process's own memory (mapped files do not count) while one pass runs, against
the size of that buffer.
"""

from __future__ import annotations

import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from benchmarks.bench import Bench, open_log
from benchmarks.compaction import measure_compaction
from benchmarks.resident_memory import own_bytes
from benchmarks.row import Bar, Row
from millstream.clock import SystemClock
from millstream.records import Record, build
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.storage.compaction import install, plan_compaction
from millstream.storage.recovery import LogCheckpoint

_BAR = Bar(min_figure=50)
_RECORDS_PER_BATCH = 100
_SAMPLE_S = 0.002


def measure(bench: Bench) -> list[Row]:
    runs = []
    for number in range(bench.scale.compaction_runs):
        bench.prepares(f"run {number + 1} of {bench.scale.compaction_runs}")
        with bench.place("compaction") as directory:
            runs.append(measure_compaction(directory, bench.scale.compaction_bytes))
    return [
        Row(
            measure="compact records of 1 KiB",
            figure=max(run["mb_per_s_1k"] for run in runs),
            unit="MB/s",
            bar=_BAR,
        ),
        Row(
            measure="compact records of 100 B",
            figure=max(run["mb_per_s_100b"] for run in runs),
            unit="MB/s",
            bar=_BAR,
        ),
        _memory(bench),
    ]


def _memory(bench: Bench) -> Row:
    buffer_bytes = StorageSettings().compaction_buffer_bytes
    keys = bench.scale.compaction_keys
    # Several segments, since the active one is not compacted.
    settings = LogSettings(segment_bytes=keys * 16, cleanup_policy=frozenset({"compact"}))
    with bench.place("keys") as directory:
        bench.prepares(f"writing {keys:,} keys")
        checkpoint = _write_keys(directory, settings, keys)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            growth_bytes, learnt = process.submit(
                _compacted, directory, settings, checkpoint, buffer_bytes
            ).result()
    return Row(
        measure=f"memory to compact {keys:,} keys",
        figure=growth_bytes / 1e6,
        unit="MB",
        compared_with="buffer",
        comparison=buffer_bytes / 1e6,
        bar=Bar(max_ratio=1),
        details={"keys per pass": learnt},
    )


def _write_keys(directory: str, settings: LogSettings, keys: int) -> LogCheckpoint:
    log = open_log(directory, settings)
    now_ms = SystemClock().now_ms()
    value = bytes(100)
    for first in range(0, keys, _RECORDS_PER_BATCH):
        records = [
            Record(n, now_ms, b"a key of some length %09d" % (first + n), value)
            for n in range(_RECORDS_PER_BATCH)
        ]
        (outcome,) = log.append([build(records)])
        assert isinstance(outcome, int), outcome
    log.close()
    return log.checkpoint()


def _compacted(
    directory: str, settings: LogSettings, checkpoint: LogCheckpoint, buffer_bytes: int
) -> tuple[int, int]:
    """How much the memory grew, and how many keys were held."""
    log = open_log(directory, settings, checkpoint=checkpoint)
    plan = plan_compaction(
        log,
        now_ms=SystemClock().now_ms(),
        buffer_bytes=buffer_bytes,
        max_decompressed_bytes=StorageSettings().max_decompressed_bytes,
    )
    assert plan is not None
    before, ended = own_bytes(), threading.Event()
    samples = [before]

    def sample() -> None:
        while not ended.wait(_SAMPLE_S):
            samples.append(own_bytes())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        result = plan.run()
    finally:
        ended.set()
        sampler.join()
    install(log, plan, result)
    log.close()
    return max(samples) - before, result.key_count
